//! Which incident a node is like: of each that the catalogue has, by what was recorded of its nodes.

use std::{
    env,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use chainbreak_diagnose::{Fate, Whose, seen};
use chainbreak_model::{
    case::{Claim, Expect},
    event::{Event, EventKind, Phase},
    names::NodeName,
    verdict::{CaseVerdict, Evidence, PromiseVerdict},
};
use chainbreak_report::{Recorded, Run, attribution};
use serde_json::Value;

use crate::ground::Ground;

/// Of a hundred incidents at least so many are to be named first, by what was recorded of the nodes alone: the others leave nothing but settings.
const BY_NODES: usize = 52;
/// And so many where somebody says what becomes of whose requests.
const WITH_REQUESTS: usize = 95;
/// Rules' counters are read as often.
const COUNTED_EVERY_US: u64 = 3_300_000;
/// What it may take an agent to write a rule again.
const WRITING_US: u64 = 200_000;

/// `CHAINBREAK_RUN` is a run of the catalogue; without it the catalogue is played, with `CHAINBREAK_MATRIX` as `--matrix`. What somebody sees
/// of requests is what the scenario's promise says that broke.
#[test]
#[ignore = "plays the catalogue: make test-likeness"]
fn a_node_is_like_the_incident_that_was_recorded() {
    let ground = Ground::new();
    let out = env::var_os("CHAINBREAK_RUN").map_or_else(|| played(&ground), PathBuf::from);
    let file = File::open(out.join("run.jsonl")).unwrap();
    let run = Run::read(BufReader::new(file), &out).unwrap();
    let incidents = run.cases.iter().filter(|(_, it)| is_incident(it));
    let (mut all, mut right) = (0, [0, 0]);
    for (id, recorded) in incidents {
        all += 1;
        let own = recorded.case.scenario.as_str();
        for (told, right) in [Vec::new(), told(recorded)].iter().zip(&mut right) {
            let first = likest(&ground, &out, (id, recorded), told);
            if first.iter().any(|it| it == own) {
                *right += 1;
            } else {
                println!("{id} {}: {}", told.join(" "), first.join(", "));
            }
        }
    }
    let [by_nodes, with_requests] = right;
    println!(
        "of {all} incidents {by_nodes} are named first by their nodes, {with_requests} with what becomes of requests"
    );
    assert!(100 * by_nodes >= BY_NODES * all && 100 * with_requests >= WITH_REQUESTS * all);
    assert_ne!(all, 0);
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn played(ground: &Ground) -> PathBuf {
    let scenarios = scenarios();
    let matrix = env::var("CHAINBREAK_MATRIX").ok();
    let matrix = matrix.iter().flat_map(|it| ["--matrix", it]);
    let args = [
        "run",
        scenarios.to_str().unwrap(),
        "--out",
        "out",
        "--quiet",
    ];
    let args: Vec<&str> = args.into_iter().chain(matrix).collect();
    // What did not come out as expected is no incident.
    let _whatever = ground.chainbreak(&args);
    ground.path().join("out/latest")
}

/// Whether it came about.
fn is_incident(recorded: &Recorded) -> bool {
    let verdict = recorded.verdict.as_ref();
    matches!(recorded.case.expect, Expect::Broken(_))
        && verdict.is_some_and(|it| it.case == CaseVerdict::AsExpected)
}

/// The scenarios that are named first, those of one incident: of the node where the requests begin of which somebody tells; else of the one of
/// which the most speaks for it.
fn likest(
    ground: &Ground,
    run: &Path,
    (id, recorded): (&str, &Recorded),
    told: &[&str],
) -> Vec<String> {
    let at = format!("{}us", moment(recorded));
    let scenarios = scenarios();
    let named = |node: NodeName| {
        let args = ["diagnose", run.to_str().unwrap(), "--case", id, "--at", &at];
        let what = ["--node", node.as_str(), "--format", "json"];
        let among = ["--scenarios", scenarios.to_str().unwrap()];
        let diagnosed = ground.chainbreak(&[&args[..], &what, &among, told].concat());
        let diagnosed: Value = serde_json::from_slice(&diagnosed.stdout).unwrap();
        let first = &diagnosed["like"][0];
        let names = first["scenarios"].as_array()?.iter();
        let names: Vec<String> = names
            .filter_map(|it| Some(it.as_str()?.to_owned()))
            .collect();
        (first["likely"] == true).then(|| (first["weight"].as_u64(), names))
    };
    let own = told.first().and_then(|_| begin(recorded)).and_then(named);
    let first = own.or_else(|| {
        let mut all: Vec<_> = recorded
            .case
            .cluster
            .node_names()
            .filter_map(named)
            .collect();
        // Of several nodes with as much the first one.
        all.reverse();
        all.into_iter().max_by_key(|(weight, _)| *weight)
    });
    first.map(|(_, names)| names).unwrap_or_default()
}

/// The node where the requests begin that are lost: the client's, or the one that is asked from outside.
fn begin(recorded: &Recorded) -> Option<NodeName> {
    let traffic = &recorded.case.traffic;
    let (claim, _) = broken(recorded).find(|(claim, _)| seen(claim, traffic).is_some())?;
    attribution::node_of(&recorded.case, &traffic[claim.traffic()?])
}

/// When requests were last lost and rules' counters read after that, where requests are what breaks; else when a rule was last missing; else
/// the end of what is judged.
fn moment(recorded: &Recorded) -> u64 {
    let events = recorded.history.events().unwrap();
    let is_lost = broken(recorded)
        .any(|(claim, _)| matches!(claim, Claim::Available { .. } | Claim::Recovers { .. }));
    if let (false, Some(missing)) = (is_lost, last_missing(recorded)) {
        return missing;
    }
    let is_end = |event: &&Event| match &event.what {
        EventKind::Sample { sample, .. } => is_lost && !sample.outcome.is_answered(),
        EventKind::Phase(phase) => !is_lost && *phase == Phase::Judged,
        _ => false,
    };
    let end = events.iter().rev().find(is_end).expect("it was judged");
    let counted = events.iter().find(|event| {
        let is_next = event.at_us > end.at_us && event.at_us < end.at_us + COUNTED_EVERY_US;
        is_lost && is_next && matches!(event.what, EventKind::Drops(_))
    });
    counted.unwrap_or(end).at_us
}

/// Shortly before the end of the last time in which a rule was not there that was to be there: at its end somebody is writing it.
fn last_missing(recorded: &Recorded) -> Option<u64> {
    let rules = broken(recorded).filter_map(|(_, evidence)| match evidence {
        Evidence::Rule(presence) if !presence.forbidden => Some(presence),
        _ => None,
    });
    let spans = rules.flat_map(|it| it.wrong.values().flatten());
    let last = spans.max_by_key(|it| it.to_us)?;
    Some(last.from_us.max(last.to_us.saturating_sub(WRITING_US)))
}

/// What does not hold, and what was seen of it.
fn broken(recorded: &Recorded) -> impl Iterator<Item = (&Claim, &Evidence)> {
    let verdict = recorded.verdict.as_ref().expect("it was judged");
    verdict
        .promises
        .iter()
        .filter_map(|(name, it)| match &it.verdict {
            PromiseVerdict::Broken(evidence) => {
                Some((&recorded.case.promises[name].claim, evidence))
            }
            _ => None,
        })
}

/// What somebody would say of requests.
fn told(recorded: &Recorded) -> Vec<&'static str> {
    let seen = broken(recorded).find_map(|(claim, _)| seen(claim, &recorded.case.traffic));
    let Some((fate, whose)) = seen else {
        return Vec::new();
    };
    let fate = Fate::ALL.iter().find(|it| it.1 == fate).unwrap().0;
    let whose = Whose::ALL.iter().find(|it| it.1 == whose).unwrap().0;
    vec!["--seen", fate, "--from", whose]
}
