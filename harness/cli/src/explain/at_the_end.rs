//! What was kept of nodes when a case was over: all that is known of a real cluster, whose commands nobody records, and in the lab what a real
//! Felix's programs know.

use std::{path::Path, time::Duration};

use anyhow::Result;
use chainbreak_model::{
    case::{AgentSource, Case},
    event::Event,
    names::{AgentName, NodeName},
};
use chainbreak_netfilter::dumps::{Dumps, Kind};
use chainbreak_report::{
    Recorded,
    network::{Network, reroutes},
};

use super::{Known, ends, kept, moment, of_dumps};
use crate::{args::Explain, cases::invalid, reports};

/// Whether an agent's commands are recorded: those of a pod of a real cluster are not.
pub(crate) fn is_real_cluster(case: &Case) -> bool {
    AgentName::ALL
        .iter()
        .any(|agent| case.cluster.source(*agent) == Some(&AgentSource::Cluster))
}

/// The eBPF programs of a real Felix in the lab, which come before the rules that its commands made.
pub(super) enum Programs {
    /// It has none, or its model's table of nftables stands in for them.
    None,
    /// They are as these dumps of the end of the case say; at another moment nobody knows.
    Real(Vec<(String, String)>),
}

impl Programs {
    pub(super) fn of(
        at: Option<Duration>,
        recorded: &Recorded,
        file: &Path,
        node: &NodeName,
    ) -> Self {
        let source = recorded.case.cluster.source(AgentName::Felix);
        if source.and_then(AgentSource::path).is_none() {
            return Self::None;
        }
        let mut maps = kept::texts(reports::folder(file), &recorded.artifacts, node);
        maps.retain(|(name, _)| at.is_none() && name.contains(".bpf-"));
        Self::Real(maps)
    }

    pub(super) fn before(&self, mut dumps: Dumps) -> Result<Dumps> {
        let Self::Real(maps) = self else {
            return Ok(dumps);
        };
        kept::add(&mut dumps, maps)?;
        Ok(dumps.with_programs())
    }
}

/// What was kept of a node: names and texts. That is of the end of the case alone.
pub(crate) fn dumps_of(
    (at, id): (Option<Duration>, &str),
    recorded: &Recorded,
    file: &Path,
    node: &NodeName,
) -> Result<Vec<(String, String)>> {
    let none = format!(
        "{id} ran on a real cluster, where commands are not recorded: the rules of {node} cannot be rebuilt"
    );
    if at.is_some() {
        return Err(invalid(format!(
            "{none}. What they were at the end may be kept: leave out --at"
        )));
    }
    let texts = kept::texts(reports::folder(file), &recorded.artifacts, node);
    if texts.is_empty() {
        return Err(invalid(format!(
            "{none}, and they were not kept, as those of cases are that do not come out as expected"
        )));
    }
    Ok(texts)
}

/// By what was kept of a node: FROM and TO are addresses, as of any dumps, and their node has to be said where there are several.
pub(super) fn known(
    args: &Explain,
    (id, recorded): (&str, &Recorded),
    file: &Path,
    (events, at_us): (&[Event], u64),
) -> Result<Known> {
    let only = |all: &[NodeName]| match all {
        [only] => Some(only.clone()),
        _ => None,
    };
    let node = moment::node(args, &recorded.case, only)?;
    let ends = ends(args)?;
    let texts = dumps_of((args.at, id), recorded, file, &node)?;
    let network = Network::at(events, &recorded.case.timeline, reroutes, &node, at_us);
    let routes = network.as_ref().map(|it| it.text.to_owned());
    let routes = routes.map(|text| (format!("what {node} routes by"), text));
    let mut dumps = Dumps::default();
    kept::add(&mut dumps, texts.iter().chain(&routes))?;
    if !dumps.found().contains(&Kind::Save) && !dumps.found().contains(&Kind::Nft) {
        return Err(invalid(format!("no rules of {node} were kept of {id}")));
    }
    let files: Vec<&str> = texts.iter().map(|(name, _)| name.as_str()).collect();
    let mut about = vec![format!(
        "The rules are those that were kept of {node} when the case was over and its faults were undone ({}): its commands are not recorded.",
        files.join(", ")
    )];
    let doubt = network.and_then(|it| it.doubt);
    let sure = doubt.is_none();
    about.extend(doubt);
    Ok(Known {
        at: Some(format!("at the end on {node} in {id}")),
        about,
        sure,
        among: "among what was kept",
        ..of_dumps(ends, dumps)
    })
}
