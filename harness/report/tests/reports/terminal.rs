//! What a person reads at the end of a run.

use std::path::Path;

use crate::history::{ROUNDS, all_broken, case, junit, printed, run, summaries};
use chainbreak_model::{
    case::Expect,
    event::{Event, EventKind},
    judge,
    verdict::{CaseVerdict, Verdict},
};
use chainbreak_report::{
    Ended, Line, Run, Skipped,
    summary::Summary,
    term::{self, Colour, Terminal},
};

/// A case of every outcome but that of a world that failed.
pub(crate) fn of_outcomes() -> Run {
    let mut run = run(vec![
        (
            case("default-cleanup", all_broken()),
            crate::history::history(ROUNDS),
        ),
        (
            case("cleanup-disabled", Expect::Healthy),
            crate::history::history(&[]),
        ),
        (
            case("bpf-off", Expect::Healthy),
            crate::history::history(ROUNDS),
        ),
        (
            case("not-reproduced", all_broken()),
            crate::history::history(&[]),
        ),
    ]);
    let reason = "no bpf-service-nat: the models have no eBPF programs".to_owned();
    let id = "calico-bpf-cleanup-fights-kube-proxy/kube-proxy-removed".to_owned();
    run.add(Line::Skipped(Skipped { id, reason }), Path::new(""))
        .unwrap();
    run.add(Line::Ended(Ended::Complete), Path::new(""))
        .unwrap();
    run
}

fn shown() -> Vec<Summary> {
    summaries(&of_outcomes())
}

pub(crate) const PLAIN: Terminal = Terminal {
    width: 160,
    colour: Colour::Off,
};

#[test]
fn the_end_of_a_run_says_what_where_when_and_because_of_whom() {
    let reports = ["reports/out/latest/junit.xml".to_owned()];
    insta::assert_snapshot!(printed(&shown(), &reports, PLAIN));
}

#[test]
fn the_first_line_of_a_case_not_as_expected_names_the_culprit() {
    let summaries = shown();
    let told = term::detail(&summaries[2], PLAIN).unwrap();
    assert_eq!(
        told.lines().next().unwrap(),
        "✗ services dead on n2 for 3.2 s from 4.82 s: jump PREROUTING → KUBE-SERVICES deleted by felix \
         (iptables-legacy-restore)"
    );
    assert!(
        told.contains("healed by a full sync of kube-proxy at 8.010"),
        "{told}"
    );
}

#[test]
fn a_verdict_that_is_not_what_it_was_when_the_case_ran_is_told() {
    let healthy = case("cleanup-disabled", Expect::Healthy);
    let (id, history) = (healthy.id(), crate::history::history(&[]));
    let mut verdict = judge(&healthy, history.iter());
    let told_of = |verdict: &Verdict| {
        let mut run = run(vec![(healthy.clone(), history.clone())]);
        let judged = Line::Judged {
            case: id.clone(),
            verdict: Box::new(verdict.clone()),
        };
        run.add(judged, Path::new("")).unwrap();
        (printed(&summaries(&run), &[], PLAIN), junit(&run))
    };
    let (printed, junit) = told_of(&verdict);
    assert!(!printed.contains("when it ran"), "{printed}");
    assert!(!junit.contains("judged-before"), "{junit}");
    verdict.case = CaseVerdict::NotAsExpected;
    let (printed, junit) = told_of(&verdict);
    let line = "    when it ran it was judged not as expected: its history is the same, what judges it is not\n";
    assert!(printed.contains(line), "{printed}");
    let property = "<property name=\"judged-before\" value=\"not as expected\"/>";
    assert!(junit.contains(property), "{junit}");
}

#[test]
fn no_escape_goes_where_colour_was_not_asked_for_and_no_line_is_wider_than_told() {
    let narrow = Terminal {
        width: 60,
        colour: Colour::Off,
    };
    let text = printed(&shown(), &[], narrow);
    assert!(!text.contains('\u{1b}'));
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert_eq!(widest, 60);
    let coloured = printed(
        &shown(),
        &[],
        Terminal {
            colour: Colour::On,
            ..narrow
        },
    );
    assert_eq!(chainbreak_report::text::clean(&coloured), text);
}

fn fact(name: &str, value: &str) -> Event {
    let (name, value) = (name.to_owned(), value.to_owned());
    crate::history::event(0, EventKind::Fact { name, value })
}

fn unknown(text: &str, times: Option<u64>) -> Event {
    let text = text.to_owned();
    crate::history::event(1, EventKind::UnknownRequest { text, times })
}

/// Two cases with a real agent each, and the other agent's model in both.
fn with_real_agents() -> Vec<Summary> {
    let hash = "0123456789abcdef".repeat(4);
    let of = |version: &str| {
        let mut case = case("v", Expect::Healthy);
        let versions = [("kube-proxy", version), ("calico", "v3.28.1")];
        for (key, value) in versions {
            case.cell.insert(key.to_owned(), value.to_owned());
        }
        let mut events = vec![
            fact("felix", "model v3.28.1 (no binary given)"),
            fact(
                "kube-proxy",
                &format!("v{version} (real: /opt/{version}, sha256 {hash})"),
            ),
            fact("kube-proxy.iptables", "iptables v1.8.7 (legacy)"),
            unknown("GET /apis/a/v1 by kube-proxy/v1 on n1", None),
            unknown(
                &format!("GET /apis/b/v1 by kube-proxy/v{version} on n1"),
                None,
            ),
        ];
        let modelled = |event: &Event| matches!(event.what, EventKind::Fact { .. });
        let history = crate::history::history(&[]);
        events.extend(history.into_iter().filter(|event| !modelled(event)));
        events.push(unknown("GET /apis/a/v1 by kube-proxy/v1 on n1", Some(3)));
        (case, events)
    };
    let mut run = run(vec![of("1.20.2"), of("1.30.5")]);
    let own = "calico-bpf-cleanup-fights-kube-proxy/z";
    for (id, reason) in [("s/a", "no nft"), (own, "no nginx"), ("s/c", "no nft")] {
        let (id, reason) = (id.to_owned(), reason.to_owned());
        run.add(Line::Skipped(Skipped { id, reason }), Path::new(""))
            .unwrap();
    }
    run.add(Line::Ended(Ended::Complete), Path::new(""))
        .unwrap();
    summaries(&run)
}

