//! How much memory a run takes. It is measured in a process of its own: other tests take some, too.

use std::{fs, path::Path, process::Command};

use chainbreak_model::{
    case::Capabilities,
    event::{Event, EventKind, Phase},
    load,
    matrix::MatrixKey,
    plan,
    plan::{Choice, Planned, Skipped},
    scenario_files,
};
use chainbreak_report::{Ended, FORMAT, Header, History};
use jiff::Timestamp;

use super::Record;
use crate::{live::Live, reports};

/// Twenty times the shipped catalogue.
const CASES: usize = 10_000;
/// What a case of the catalogue has at least.
const EVENTS: usize = 100;
/// What the first ones have: more than the bound, were they in memory while they run.
const MANY_EVENTS: usize = 16_000;
/// How many run side by side.
const JOBS: usize = 14;

#[test]
fn a_run_of_ten_thousand_cases_takes_less_than_64_mebibytes() {
    let name = "record::tests::ten_thousand_cases";
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let said = String::from_utf8(ran.stdout).unwrap();
    let peak = said
        .lines()
        .find_map(|line| line.strip_prefix("peak KiB: "));
    let peak: u64 = peak.expect("it was measured").parse().unwrap();
    // With the program itself, of which a release maps some 10 MiB.
    assert!(peak < 46 * 1024, "{peak} KiB");
}

#[tokio::test]
async fn a_run_whose_disk_is_full_as_a_case_begins_can_be_reported() {
    let folder = tempfile::tempdir().unwrap();
    let planned = planned().into_iter().take(1).collect();
    let record = Record::begin(folder.path(), header(), false);
    let record = record.await.unwrap();
    let cases = record.plan(planned).await.unwrap();
    let (number, case) = &cases[0];
    // No folder can be made in the place of a file.
    fs::write(folder.path().join(reports::folder_name(&case.id())), "").unwrap();
    let begun = record.case(*number, case, &Live::new(None)).await.unwrap();
    begun.end(Vec::new()).await.unwrap();
    let recorded = record.end(Ended::Complete).await.unwrap();
    assert!(recorded.unwritten.unwrap().starts_with("could not make "));
    let (run, _) = reports::read(folder.path()).unwrap();
    assert_eq!(run.cases[0].history, History::default());
}

#[tokio::test]
#[ignore = "its test runs it in a process of its own"]
async fn ten_thousand_cases() {
    let folder = tempfile::tempdir().unwrap();
    let record = Record::begin(folder.path(), header(), false).await.unwrap();
    let live = Live::new(None);
    let cases = record.plan(planned()).await.unwrap();
    for jobs in cases.chunks(JOBS) {
        let mut running = Vec::new();
        for (number, case) in jobs {
            running.push(record.case(*number, case, &live).await.unwrap());
        }
        let first = jobs.first().is_some_and(|(number, _)| *number == 0);
        for number in 0..if first { MANY_EVENTS } else { EVENTS } {
            for case in &mut running {
                case.history.event(&event(number)).await.unwrap();
            }
        }
        for case in running {
            case.end(Vec::new()).await.unwrap();
        }
    }
    let recorded = record.end(Ended::Complete).await.unwrap();
    assert_eq!(recorded.unwritten, None);
    let overview = reports::write(&recorded.run, folder.path(), false).unwrap();
    assert_eq!(overview.cases().len(), CASES);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| -> u64 {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        let value = value.unwrap().trim().trim_end_matches(" kB");
        value.parse().unwrap()
    };
    // What is mapped of the program's own file is no less in a run of one case, and depends on how it is compiled.
    println!("\npeak KiB: {}", kib("VmHWM:") - kib("RssFile:"));
}

fn header() -> Header {
    Header {
        format: FORMAT,
        tool: "chainbreak".to_owned(),
        seed: 0,
        started: Timestamp::UNIX_EPOCH,
        host: indexmap::IndexMap::new(),
    }
}

/// The shipped catalogue with many releases of kube-proxy.
fn planned() -> Vec<Planned> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = scenario_files(&folder).unwrap();
    let scenarios: Vec<_> = files.iter().map(|file| load(file).unwrap()).collect();
    // Everything that anything needs is there.
    let nothing = (Choice::default(), Capabilities::default());
    let needed = scenarios
        .iter()
        .flat_map(|it| plan(it, &nothing.0, &nothing.1))
        .filter_map(skipped)
        .flat_map(|skipped| skipped.missing)
        .map(|missing| (missing.capability, Ok(())));
    let able = Capabilities(needed.collect());
    let releases = (0..40).map(|patch| format!("1.30.{patch}")).collect();
    let values = |values: &[&str]| values.iter().map(ToString::to_string).collect();
    let choice = Choice {
        matrix: [
            (MatrixKey::KubeProxy, releases),
            (MatrixKey::Iptables, values(&["legacy", "nft"])),
            (MatrixKey::IpFamily, values(&["IPv4", "dual"])),
        ]
        .into(),
        ..Choice::default()
    };
    // No more than are taken: what else the catalogue has is not what is measured.
    let plans = scenarios.iter().flat_map(|it| plan(it, &choice, &able));
    let runs = plans.filter(|planned| matches!(planned, Planned::Run(_)));
    runs.take(CASES).collect()
}

fn skipped(planned: Planned) -> Option<Skipped> {
    match planned {
        Planned::Skip(skipped) => Some(skipped),
        Planned::Run(_) => None,
    }
}

fn event(number: usize) -> Event {
    let what = match number {
        0 => EventKind::Phase(Phase::Raising),
        1 => EventKind::Phase(Phase::Ready),
        2 => EventKind::Phase(Phase::Judging),
        97 => EventKind::Phase(Phase::Judged),
        98 => EventKind::Phase(Phase::Destroyed),
        _ => EventKind::Step {
            text: format!("something happened for the {number}th time, and is told in some words"),
        },
    };
    let at_us = 10_000 * number as u64;
    Event { at_us, what }
}
