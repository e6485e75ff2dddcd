//! Which iptables kube-proxy writes through. Its image decides by what the kubelet has written before
//! (kubernetes-sigs/iptables-wrappers), so that here the node's own iptables are chosen, the kubelet writes again, and kube-proxy is
//! started again. What came of it is looked at, not assumed.

use std::time::Duration;

use chainbreak_model::{case::IptablesVariant, names::AgentName};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::DeleteParams};

use crate::{
    error::KindError,
    made::{raise::Origin, spec::Spec},
    shared::{
        logs::DaemonPod,
        nodes::{Node, Nodes},
        signal::{ROLLOUT, rolled_out},
    },
    wait,
};

/// What kube-proxy may take to have written its first rules.
const WRITTEN: Duration = Duration::from_secs(90);

/// The node's own iptables are the wanted ones.
const OWN: &str = "\
    for f in iptables ip6tables; do update-alternatives --set $f /usr/sbin/$f-$1 >/dev/null || exit 1; done";

/// The kubelet's and kube-proxy's rules go from the iptables backend that is not wanted, and the kubelet starts with the other one.
const CHOOSE: &str = "\
    systemctl restart kubelet || exit 1; \
    for f in iptables ip6tables; do for t in raw mangle nat filter; do \
      $f-$2-save -t $t 2>/dev/null | grep -v -e KUBE- -e '^#' > /run/chainbreak.rules; \
      if $f-$2-save -t $t 2>/dev/null | grep -q KUBE-; then $f-$2-restore < /run/chainbreak.rules || exit 1; fi; \
    done; done";

/// Has kube-proxy write through the wanted iptables backend on every node. In a cluster that an earlier case has used it is a new one: what it
/// knows of the kernel, and what it has logged, is this case's.
pub(crate) async fn choose(
    client: &Client,
    nodes: &Nodes,
    spec: &Spec,
    origin: Origin,
) -> Result<(), KindError> {
    if origin == Origin::Found && spec.proxy.is_some() {
        restart(client, nodes, AgentName::KubeProxy).await?;
    }
    if spec
        .proxy
        .as_ref()
        .is_none_or(|proxy| proxy.mode != "iptables")
    {
        return Ok(());
    }
    let mut chosen = true;
    for node in &nodes.0 {
        if own(node).await? != spec.iptables {
            let argv = ["sh", "-c", OWN, "sh", word(spec.iptables)];
            node.run(&argv).await?;
        }
        if found(node).await? != spec.iptables {
            set(node, spec.iptables).await?;
            chosen = false;
        }
    }
    if chosen {
        return Ok(());
    }
    restart(client, nodes, AgentName::KubeProxy).await?;
    for node in &nodes.0 {
        let is = found(node).await?;
        if is != spec.iptables {
            return Err(KindError::Unable(format!(
                "kube-proxy on {} writes through iptables-{}, whatever the node's own iptables are: {}",
                node.name,
                word(is),
                spec.image.name
            )));
        }
    }
    Ok(())
}

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
    wait::until(&what, WRITTEN, look, || async { String::new() }).await
}

async fn set(node: &Node, wanted: IptablesVariant) -> Result<(), KindError> {
    let other = match wanted {
        IptablesVariant::Legacy => IptablesVariant::Nft,
        IptablesVariant::Nft => IptablesVariant::Legacy,
    };
    let argv = ["sh", "-c", CHOOSE, "sh", word(wanted), word(other)];
    node.run(&argv).await.map(drop)
}

/// New pods of an agent, which look again.
pub(crate) async fn restart(
    client: &Client,
    nodes: &Nodes,
    agent: AgentName,
) -> Result<(), KindError> {
    let set = DaemonPod::of(client, agent).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), set.namespace);
    for node in &nodes.0 {
        let Some(pod) = set.on(client, &node.registered).await? else {
            continue;
        };
        let name = pod.name_any();
        let deleted = pods.delete(&name, &DeleteParams::default()).await;
        deleted.map_err(KindError::api(format!("restart {name}")))?;
        let (uid, node) = (pod.uid(), &node.registered);
        let look = || async {
            match set.on(client, node).await {
                Ok(Some(new)) if new.uid() != uid => Ok(()),
                Ok(_) => Err("the old one is still there".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        };
        let what = format!("{agent} on {node} has a new pod");
        wait::until(&what, WRITTEN, look, || async { String::new() }).await?;
    }
    rolled_out(client, set, ROLLOUT).await
}

pub(crate) fn word(variant: IptablesVariant) -> &'static str {
    match variant {
        IptablesVariant::Legacy => "legacy",
        IptablesVariant::Nft => "nft",
    }
}
