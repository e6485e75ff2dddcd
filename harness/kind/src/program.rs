//! This program in the nodes: the probe of every place, and Felix's model.

use std::{path::PathBuf, time::Duration};

use crate::{docker::in_node, error::KindError, nodes::Nodes, tool::Tool};

/// Where it is in a node.
pub(crate) const PROGRAM: &str = "/usr/local/bin/chainbreak";
/// What copying may take: a debug build is a hundred megabytes.
const COPY: Duration = Duration::from_secs(120);

/// Copies the running program into every node and tries it there.
pub(crate) async fn place(nodes: &Nodes) -> Result<(), KindError> {
    // Also when its file was built anew meanwhile, and by an absolute path that `docker` sees too.
    let own = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    for node in &nodes.0 {
        let to = format!("{}:{PROGRAM}", node.container);
        let from = own.display().to_string();
        let copy = ["docker", "cp", "--follow-link", &from, &to];
        Tool::new(COPY, copy).output().await?;
        let tried = in_node(&node.container, &[PROGRAM, "--version"]).await;
        tried.map_err(|error| {
            KindError::Unable(format!(
                "this program does not run on {}: it has to be linked statically for that (`make static`)\n{error}",
                node.name
            ))
        })?;
    }
    Ok(())
}
