//! Felix's process begun anew in pods that go on: calico-node's own supervisor starts it again within a second, where a new pod takes ten.

use std::time::Duration;

use futures::future::try_join_all;
use tokio::time::Instant;

use crate::{
    error::KindError,
    shared::nodes::{Node, Nodes},
    wait::left,
};

/// Defines `felix`, which prints what Linux has of the Felix on a node, in whatever container it runs (`calico-node -felix`, calico-node v3.25 to
/// v3.32; its probes have other words). Its argument is `/proc`.
pub(super) const FELIX: &str = "felix() { grep -lszx '[-]felix' $1/[0-9]*/cmdline; }; ";

/// Defines `later`, which waits a little, or fails with a word after `$3` seconds.
const LATER: &str = r#"
    end=$(($(date +%s) + $3))
    later() { [ $(date +%s) -lt $end ] || { echo "$1" >&2; exit 1; }; sleep 0.1; }"#;

/// Ends it as the kubelet would, and waits until it is gone. It may be gone already, as Felix ends itself where a setting asks for it.
const END: &str = r"
    old=$(felix $1)
    for it in $old; do it=${it#$1/}; kill -TERM ${it%/cmdline} 2>/dev/null; done
    for it in $old; do while grep -qszx '[-]felix' $it; do later 'it does not end'; done; done";

/// Waits until another one says that it is ready: by `$2`.
const READY: &str = r#"
    until [ "$(felix $1)" ]; do later 'it has not begun again'; done
    until said=$(curl -fsS -m 1 "$2" 2>&1); do later "$said"; done"#;

/// Where Felix says that it is ready, unless FelixConfiguration has another port.
pub(super) const HEALTH_PORT: u64 = 9099;
/// What a node may take to run the command, beside what Felix takes.
const BESIDE: Duration = Duration::from_secs(30);

/// Ends Felix on all nodes at a time: it begins again by itself, and reads its configuration.
pub(super) async fn end(nodes: &Nodes, until: Instant) -> Result<(), KindError> {
    on_all(nodes, END, "", until).await
}

/// Waits until the Felix of each node is ready.
pub(super) async fn ready(nodes: &Nodes, port: u64, until: Instant) -> Result<(), KindError> {
    let ready = format!("http://localhost:{port}/readiness");
    on_all(nodes, READY, &ready, until).await
}

async fn on_all(nodes: &Nodes, script: &str, ready: &str, until: Instant) -> Result<(), KindError> {
    let script = format!("{FELIX}{LATER}{script}");
    let done = nodes.0.iter().map(|node| on(node, &script, ready, until));
    try_join_all(done).await.map(drop)
}

async fn on(node: &Node, script: &str, ready: &str, until: Instant) -> Result<(), KindError> {
    let within = left(until);
    let seconds = within.as_secs().to_string();
    let argv = ["sh", "-c", script, "sh", "/proc", ready, &seconds];
    let done = node.run_within(within + BESIDE, &argv).await;
    done.map(drop).map_err(|error| {
        let why = match error {
            // The command is long, and ours.
            KindError::Failed { said, .. } => said,
            other => other.to_string(),
        };
        KindError::Unable(format!("Felix on {} is not ready: {why}", node.name))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A node with processes of its own, on which Felix begins again when it was ended, and is ready at the second look. Its rules stand where the
    /// folder says so.
    const NODE: &str = r#"cd "$0"
        script=$3
        case $5 in cali*) [ -e stand ]; exit;; esac
        set -- processes "$6" "$7"
        kill() { echo "ended $2" >> log; [ -e no-other ] && rm -r processes/"$2" || mv processes/"$2" processes/$(($2 + 1)); }
        curl() { echo "asked $4" >> log; [ "$(grep -c asked log)" -gt 1 ] || { echo 'curl: (22) 503'; return 22; }; }
        eval "$script""#;

    pub(in super::super) fn node(folder: &Path, name: &str) -> Node {
        for (id, command) in [
            ("9", "runsv\0felix\0"),
            ("10", "calico-node\0-felix-live\0-bird-live\0"),
            ("11", "calico-node\0-felix\0"),
        ] {
            let process = folder.join("processes").join(id);
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("cmdline"), command).unwrap();
        }
        Node {
            name: name.into(),
            ..Node::entered_by(&["sh", "-c", NODE, &folder.to_string_lossy()])
        }
    }

    #[tokio::test]
    async fn felix_is_ended_on_every_node_and_waited_for_until_another_one_is_ready() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let all = folders.iter().zip(["n1", "n2"]);
        let nodes = Nodes(
            all.map(|(folder, name)| node(folder.path(), name))
                .collect(),
        );
        let until = Instant::now() + Duration::from_secs(60);
        end(&nodes, until).await.unwrap();
        ready(&nodes, 9098, until).await.unwrap();
        for folder in &folders {
            let log = fs::read_to_string(folder.path().join("log")).unwrap();
            let asked = "asked http://localhost:9098/readiness\n";
            assert_eq!(log, format!("ended 11\n{asked}{asked}"));
        }
    }

    #[tokio::test]
    async fn a_felix_that_does_not_begin_again_is_told_with_its_node() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("no-other"), "").unwrap();
        let nodes = Nodes(vec![node(folder.path(), "n2")]);
        end(&nodes, Instant::now()).await.unwrap();
        let error = ready(&nodes, HEALTH_PORT, Instant::now())
            .await
            .unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("Felix on n2") && said.ends_with("it has not begun again"),
            "{said}"
        );
        assert!(!said.contains("cmdline"), "the command is long: {said}");
    }

    #[tokio::test]
    async fn a_felix_that_is_not_ready_is_told_with_what_it_answered() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = Nodes(vec![node(folder.path(), "n1")]);
        let error = ready(&nodes, HEALTH_PORT, Instant::now())
            .await
            .unwrap_err();
        let said = error.to_string();
        assert!(said.contains("curl: (22) 503"), "{said}");
    }
}
