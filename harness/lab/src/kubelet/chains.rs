//! The chains by which a kubelet tells others which iptables its node uses.

use chainbreak_agents::step::Command;
use chainbreak_engine::log::EventLog;
use futures::future::try_join_all;

use crate::{
    error::LabError,
    recorder::Recorder,
    world::{Node, World},
};

/// What kubelet ≥ 1.24 has made when it is ready (`kubelet_network_linux.go`). Felix's detection of the
/// front end and iptables-wrappers look for them. A kubelet makes them again when somebody flushed
/// them, once a minute; this one does not.
const CHAINS: &str = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n\
    *nat\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n\
    *filter\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";

/// Makes the chains on every node; to be called before agents start.
pub(crate) async fn make(world: &World, log: &EventLog) -> Result<(), LabError> {
    try_join_all(world.nodes().map(|node| make_on(node, log)))
        .await
        .map(drop)
}

async fn make_on(node: &Node, log: &EventLog) -> Result<(), LabError> {
    let command = Command {
        argv: ["iptables-restore", "--noflush"]
            .map(str::to_owned)
            .to_vec(),
        input: CHAINS.to_owned(),
    };
    let recorder = Recorder::new("kubelet", node.name.clone(), log.clone());
    let output = recorder.run_in(&node.place, command).await;
    if output.exit == 0 {
        return Ok(());
    }
    let what = format!(
        "iptables-restore fails on {}: {}",
        node.name,
        output.stderr.trim()
    );
    Err(LabError::Unable { what })
}
