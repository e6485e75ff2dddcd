//! This program on nodes and hosts: the probe of every place, and Felix's model.

use std::{fmt::Display, time::Duration};

use chainbreak_engine::cluster::Command;
use futures::future::try_join_all;

use crate::{error::KindError, hash, shared::nodes::Nodes, tool::Tool};

/// Where it is in a node or host that is ours.
pub(crate) const PROGRAM: &str = "/usr/local/bin/chainbreak";
/// What copying may take: a debug build is a hundred megabytes.
const COPY: Duration = Duration::from_secs(120);
/// What it may take to say its version.
const TRY: Duration = Duration::from_secs(30);
/// An earlier one may be running: it is replaced, not overwritten.
pub(crate) const PUT: &str = "cat > \"$1.new\" && chmod 755 \"$1.new\" && mv \"$1.new\" \"$1\"";

/// Copies the running program to every node and tries it there.
pub(crate) async fn place(nodes: &Nodes) -> Result<(), KindError> {
    let own = own()?;
    for node in &nodes.0 {
        put(&node.name, &node.entry, &node.program, &own).await?;
    }
    Ok(())
}

/// The same, but for nodes on which it is already, as those of a cluster that is kept.
pub(crate) async fn place_once(nodes: &Nodes) -> Result<(), KindError> {
    let own = own()?;
    let sum = hash::sha256(&own);
    let placed = nodes.0.iter().map(async |node| {
        let there = node.run(&["sha256sum", &node.program]).await;
        if there.is_ok_and(|said| said.starts_with(&sum)) {
            return Ok(());
        }
        put(&node.name, &node.entry, &node.program, &own).await
    });
    try_join_all(placed).await.map(drop)
}

/// A command in words, where this program is there.
pub(crate) fn words(program: &str, command: &Command) -> Vec<String> {
    match command {
        Command::Argv(argv) => argv.clone(),
        Command::Probe => vec![program.to_owned(), "probe".to_owned()],
    }
}

/// The running program itself, also when its file was rebuilt meanwhile.
pub(crate) fn own() -> Result<Vec<u8>, KindError> {
    let own = "/proc/self/exe";
    std::fs::read(own).map_err(KindError::file("read", own))
}

/// Copies it to where that entry leads, and tries it there.
pub(crate) async fn put(
    place: &impl Display,
    entry: &[String],
    path: &str,
    own: &[u8],
) -> Result<(), KindError> {
    let argv = |words: &[&str]| {
        let words = words.iter().map(|&word| word.to_owned());
        entry.iter().cloned().chain(words).collect::<Vec<_>>()
    };
    let copy = argv(&["sh", "-c", PUT, "sh", path]);
    Tool::new(COPY, copy).reading(own).output().await?;
    let tried = Tool::new(TRY, argv(&[path, "--version"])).output().await;
    tried.map(drop).map_err(|error| {
        KindError::Unable(format!(
            "this program does not run on {place}: it has to be linked statically for that (`make static`)\n{error}"
        ))
    })
}
