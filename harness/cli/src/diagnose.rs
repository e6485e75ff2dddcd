//! `chainbreak diagnose`: what is wrong with a node, or with each of several, by what people attach of them.

mod nodes;
mod recorded;
mod told;
mod written;

use std::{path::Path, process::ExitCode};

use chainbreak_diagnose::{Evidence, Examined, Observed, Writer, examine, writers};
use chainbreak_model::scenario::Scenario;

use self::told::{Found, Like, Told};
use crate::{
    args,
    attached::{Attached, DIAGNOSED},
    cases,
    live_node::LiveNode,
};

/// What is known and found of a node.
struct Diagnosis {
    writers: Vec<Writer>,
    examined: Examined,
    like: Vec<Like>,
    missing: Vec<String>,
}

impl Diagnosis {
    fn of(evidence: &Evidence, observed: Observed, scenarios: &[Scenario]) -> Self {
        let examined = examine(evidence);
        Self {
            writers: writers(evidence),
            like: Like::of(evidence, &examined.findings, observed, scenarios),
            examined,
            missing: told::missing(evidence),
        }
    }

    fn told<'a>(&'a self, scenarios: &[Scenario]) -> Told<'a> {
        let findings = self.examined.findings.iter();
        Told {
            node: None,
            writers: &self.writers,
            findings: findings
                .map(|finding| Found::of(finding, scenarios))
                .collect(),
            complaints: &self.examined.complaints,
            like: &self.like,
            missing: &self.missing,
        }
    }
}

/// `chainbreak diagnose`.
pub(crate) fn diagnose(args: &args::Diagnose) -> anyhow::Result<ExitCode> {
    if let Some(kubeconfig) = &args.kubeconfig {
        let live = LiveNode::of(kubeconfig, args.node.as_deref())?;
        return one(args, &nodes::live(live)?, Some(live.node));
    }
    if let [only] = args.what.as_slice()
        && is_run(only)
    {
        return one(args, &recorded::evidence(args, only)?, None);
    }
    if args.case.is_some() || args.at.is_some() {
        return Err(cases::invalid(
            "--case and --at are of a recorded run, which is named alone",
        ));
    }
    let attached = Attached::read(&args.what, args.node.as_deref(), &DIAGNOSED)?;
    match *attached.chosen()?.as_slice() {
        [] => one(args, &nodes::evidence(args, &attached, None)?, None),
        [only] => one(
            args,
            &nodes::evidence(args, &attached, Some(only))?,
            Some(only),
        ),
        ref several => nodes::all(args, &attached, several),
    }
}

/// Of one node, by its name where that is known.
fn one(args: &args::Diagnose, evidence: &Evidence, node: Option<&str>) -> anyhow::Result<ExitCode> {
    let scenarios = scenarios(args)?;
    let diagnosis = Diagnosis::of(evidence, args.observed(), &scenarios);
    let told = Told {
        node,
        ..diagnosis.told(&scenarios)
    };
    let name = node.map(|node| format!("Node {node}\n\n"));
    told::say(args.format, &told, || {
        name.unwrap_or_default() + &told.human()
    })?;
    if let Some(file) = &args.write {
        written::write(file, evidence, &diagnosis.examined.findings)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn scenarios(args: &args::Diagnose) -> anyhow::Result<Vec<Scenario>> {
    let path = args.catalogue();
    if path.is_none() && (args.seen.is_some() || args.from.is_some()) {
        return Err(cases::invalid(
            "--seen and --from choose among scenarios, and none are here: --scenarios PATH",
        ));
    }
    path.map_or_else(|| Ok(Vec::new()), |path| cases::all_under(&path))
}

fn is_run(path: &Path) -> bool {
    path.join("run.jsonl").is_file() || path.file_name().is_some_and(|it| it == "run.jsonl")
}