#[test]
fn who_played_the_agents_stands_above_the_table_and_unknown_requests_below() {
    insta::assert_snapshot!(printed(&with_real_agents(), &[], PLAIN));
}

#[test]
fn a_request_that_came_again_is_one_however_the_history_tells_how_often() {
    let told = |events: &[(&str, Option<u64>)]| {
        let events = events.iter().map(|(text, times)| unknown(text, *times));
        let of = (case("v", Expect::Healthy), events.collect());
        let unknown = &summaries(&run(vec![of]))[0].unknown;
        let told: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        told.join("; ")
    };
    let first = ("GET /a", None);
    assert_eq!(told(&[first, ("GET /a", Some(3))]), "GET /a, 3 times");
    assert_eq!(told(&[first, ("GET /a, 3 times", None)]), "GET /a, 3 times");
    let other = told(&[first, ("GET /a, b", None)]);
    assert_eq!(other, "GET /a; GET /a, b");
}

#[test]
fn a_table_that_is_too_wide_keeps_its_verdicts_and_cuts_names_within() {
    let narrow = Terminal {
        width: 100,
        colour: Colour::Off,
    };
    let table: String = term::table(&with_real_agents(), narrow).collect();
    let rows: Vec<&str> = table.lines().filter(|row| row.contains('✓')).collect();
    assert_eq!(rows.len(), 2);
    for (row, version) in rows.iter().zip(["1.20.2", "1.30.5"]) {
        assert!(row.starts_with("  ✓ as expected  "), "{row}");
        assert!(row.contains('…') && row.contains(version), "{row}");
        assert!(row.chars().count() <= 100, "{row}");
    }
}

#[test]
fn a_narrow_table_has_fewer_columns_and_no_figure_that_is_cut() {
    let columns = |width| {
        let colour = Colour::Off;
        let table: Vec<String> = term::table(&shown(), Terminal { width, colour }).collect();
        let cut = table.iter().filter(|row| row.trim_end().ends_with('…'));
        assert_eq!(cut.count(), 0, "{table:?}");
        let head = table[0].split("  ").map(str::trim);
        let head: Vec<&str> = head.filter(|cell| !cell.is_empty()).collect();
        head.join(", ")
    };
    let all = "verdict, case, expected, got, judged, longest gap, answered";
    assert_eq!(columns(160), all);
    assert_eq!(columns(80), "verdict, case, expected, got, longest gap");
    assert_eq!(columns(60), "verdict, case, got");
}

#[test]
fn long_words_of_one_case_take_no_column_from_the_others() {
    let mut cases = shown();
    cases[0].got = "3 broken, 1 unknown by felix and kube-proxy, after a while".to_owned();
    let terminal = Terminal {
        width: 140,
        colour: Colour::Off,
    };
    let table: Vec<String> = term::table(&cases, terminal).collect();
    assert!(
        table[0].contains("judged") && table[0].ends_with("answered\n"),
        "{table:?}"
    );
}

#[test]
fn trouble_is_one_clear_line_with_its_evidence_below() {
    let text = "could not keep kube-proxy on n1 running: it ended with exit status: 1\n\nits last lines:\n  F1121 \u{1b}[1munknown flag\n";
    let trouble = |text: &str| EventKind::Trouble {
        text: text.to_owned(),
    };
    let events = vec![
        crate::history::event(0, trouble(text)),
        crate::history::event(9, trouble("left behind: veth1")),
    ];
    let summaries = summaries(&run(vec![(case("v", Expect::Healthy), events)]));
    let told = term::detail(&summaries[0], PLAIN).unwrap();
    let lines: Vec<&str> = told.lines().take(5).collect();
    assert_eq!(
        lines,
        [
            "? could not keep kube-proxy on n1 running: it ended with exit status: 1",
            "    its last lines:",
            "      F1121 unknown flag",
            "    left behind: veth1",
            "  calico-bpf-cleanup-fights-kube-proxy/v[iptables=legacy]: expected healthy, got 3 unknown"
        ]
    );
    let story = term::story(&summaries[0]).join("\n");
    assert!(
        story.contains("it ended with exit status: 1") && !story.contains("F1121"),
        "{story}"
    );
}

#[test]
fn losses_here_and_there_are_told_by_their_number_and_not_as_an_outage() {
    let mut events = crate::history::history(&[]);
    let mut number = 0;
    for event in &mut events {
        if let EventKind::Sample { .. } = event.what {
            number += 1;
            *event = crate::history::sample(event.at_us, number % 3 != 0);
        }
    }
    let summaries = summaries(&run(vec![(case("v", Expect::Healthy), events)]));
    assert_eq!(
        summaries[0].headline().as_deref(),
        Some("services lost 233 of 700 requests on n2, one here, one there: 233 timed out")
    );
}
