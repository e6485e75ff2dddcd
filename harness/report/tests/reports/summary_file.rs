//! The file of a run that scripts read.

use std::path::Path;

use crate::{
    history::{ROUNDS, all_broken, case, history, run, summary},
    terminal::of_outcomes,
};
use chainbreak_model::{case::Expect, judge, verdict::CaseVerdict};
use chainbreak_report::{Ended, Line, Run};
use serde_json::{Value, json};

fn read(run: &Run) -> Value {
    serde_json::from_str(&summary(run)).unwrap()
}

/// A document is what scripts were written for: a member that goes, or means something else, takes another format.
#[test]
fn a_healthy_case_is_this_document() {
    let mut run = run(vec![(
        case("cleanup-disabled", Expect::Healthy),
        history(&[]),
    )]);
    let case = run.cases.keys().next().unwrap().clone();
    for line in [
        Line::Artifact {
            case,
            path: "cleanup-disabled/n1.nft".to_owned(),
        },
        Line::Finished("2026-11-21T06:30:20Z".parse().unwrap()),
        Line::Ended(Ended::Complete),
    ] {
        run.add(line, Path::new("")).unwrap();
    }
    assert_eq!(read(&run), healthy());
}

fn healthy() -> Value {
    let promise = |name: &str, headline: &str| {
        json!({
            "name": name,
            "when": null,
            "expected": "kept",
            "state": "kept",
            "as-expected": true,
            "by": [],
            "just-before": [],
            "rules-of": [],
            "expected-by": null,
            "headline": headline,
            "judged-us": 14_000_000,
        })
    };
    json!({
        "format": 2,
        "tool": "chainbreak 0.1.0",
        "seed": 7,
        "started": "2026-11-21T06:30:00Z",
        "finished": "2026-11-21T06:30:20Z",
        "took-us": 20_000_000,
        "ended": "complete",
        "host": { "hostname": "build-7", "kernel": "6.18.0" },
        "cases": [{
            "case": "calico-bpf-cleanup-fights-kube-proxy/cleanup-disabled[iptables=legacy]",
            "scenario": "calico-bpf-cleanup-fights-kube-proxy",
            "variant": "cleanup-disabled",
            "matrix": { "iptables": "legacy" },
            "repetition": null,
            "file": "scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml",
            "line": 42,
            "outcome": "as-expected",
            "expected": "healthy",
            "got": "healthy",
            "headline": null,
            "promises": [
                promise("answers", "answers kept: 100.00 % answered (700 of 700)"),
                promise("no-restore-errors", "no-restore-errors kept: no entry of kube-proxy's log matches"),
                promise("jump-stays", "jump-stays kept: nat PREROUTING → KUBE-SERVICES was there on every node"),
            ],
            "requests": {
                "traffic": "shop",
                "sent": 700,
                "answered": 700,
                "outcomes": { "answered": 700 },
                "gaps": 0,
                "longest-gap-us": 0,
            },
            "judged-us": 14_000_000,
            "took-us": 15_400_000,
            "kept": ["cleanup-disabled/n1.nft"],
        }],
        "counts": { "as-expected": 1, "not-as-expected": 0, "inconclusive": 0, "skipped": 0, "not-begun": 0 },
        "exit-code": 0,
        "rates": [],
    })
}

