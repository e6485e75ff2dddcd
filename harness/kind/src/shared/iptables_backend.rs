//! Which iptables a node's own are, and which kube-proxy writes through.

use std::time::Duration;

use chainbreak_model::{case::IptablesVariant, names::AgentName};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::DeleteParams};

use crate::{
    error::KindError,
    shared::{
        logs::DaemonPod,
        nodes::{Node, Nodes},
        signal::{self, ROLLOUT, rolled_out},
    },
    wait,
};

/// What kube-proxy may take to have written its first rules.
const WRITTEN: Duration = Duration::from_secs(90);

/// Which iptables a node's own are.
pub(crate) async fn own(node: &Node) -> Result<IptablesVariant, KindError> {
    let said = node.run(&["iptables", "--version"]).await?;
    Ok(if said.contains("(legacy)") {
        IptablesVariant::Legacy
    } else {
        IptablesVariant::Nft
    })
}

/// Through which iptables backend kube-proxy has written its rules, as soon as it has.
pub(crate) async fn found(node: &Node) -> Result<IptablesVariant, KindError> {
    let look = || async {
        for variant in [IptablesVariant::Nft, IptablesVariant::Legacy] {
            let save = format!("iptables-{}-save", word(variant));
            let saved = node.run(&[&save, "-t", "nat"]).await;
            let saved = saved.map_err(|error| error.to_string())?;
            // Chains of the kubelet's own are others.
            if saved
                .lines()
                .any(|line| line.starts_with(":KUBE-SERVICES "))
            {
                return Ok(variant);
            }
        }
        Err("its chains are in neither".to_owned())
    };
    let what = format!("kube-proxy has written its rules on {}", node.name);
    wait::until(&what, WRITTEN, look, wait::nothing).await
}

/// New pods of an agent on all nodes at a time, which look again.
pub(crate) async fn restart(
    client: &Client,
    nodes: &Nodes,
    agent: AgentName,
) -> Result<(), KindError> {
    let set = DaemonPod::of(client, agent).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), set.namespace);
    let renewed = nodes.0.iter().map(async |node| {
        let Some(pod) = set.on(client, &node.registered).await? else {
            return Ok(());
        };
        let name = pod.name_any();
        let deleted = pods.delete(&name, &DeleteParams::default()).await;
        deleted.map_err(KindError::api(format!("restart {name}")))?;
        let (uid, node) = (pod.uid(), &node.registered);
        let is_new = |found: Option<&Pod>| match found {
            Some(new) if new.uid() != uid => Ok(()),
            _ => Err("the old one is still there"),
        };
        let what = format!("{agent} on {node} has a new pod");
        signal::until(client, set, node, (&what, WRITTEN), is_new).await
    });
    try_join_all(renewed).await?;
    rolled_out(client, set, ROLLOUT).await
}

pub(crate) fn word(variant: IptablesVariant) -> &'static str {
    match variant {
        IptablesVariant::Legacy => "legacy",
        IptablesVariant::Nft => "nft",
    }
}
