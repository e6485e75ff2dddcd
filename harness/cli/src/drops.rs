//! `chainbreak drops`: the drop census of a run, from its folder alone.

use std::process::ExitCode;

use chainbreak_report::{
    drops::{Drops, drops, lines},
    text::shown,
};
use serde::Serialize;

use crate::{
    args::{self, Format},
    cases, reports,
};

/// A rule in which packets ended, and the case in which they did.
#[derive(Serialize)]
struct Line<'a> {
    case: &'a str,
    drops: &'a Drops,
}

/// `chainbreak drops`.
pub(crate) fn rank(args: &args::Drops) -> anyhow::Result<ExitCode> {
    let (run, _) = reports::read(&args.run)?;
    let mut out = String::new();
    let nodes = |case: &chainbreak_model::case::Case| {
        let mut names = case.cluster.node_names();
        args.node
            .as_ref()
            .is_none_or(|node| names.any(|name| name.as_str() == node))
    };
    if !run.begun().any(|(_, recorded)| nodes(&recorded.case)) {
        let node = args.node.as_deref().unwrap_or("any node");
        return Err(cases::invalid(format!("no case of the run has {node}")));
    }
    for (id, recorded) in run.begun() {
        let mut drops = drops(
            &recorded
                .history
                .events()
                .map_err(|why| cases::invalid(why.to_string()))?,
        );
        if let Some(node) = &args.node {
            drops.retain(|drop| drop.node == *node);
        }
        drops.truncate(args.top.unwrap_or(usize::MAX));
        match args.format {
            Format::Human => {
                let mut lines = lines(&drops);
                if lines.is_empty() {
                    lines.push("no packet was dropped".to_owned());
                }
                out.extend([&*shown(id), "\n"]);
                for line in &lines {
                    out.extend(["  ", line, "\n"]);
                }
            }
            Format::Jsonl => {
                for drops in &drops {
                    out.push_str(&serde_json::to_string(&Line { case: id, drops })?);
                    out.push('\n');
                }
            }
        }
    }
    crate::say(&out)?;
    Ok(ExitCode::SUCCESS)
}