#[test]
fn every_outcome_is_told_with_its_promises_and_counted() {
    let summary = read(&of_outcomes());
    let cases = summary["cases"].as_array().unwrap();
    let outcomes: Vec<&str> = cases
        .iter()
        .map(|it| it["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(
        outcomes,
        [
            "as-expected",
            "as-expected",
            "not-as-expected",
            "not-as-expected",
            "skipped"
        ]
    );
    assert_eq!(
        summary["counts"],
        json!({ "as-expected": 2, "not-as-expected": 2, "inconclusive": 0, "skipped": 1, "not-begun": 0 })
    );
    assert_eq!(summary["exit-code"], 10);
    let outage = &cases[2];
    let headline = "services dead on n2 for 3.2 s from 4.82 s: jump PREROUTING → KUBE-SERVICES deleted by felix \
                    (iptables-legacy-restore)";
    assert_eq!(outage["headline"], headline);
    assert_eq!(
        outage["requests"],
        json!({
            "traffic": "shop",
            "sent": 700,
            "answered": 302,
            "outcomes": { "answered": 302, "timed out": 398 },
            "gaps": 5,
            "longest-gap-us": 3_200_000,
        })
    );
    let answers = &outage["promises"][0];
    assert_eq!(answers["expected"], "kept");
    assert_eq!(answers["state"], "broken");
    assert_eq!(answers["as-expected"], false);
    assert_eq!(answers["headline"], headline);
    let skipped = &cases[4];
    assert_eq!(
        skipped["reason"],
        "no bpf-service-nat: the models have no eBPF programs"
    );
    assert_eq!(skipped["variant"], "kube-proxy-removed");
    assert_eq!(skipped["matrix"], json!({}));
    assert_eq!(skipped["promises"], json!([]));
    assert_eq!(skipped["headline"], Value::Null);
    assert_eq!(skipped["expected"], Value::Null);
}

#[test]
fn how_often_a_repeated_case_came_out_is_told_with_what_it_may_truly_be() {
    let reproduces = case("default-cleanup", all_broken());
    let cases = [1, 2].map(|nth| reproduces.repetition(nth));
    let cases = cases.into_iter().map(|case| {
        let first = case.repetition == Some(1);
        let events = if first { history(ROUNDS) } else { history(&[]) };
        (case, events)
    });
    let summary = read(&run(cases.collect()));
    assert_eq!(summary["cases"][1]["repetition"], 2);
    let rate = &summary["rates"][0];
    let id = "calico-bpf-cleanup-fights-kube-proxy/default-cleanup[iptables=legacy]";
    assert_eq!(rate["case"], id);
    assert_eq!(rate["as-expected"], 1);
    assert_eq!(rate["judged"], 2);
    assert_eq!(rate["inconclusive"], 0);
    // One of two is anything between 9 and 91 %.
    let percent = |end: usize| 100.0 * rate["interval"][end].as_f64().unwrap();
    let interval = [0, 1].map(|end| format!("{:.0}", percent(end)));
    assert_eq!(interval, ["9", "91"]);
}

#[test]
fn a_run_that_was_killed_has_no_end_and_its_cases_are_inconclusive() {
    let begun = history(&[]).into_iter().take(5).collect();
    let summary = read(&run(vec![(case("v", Expect::Healthy), begun)]));
    for nothing in ["finished", "took-us", "ended"] {
        assert_eq!(summary[nothing], Value::Null, "{nothing}");
    }
    assert_eq!(summary["exit-code"], 11);
    let case = &summary["cases"][0];
    assert_eq!(case["outcome"], "inconclusive");
    assert_eq!(case["judged-us"], Value::Null);
}

#[test]
fn a_verdict_that_is_not_what_it_was_when_the_case_ran_is_told() {
    let healthy = case("cleanup-disabled", Expect::Healthy);
    let events = history(&[]);
    let mut verdict = judge(&healthy, events.iter());
    verdict.case = CaseVerdict::NotAsExpected;
    let mut run = run(vec![(healthy.clone(), events)]);
    let judged = Line::Judged {
        case: healthy.id(),
        verdict: Box::new(verdict),
    };
    run.add(judged, Path::new("")).unwrap();
    assert_eq!(read(&run)["cases"][0]["judged-before"], "not-as-expected");
}

/// So that a line-wise tool finds a case, and a difference of two files says which.
#[test]
fn each_case_is_a_line_of_the_file() {
    let run = of_outcomes();
    let text = summary(&run);
    let lines = text.lines().filter(|line| line.starts_with("{\"case\":"));
    assert_eq!(lines.count(), 5);
    assert!(text.ends_with("\n}\n"), "{text}");
}
