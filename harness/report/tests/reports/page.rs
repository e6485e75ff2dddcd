//! The report as a page.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use chainbreak_model::{
    case::{Case, Expect},
    event::{Dropped, DropsSeen, Event, EventKind, LogEntry},
    is_hidden,
    names::AgentName,
};
use chainbreak_report::{Line, Run, Skipped, html, summary, term::Overview};
use indexmap::IndexMap;

use crate::{
    by::{DOCKER, by_another},
    history::{ROUNDS, all_broken, case, command, event, header, history, run},
};

pub(crate) fn page(run: &Run) -> String {
    let mut overview = Overview::default();
    summary::each(run).for_each(|summary| overview.add(summary));
    html::page(run, &overview).collect()
}

/// An element a line, without looks.
fn lines(page: &str) -> String {
    let (_, body) = page.split_once("</header>").unwrap();
    body.replace("><", ">\n<")
}

/// What stands between two texts, each time.
fn between<'a>(page: &'a str, from: &'a str, to: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = page.split(from).skip(1);
    parts.map(move |part| part.split(to).next().unwrap())
}

fn of_outcomes() -> Run {
    let mut run = run(vec![
        (case("default-cleanup", all_broken()), history(ROUNDS)),
        (case("cleanup-disabled", Expect::Healthy), history(&[])),
        (case("bpf-off", Expect::Healthy), history(ROUNDS)),
    ]);
    let skipped = Skipped {
        id: "other/on-kind".to_owned(),
        reason: "kind: no Docker".to_owned(),
    };
    run.add(Line::Skipped(skipped), Path::new("")).unwrap();
    run
}

#[test]
fn a_case_is_told_from_its_verdict_down_to_the_rules_before_and_after_a_command() {
    let cut = &[(2_510_000, 4_010_000)];
    let mut events = history(cut);
    // A request in half a second is enough to be looked at.
    events.retain(|event| match event.what {
        EventKind::Sample { .. } => event.at_us % 500_000 == 0,
        _ => true,
    });
    insta::assert_snapshot!(lines(&page(&run(vec![(
        case("bpf-off", Expect::Healthy),
        events
    )]))));
}

#[test]
fn a_page_asks_for_nothing_beside_itself_and_has_no_script() {
    let page = page(&of_outcomes());
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
    for asks in [
        "<script", " src=", "@import", "<link", "http://", "https://",
    ] {
        assert!(!page.contains(asks), "{asks}");
    }
    let links: BTreeSet<&str> = between(&page, "href=\"", "\"").collect();
    assert!(links.iter().all(|link| link.starts_with('#')), "{links:?}");
    let urls: BTreeSet<&str> = between(&page, "url(", ")").collect();
    assert_eq!(urls, BTreeSet::from(["#hatch"]));
}

#[test]
fn every_link_leads_to_one_thing() {
    let page = page(&of_outcomes());
    let mut ids = BTreeSet::new();
    for id in between(&page, " id=\"", "\"") {
        assert!(ids.insert(id), "{id} is there twice");
    }
    let links: BTreeSet<&str> = between(&page, "href=\"#", "\"").collect();
    let nowhere: Vec<_> = links.difference(&ids).collect();
    assert!(nowhere.is_empty(), "{nowhere:?}");
    // The gaps of a case that is not as expected, and the commands that began and ended them.
    assert!(links.contains("c2-dead") && links.iter().any(|link| link.starts_with("c2-1")));
}

#[test]
fn the_cases_of_a_scenario_stand_under_each_other_in_the_order_of_the_plan() {
    let page = page(&of_outcomes());
    let cases: Vec<&str> = between(&page, "<article id=\"", "\"").collect();
    assert_eq!(cases, ["c0", "c1", "c2"]);
    assert_eq!(page.matches("<section id=\"s").count(), 1);
    // What was skipped is in the table alone, with the reason.
    assert!(
        page.contains("on-kind<small> kind: no Docker</small>"),
        "{page}"
    );
}

#[test]
fn no_colour_is_the_only_sign() {
    let page = page(&of_outcomes());
    for words in [
        "✗ not as expected",
        "✓ as expected",
        "– skipped",
        "NOT as expected",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains("dead 3.2 s"));
}

const FOREIGN: &str = "\u{1b}[31m</pre><script>alert(1)</script>\u{202e}\"'&\u{7}";

