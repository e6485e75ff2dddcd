//! What is wrong with each of several nodes.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Display, path::Path, process::ExitCode};

use anyhow::Result;
use chainbreak_diagnose::{Evidence, Weight};
use chainbreak_report::text::wrap;
use serde::Serialize;

use super::{
    Diagnosis, scenarios,
    told::{self, Told},
};
use crate::{
    args,
    attached::{self, Attached},
    cases::invalid,
    live_node::LiveNode,
};

/// More nodes are not diagnosed at once: with each its cluster's objects are looked through.
const MOST: usize = 1_000;
/// So many are named of which nothing is found.
const HEALTHY: usize = 5;

/// All that is said.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Nodes<'a> {
    nodes: Vec<Told<'a>>,
}

/// What is known of that node, or of the only one.
pub(super) fn evidence(
    args: &args::Diagnose,
    attached: &Attached,
    node: Option<&str>,
) -> Result<Evidence> {
    let mut evidence = Evidence::default();
    let mut known = 0;
    if node.is_some() {
        known += attached.take_of_all(false, &mut |_, text| Ok(evidence.add_objects(text)))?;
    }
    known += add(&mut evidence, attached, node)?;
    attached.end();
    is_known(args, known)?;
    Ok(evidence)
}

/// What is known of a node of a running cluster.
pub(super) fn live(node: LiveNode<'_>) -> Result<Evidence> {
    let mut evidence = Evidence::default();
    let whose = format!("what {} lists", node.node);
    for text in node.texts()? {
        add_text(&mut evidence, &whose, &text);
    }
    Ok(evidence)
}

/// Diagnoses these nodes, each with what is of the cluster.
pub(super) fn all(args: &args::Diagnose, attached: &Attached, nodes: &[&str]) -> Result<ExitCode> {
    if args.write.is_some() {
        let nodes = attached::first_of(&nodes.iter().copied().collect(), attached::NODES);
        return Err(invalid(format!(
            "a scenario is of one node, and attached are {nodes}: --node NODE"
        )));
    }
    if nodes.len() > MOST {
        return Err(invalid(format!(
            "{} nodes are attached, more than {MOST}: --node NODE",
            nodes.len()
        )));
    }
    let mut of_all = Evidence::default();
    let mut known = attached.take_of_all(true, &mut |_, text| Ok(of_all.add_objects(text)))?;
    let scenarios = scenarios(args)?;
    let mut diagnoses = Vec::new();
    for node in nodes {
        let mut evidence = of_all.clone();
        known += add(&mut evidence, attached, Some(node))?;
        diagnoses.push((*node, Diagnosis::of(&evidence, args.observed(), &scenarios)));
    }
    attached.end();
    is_known(args, known)?;
    let nodes = diagnoses.iter().map(|(node, diagnosis)| Told {
        node: Some(node),
        ..diagnosis.told(&scenarios)
    });
    let nodes = Nodes {
        nodes: nodes.collect(),
    };
    told::say(args.format, &nodes, || nodes.human())?;
    Ok(ExitCode::SUCCESS)
}

/// Takes in what is attached of a node, or all there is; how many files had something that is known.
fn add(evidence: &mut Evidence, attached: &Attached, node: Option<&str>) -> Result<usize> {
    attached.take(node, &mut |name: &Path, text| {
        Ok(add_text(evidence, &name.display(), text))
    })
}

/// Takes in a text: whether it has something that is known.
fn add_text(evidence: &mut Evidence, name: &dyn Display, text: &str) -> bool {
    evidence.add(text).unwrap_or_else(|error| {
        crate::note(&format!(
            "{name}, {error}: its rules are not whole, and left out"
        ));
        false
    })
}

fn is_known(args: &args::Diagnose, known: usize) -> Result<()> {
    if known == 0 {
        return Err(attached::nothing_in(&args.what, "nothing that is known"));
    }
    Ok(())
}

impl Nodes<'_> {
    /// Nodes of which the same is said stand together, the worst first.
    fn human(&self) -> String {
        let mut groups: BTreeMap<(Reverse<[usize; 2]>, String), Vec<&str>> = BTreeMap::new();
        for told in &self.nodes {
            let found = [Weight::Breaks, Weight::Odd].map(|weight| told.count(weight));
            let nodes = groups.entry((Reverse(found), told.human())).or_default();
            nodes.extend(told.node);
        }
        let parts = groups.into_iter().map(|((Reverse(found), text), nodes)| {
            let what = if nodes.len() == 1 { "Node" } else { "Nodes" };
            let most = if found == [0, 0] { HEALTHY } else { usize::MAX };
            let names = attached::first_of(&nodes.into_iter().collect(), most);
            format!("{}\n\n{text}", wrap(&format!("{what} {names}"), told::WIDE))
        });
        let parts: Vec<String> = parts.collect();
        parts.join("\n")
    }
}
