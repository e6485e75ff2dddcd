//! `chainbreak explain`: the way of a packet through a node, from the node's dumps.

mod asked;
mod folder;

use std::process::ExitCode;

use chainbreak_netfilter::{
    dumps::Dumps,
    walk::{Walk, walk},
};
use chainbreak_report::text::document;

use crate::args::{self, Answer};

/// `chainbreak explain`.
pub(crate) fn explain(args: &args::Explain) -> anyhow::Result<ExitCode> {
    let dumps = folder::read(&args.dump)?;
    let packet = asked::packet(args, &dumps)?;
    let walk = walk(&dumps.state(packet.family()), &packet);
    match args.format {
        Answer::Human => crate::say(&human(&walk, &dumps))?,
        Answer::Json => crate::say_as_it_is(&document(&walk.told())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn human(walk: &Walk, dumps: &Dumps) -> String {
    let packet = &walk.packet;
    let from = match &packet.input {
        Some(interface) => format!("received by {interface}"),
        None => "made on the node".to_owned(),
    };
    let mut out = format!("{packet}, {from}\n\n");
    for end in walk.ends() {
        out.extend(["  ", &end, "\n"]);
    }
    out.push('\n');
    for (depth, line) in walk.tree() {
        out.extend(["  ".repeat(depth + 1).as_str(), &line, "\n"]);
    }
    let missing: Vec<String> = dumps
        .missing()
        .iter()
        .map(|kind| format!("`{kind}`"))
        .collect();
    if !missing.is_empty() {
        let words = "Not among the dumps, and so not known:";
        out.extend(["\n", words, " ", &missing.join(", "), "\n"]);
    }
    out
}
