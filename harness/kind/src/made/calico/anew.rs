//! Felix's process begun anew in pods that go on: calico-node's own supervisor starts it again within a second, where a new pod takes ten.

use futures::future::try_join_all;
use tokio::time::Instant;

use crate::{
    error::KindError,
    shared::nodes::{Node, Nodes},
    wait::{self, left},
};

/// Prints the process ids of Felix on a node, in whatever container it runs (`calico-node -felix`, calico-node v3.25 to v3.32).
const PROCESSES: &str = "for p in /proc/[0-9]*; do \
    case $(tr '\\0' ' ' 2>/dev/null < $p/cmdline) in *calico-node\\ -felix*) echo ${p#/proc/};; esac; \
    done";

/// Ends these processes as the kubelet would; they may be gone already, as Felix ends itself where a setting asks for it.
const END: &str = "kill -TERM $1 2>/dev/null || true";

/// Where Felix says that it is ready, unless FelixConfiguration has another port.
pub(super) const HEALTH_PORT: u64 = 9099;

/// Has Felix read its configuration again on all nodes at a time, and waits until it is ready there.
pub(super) async fn begin(nodes: &Nodes, port: u64, until: Instant) -> Result<(), KindError> {
    let begun = nodes.0.iter().map(|node| begin_on(node, port, until));
    try_join_all(begun).await.map(drop)
}

async fn begin_on(node: &Node, port: u64, until: Instant) -> Result<(), KindError> {
    let old = processes(node).await?;
    node.run(&["sh", "-c", END, "sh", &old]).await?;
    let ready = format!("http://localhost:{port}/readiness");
    let old = &old;
    let look = || async {
        let now = processes(node).await.map_err(|error| error.to_string())?;
        if now.is_empty() || now == *old {
            return Err("it has not begun again".to_owned());
        }
        let asked = node.run(&["curl", "-fsS", "-m", "1", &ready]).await;
        asked.map(drop).map_err(|error| error.to_string())
    };
    let what = format!("Felix on {} is ready with its new configuration", node.name);
    wait::until(&what, left(until), look, wait::nothing).await
}

async fn processes(node: &Node) -> Result<String, KindError> {
    let found = node.run(&["sh", "-c", PROCESSES]).await?;
    Ok(found.trim().to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fs, path::Path, time::Duration};

    use super::*;

    /// A node on which Felix begins again when it was ended, and is ready at the second look.
    const NODE: &str = r#"cd "$0"; case "$*" in
        *cmdline*) cat process;;
        *kill*) echo "ended $5" >> log; echo 12 > process;;
        curl*) echo "asked $5" >> log; [ "$(grep -c asked log)" -gt 1 ];;
    esac"#;

    pub(in super::super) fn node(folder: &Path, name: &str) -> Node {
        let entry = ["sh", "-c", NODE, &folder.to_string_lossy()].map(str::to_owned);
        Node {
            entry: entry.to_vec(),
            program: String::new(),
            address: [127, 0, 0, 1].into(),
            name: name.into(),
            registered: name.to_owned(),
        }
    }

    #[tokio::test]
    async fn felix_is_ended_on_every_node_and_waited_for_until_another_one_is_ready() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for folder in &folders {
            fs::write(folder.path().join("process"), "11\n").unwrap();
        }
        let all = folders.iter().zip(["n1", "n2"]);
        let nodes = Nodes(
            all.map(|(folder, name)| node(folder.path(), name))
                .collect(),
        );
        let until = Instant::now() + Duration::from_secs(60);
        begin(&nodes, 9098, until).await.unwrap();
        for folder in &folders {
            let log = fs::read_to_string(folder.path().join("log")).unwrap();
            let asked = "asked http://localhost:9098/readiness\n";
            assert_eq!(log, format!("ended 11\n{asked}{asked}"));
        }
    }

    #[tokio::test]
    async fn a_felix_that_does_not_begin_again_is_told_with_its_node() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("process"), "12\n").unwrap();
        let nodes = Nodes(vec![node(folder.path(), "n2")]);
        let until = Instant::now() + Duration::from_millis(300);
        let error = begin(&nodes, HEALTH_PORT, until).await.unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("Felix on n2") && said.contains("it has not begun again"),
            "{said}"
        );
    }
}
