//! Amazon's VPC CNI beside the pods' interfaces: its rules ([`vpc_cni`]) on every node, in its name.

use std::sync::Arc;

use chainbreak_agents::step::Command;
use chainbreak_engine::{log::EventLog, vpc_cni};
use chainbreak_model::case::{AWS_NODE, CniSpec};
use futures::future::try_join_all;

use crate::{
    error::LabError,
    recorder::Recorder,
    world::{Node, World},
};

/// Writes the rules on these nodes.
pub(crate) async fn write(
    world: &World,
    nodes: &[&Arc<Node>],
    cni: &CniSpec,
    log: &EventLog,
) -> Result<(), LabError> {
    let nodes = nodes.iter();
    try_join_all(nodes.map(|node| write_on(world, node, cni, log)))
        .await
        .map(drop)
}

async fn write_on(
    world: &World,
    node: &Node,
    cni: &CniSpec,
    log: &EventLog,
) -> Result<(), LabError> {
    let inside = [world.plan.underlay(), world.pools.main()];
    let recorder = Recorder::new(AWS_NODE, node.name.clone(), log.clone());
    let recorder = recorder.behind(world.gate.clone());
    for arguments in vpc_cni::rules(cni, &inside, node.address) {
        let argv = std::iter::once("iptables".to_owned()).chain(arguments);
        let command = Command {
            argv: argv.collect(),
            input: String::new(),
        };
        let said = command.argv.join(" ");
        let output = recorder.run_in(&node.place, command).await;
        if output.exit != 0 {
            let stderr = output.stderr.trim();
            let what = format!("{said} fails on {}: {stderr}", node.name);
            return Err(LabError::Unable { what });
        }
    }
    Ok(())
}