/// All that a history or a plan may have from somebody else.
fn foreign() -> (Case, Vec<Event>) {
    let case = Case {
        scenario: format!("s{FOREIGN}").as_str().into(),
        about: Arc::new(FOREIGN.to_owned()),
        incident: Arc::new(vec![FOREIGN.to_owned()]),
        file: Arc::new(FOREIGN.into()),
        ..case(FOREIGN, Expect::Healthy)
    };
    let mut events = history(&[(2_510_000, 4_010_000)]);
    let fact = EventKind::Fact {
        name: FOREIGN.to_owned(),
        value: FOREIGN.to_owned(),
    };
    let entry = EventKind::Log(LogEntry {
        agent: AgentName::KubeProxy,
        node: FOREIGN.into(),
        text: format!("E1121 06:30:05.0 1 a.go:1] {FOREIGN}"),
    });
    let text = FOREIGN.to_owned();
    let drops = EventKind::Drops(DropsSeen {
        node: FOREIGN.into(),
        front: FOREIGN.to_owned(),
        grown: vec![Dropped {
            owner: FOREIGN.to_owned(),
            table: FOREIGN.to_owned(),
            chain: FOREIGN.to_owned(),
            rule: FOREIGN.to_owned(),
            packets: 3,
            bytes: 120,
        }],
    });
    let restore = format!("*nat\n:KUBE-{FOREIGN} - -\n-A OUTPUT -j \"{FOREIGN}\"\nCOMMIT\n");
    let what = [fact, entry, EventKind::Step { text: text.clone() }, drops];
    events.extend(what.into_iter().map(|what| event(3_000_000, what)));
    events.push(command(
        FOREIGN,
        3_000_000,
        FOREIGN,
        &["iptables-restore", FOREIGN],
        &restore,
    ));
    events.push(command(
        "n1",
        3_100_000,
        "x",
        &["conntrack", "-D", FOREIGN],
        "",
    ));
    events.push(event(
        3_200_000,
        EventKind::UnknownRequest { text, times: None },
    ));
    (case, events)
}

#[test]
fn what_others_wrote_is_neither_markup_nor_hidden() {
    let mut run = Run::new(chainbreak_report::Header {
        tool: FOREIGN.to_owned(),
        host: IndexMap::from([(FOREIGN.to_owned(), FOREIGN.to_owned())]),
        ..header()
    });
    let (case, events) = foreign();
    let id = case.id();
    let mut add = |line| run.add(line, Path::new("")).unwrap();
    add(Line::Planned(Box::new(case)));
    for event in events {
        let case = id.clone();
        add(Line::Event { case, event });
    }
    add(Line::Artifact {
        case: id,
        path: FOREIGN.replace('/', ""),
    });
    add(Line::Skipped(Skipped {
        id: format!("x/{FOREIGN}"),
        reason: FOREIGN.to_owned(),
    }));
    let page = page(&run);
    assert!(
        page.contains("&lt;script&gt;alert(1)"),
        "it is shown as text"
    );
    assert!(!page.contains("<script") && !page.contains("[31m"));
    let hidden: Vec<char> = page
        .chars()
        .filter(|c| is_hidden(*c) && !"\n\t".contains(*c))
        .collect();
    assert!(hidden.is_empty(), "{hidden:?}");
    for tag in [
        "article", "section", "details", "table", "div", "pre", "svg", "a",
    ] {
        let (opened, closed) = (format!("<{tag}"), format!("</{tag}>"));
        let opened = between(&page, &opened, ">").filter(|it| it.is_empty() || it.starts_with(' '));
        assert_eq!(opened.count(), page.matches(&closed).count(), "{tag}");
    }
}

#[test]
fn a_long_history_is_folded() {
    let rounds: Vec<(u64, u64)> = (0..200)
        .map(|n| (1_100_000 + n * 60_000, 1_140_000 + n * 60_000))
        .collect();
    let mut events = history(&rounds);
    for n in 0..20_000 {
        let entry = LogEntry {
            agent: AgentName::Felix,
            node: "n1".into(),
            text: format!(
                "2026-11-21 06:30:00.000 [WARNING][53] felix/table.go 7: Entry number {n}"
            ),
        };
        events.push(event(1_000_000 + n * 500, EventKind::Log(entry)));
    }
    let page = page(&run(vec![(case("bpf-off", Expect::Healthy), events)]));
    assert!(page.len() < 250_000, "{} bytes", page.len());
    assert!(page.contains("left out"));
}

#[test]
fn of_a_run_of_thousands_of_cases_the_first_that_failed_have_sections() {
    let sections = |cases| {
        let page = page(&run(cases));
        let sections = between(&page, "<article id=\"", "\"");
        (sections.map(str::to_owned).collect::<Vec<_>>(), page)
    };
    let named = |name: &str, n| case(&format!("{name}-{n}"), Expect::Healthy);
    let fine = (0..500).map(|n| (named("fine", n), history(&[])));
    let failed = (named("failed", 0), history(ROUNDS));
    let (shown, page) = sections(fine.chain([failed]).collect());
    assert_eq!(shown, ["c500"]);
    assert!(page.contains("fine-499"), "all are in the table");
    let begun = || history(&[]).into_iter().take(1).collect();
    let killed = (0..501).map(|n| (named("killed", n), begun()));
    let (shown, page) = sections(killed.collect());
    assert_eq!((shown.len(), shown.last().unwrap().as_str()), (500, "c499"));
    assert!(page.contains("killed-500"));
}

#[test]
fn that_others_are_behind_a_case_stands_below_its_verdict() {
    let page = page(&by_another("docker"));
    assert_eq!(page.matches(DOCKER).count(), 1, "{page}");
    assert_eq!(page.matches('⚠').count(), 2, "and in the table");
}
