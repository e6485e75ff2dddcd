//! This program on the nodes: the probe of every place, and Felix's model.

use std::time::Duration;

use crate::{error::KindError, nodes::Nodes, tool::Tool};

/// Where it is in a node that is ours.
pub(crate) const PROGRAM: &str = "/usr/local/bin/chainbreak";
/// What copying may take: a debug build is a hundred megabytes.
const COPY: Duration = Duration::from_secs(120);
/// An earlier one may be running: it is replaced, not overwritten.
const PUT: &str = "cat > \"$1.new\" && chmod 755 \"$1.new\" && mv \"$1.new\" \"$1\"";

/// Copies the running program to every node and tries it there.
pub(crate) async fn place(nodes: &Nodes) -> Result<(), KindError> {
    // Also when its file was built anew meanwhile.
    let own = "/proc/self/exe";
    let own = std::fs::read(own).map_err(KindError::file("read", own))?;
    for node in &nodes.0 {
        let put = node.argv(["sh", "-c", PUT, "sh", &node.program]);
        Tool::new(COPY, put).reading(own.clone()).output().await?;
        let tried = node.run(&[&node.program, "--version"]).await;
        tried.map_err(|error| {
            KindError::Unable(format!(
                "this program does not run on {}: it has to be linked statically for that (`make static`)\n{error}",
                node.name
            ))
        })?;
    }
    Ok(())
}
