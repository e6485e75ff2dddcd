use super::*;
use crate::summary::{Headline, of_skipped};

/// Ends a line, a property, the properties and a block, and begins another command, markup and Markdown.
const HOSTILE: &str = "x,title=mine::y%0A::error::z\n::error file=a::b\r\n\n##[error]c\u{1b}[31m</pre></details><script>alert(1)</script> | **bold** <b>";

fn case(outcome: Outcome, id: &str) -> Summary {
    Summary {
        outcome,
        file: Some("scenarios/a.yaml".to_owned()),
        line: Some(7),
        headline: Some(Headline::Trouble("services dead on n1".to_owned())),
        expected: "healthy".to_owned(),
        got: "1 broken".to_owned(),
        ..of_skipped(id, "")
    }
}

fn told(cases: &[Summary]) -> Failed {
    let mut failed = Failed::default();
    for case in cases {
        failed.add(case, Some("chainbreak run 'scenarios' 's/v'"));
    }
    failed
}

/// What the runner makes of a line: command, properties and message (`ActionCommand.TryParseV2`).
fn read(line: &str) -> (String, Vec<(String, String)>, String) {
    let line = line.strip_prefix("::").unwrap();
    let (info, message) = line.split_once("::").unwrap();
    let (command, properties) = info.split_once(' ').unwrap();
    let data = |text: &str| {
        let text = text.replace("%0D", "\r").replace("%0A", "\n");
        text.replace("%25", "%")
    };
    let property = |text: &str| {
        let (key, value) = text.split_once('=').unwrap();
        let value = value.replace("%0D", "\r").replace("%0A", "\n");
        let value = value.replace("%3A", ":").replace("%2C", ",");
        (key.to_owned(), value.replace("%25", "%"))
    };
    let properties = properties.split(',').map(property).collect();
    (command.to_owned(), properties, data(message))
}

#[test]
fn an_annotation_says_what_where_and_in_which_case() {
    let cases = [
        case(Outcome::NotAsExpected, "s/v[iptables=nft]"),
        case(Outcome::Inconclusive, "s/w"),
    ];
    assert_eq!(
        told(&cases).annotations(),
        [
            "::error file=scenarios/a.yaml,line=7,title=s/v[iptables=nft]%3A not as expected::services dead on n1",
            "::warning file=scenarios/a.yaml,line=7,title=s/w%3A inconclusive::services dead on n1",
        ]
    );
}

#[test]
fn hostile_names_cannot_add_a_second_command_or_another_property() {
    let hostile = Summary {
        file: Some(HOSTILE.to_owned()),
        line: None,
        headline: Some(Headline::Trouble(HOSTILE.to_owned())),
        ..case(Outcome::NotAsExpected, HOSTILE)
    };
    let lines = told(&[hostile]).annotations();
    assert_eq!(lines.len(), 1);
    assert!(!lines[0].contains(['\n', '\r', '\u{1b}']), "{lines:?}");
    let (command, properties, message) = read(&lines[0]);
    assert_eq!(command, "error");
    let title = format!("{HOSTILE}: not as expected");
    let whole = [("file", HOSTILE), ("title", title.as_str())];
    assert_eq!(
        properties,
        whole.map(|(key, value)| (key.to_owned(), shown(value)))
    );
    assert_eq!(message, shown(&one_line(HOSTILE)));
}

#[test]
fn a_healthy_run_has_no_annotation_and_its_summary_is_how_many_cases_it_has() {
    let cases = [
        case(Outcome::AsExpected, "s/v"),
        case(Outcome::Skipped, "s/w"),
    ];
    let failed = told(&cases);
    assert_eq!(failed.annotations(), [""; 0]);
    assert_eq!(
        failed.markdown(&cases, LARGEST),
        "\n\n## chainbreak\n\n2 cases: 1 as expected, 1 skipped\n"
    );
}

#[test]
fn of_many_annotations_the_last_that_is_shown_says_how_many_more_there_are() {
    let of = |outcome, number: usize| (0..number).map(move |_| case(outcome, "s/v"));
    let cases: Vec<Summary> = of(Outcome::NotAsExpected, 10)
        .chain(of(Outcome::Inconclusive, 12))
        .collect();
    let lines = told(&cases).annotations();
    let (errors, warnings) = lines.split_at(10);
    assert!(errors.iter().all(|line| line.contains("title=s/v%3A")));
    assert_eq!(warnings.len(), 10);
    assert_eq!(
        warnings[9],
        "::warning title=chainbreak::3 more cases are inconclusive"
    );
}

#[test]
fn the_summary_of_a_failed_run_names_case_headline_and_command() {
    let cases = [
        case(Outcome::NotAsExpected, "s/v"),
        case(Outcome::AsExpected, "s/w"),
    ];
    let page = told(&cases).markdown(&cases, LARGEST);
    let head = "\n\n## chainbreak\n\n2 cases: 1 not as expected, 1 as expected\n\n<table>\n";
    assert!(page.starts_with(head), "{page}");
    let row = "<tr><td><code>s/v</code></td><td>✗ not as expected</td><td>services dead on n1\
               <br><code>chainbreak run 'scenarios' 's/v'</code></td></tr>\n</table>\n";
    assert!(page.contains(row), "{page}");
    let folded =
        "\n<details><summary>✗ <code>s/v</code></summary>\n\n<pre>\n✗ services dead on n1\n";
    assert!(page.contains(folded), "{page}");
    assert!(!page.contains("s/w"), "{page}");
}

#[test]
fn what_others_wrote_is_neither_markup_nor_markdown_of_the_summary() {
    let hostile = Summary {
        headline: Some(Headline::Trouble(HOSTILE.to_owned())),
        evidence: vec![HOSTILE.to_owned()],
        ..case(Outcome::NotAsExpected, HOSTILE)
    };
    let mut failed = Failed::default();
    failed.add(&hostile, Some(HOSTILE));
    let page = failed.markdown(&[hostile], LARGEST);
    for mark in ["<script", "<b>", "\u{1b}", "\r"] {
        assert!(!page.contains(mark), "{mark}: {page}");
    }
    for block in ["</pre>", "</details>", "</table>"] {
        assert_eq!(page.matches(block).count(), 1, "{page}");
    }
    let (outside, rest) = page.split_once("<pre>").unwrap();
    let (inside, after) = rest.split_once("</pre>").unwrap();
    assert!(inside.contains("**bold**"), "{page}");
    assert!(!after.contains("**bold**"), "{page}");
    let mut said = outside.lines().filter(|line| line.contains("**bold**"));
    assert!(said.all(|line| line.starts_with("<tr><td>") || line.starts_with("<details>")));
}

#[test]
fn the_summary_is_no_longer_than_there_is_room_and_says_what_is_left_out() {
    let long = |number: usize| Summary {
        evidence: vec!["seen ".repeat(2_000)],
        ..case(Outcome::NotAsExpected, &format!("s/v{number}"))
    };
    let cases: Vec<Summary> = (0..200).map(long).collect();
    let failed = told(&cases);
    let page = failed.markdown(&cases, 100_000);
    assert!(page.len() <= 100_000, "{}", page.len());
    assert_eq!(page.matches("<tr><td>").count(), 200);
    let details = page.matches("<details>").count();
    assert!((1..20).contains(&details), "{details}");
    let said = format!("\nOf 200 cases 200 are told here, {details} with what was seen:");
    assert!(page.contains(&said), "{page}");
    assert!(failed.markdown(&cases, LARGEST).len() <= LARGEST);
    assert_eq!(failed.markdown(&cases, 100), "");
}
