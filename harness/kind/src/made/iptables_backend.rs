//! Which iptables kube-proxy writes through. Its image decides by what the kubelet has written before
//! (kubernetes-sigs/iptables-wrappers), so that here the node's own iptables are chosen, the kubelet writes again, and kube-proxy is
//! started again. What came of it is looked at, not assumed.

use chainbreak_model::{case::IptablesVariant, names::AgentName};
use futures::future::try_join_all;
use kube::Client;

use super::{spec::Spec, standing::Origin};
use crate::{
    error::KindError,
    shared::{
        iptables_backend::{found, own, restart, word},
        nodes::{Node, Nodes},
    },
};

/// The node's own iptables are the wanted ones.
const OWN: &str = "\
    for f in iptables ip6tables; do update-alternatives --set $f /usr/sbin/$f-$1 >/dev/null || exit 1; done";

/// The kubelet starts with the iptables backend that is wanted, and has left its mark there when the next kube-proxy looks for it.
const CHOOSE: &str = "\
    systemctl restart kubelet || exit 1; left=100; \
    until iptables-$1-save -t mangle 2>/dev/null | grep -q -e ^:KUBE-IPTABLES-HINT -e ^:KUBE-KUBELET-CANARY; do \
      left=$((left - 1)); [ $left -gt 0 ] || exit 1; sleep 0.2; \
    done";

/// The kubelet's and kube-proxy's rules go from the iptables backend that is not wanted.
const PURGE: &str = "\
    for f in iptables ip6tables; do for t in raw mangle nat filter; do \
      $f-$2-save -t $t 2>/dev/null | grep -v -e KUBE- -e '^#' > /run/chainbreak.rules; \
      if $f-$2-save -t $t 2>/dev/null | grep -q KUBE-; then $f-$2-restore < /run/chainbreak.rules || exit 1; fi; \
    done; done";

/// Gives every node the wanted iptables as its own, and has kube-proxy, where there is one, write through it. In a cluster that an earlier
/// case has used it is a new one: what it knows of the kernel, and what it has logged, is this case's.
pub(super) async fn choose(
    client: &Client,
    nodes: &Nodes,
    spec: &Spec,
    origin: Origin,
) -> Result<(), KindError> {
    if origin == Origin::Found && spec.proxy.is_some() {
        restart(client, nodes, AgentName::KubeProxy).await?;
    }
    let mode = spec.proxy.as_ref().map(|proxy| proxy.mode);
    if mode.is_some_and(|mode| mode != "iptables") {
        return Ok(());
    }
    let nodes_own = nodes.0.iter().map(async |node| {
        if own(node).await? != spec.iptables {
            let argv = ["sh", "-c", OWN, "sh", word(spec.iptables)];
            node.run(&argv).await?;
        }
        Ok(())
    });
    try_join_all(nodes_own).await?;
    if mode.is_none() {
        return Ok(());
    }
    let chosen = nodes.0.iter().map(async |node| {
        let chosen = found(node).await? == spec.iptables;
        if !chosen {
            set(node, spec.iptables).await?;
        }
        Ok(chosen)
    });
    if try_join_all(chosen).await?.into_iter().all(|chosen| chosen) {
        return Ok(());
    }
    restart(client, nodes, AgentName::KubeProxy).await?;
    let looked = nodes.0.iter().map(async |node| {
        // The old one may have missed its rules, and written them once more.
        run(node, PURGE, spec.iptables).await?;
        let is = found(node).await?;
        if is == spec.iptables {
            return Ok(());
        }
        Err(KindError::Unable(format!(
            "kube-proxy on {} writes through iptables-{}, whatever the node's own iptables are: {}",
            node.name,
            word(is),
            spec.image.name
        )))
    });
    try_join_all(looked).await.map(drop)
}

async fn set(node: &Node, wanted: IptablesVariant) -> Result<(), KindError> {
    run(node, CHOOSE, wanted).await?;
    run(node, PURGE, wanted).await
}

/// A script: `$1` is the wanted one, `$2` the other one.
async fn run(node: &Node, script: &str, wanted: IptablesVariant) -> Result<(), KindError> {
    let other = match wanted {
        IptablesVariant::Legacy => IptablesVariant::Nft,
        IptablesVariant::Nft => IptablesVariant::Legacy,
    };
    let argv = ["sh", "-c", script, "sh", word(wanted), word(other)];
    node.run(&argv).await.map(drop)
}
