//! The chains of a kubelet: by some it tells others which iptables its node uses, and with some old ones
//! drop what kube-proxy marks.

use std::sync::Arc;

use chainbreak_agents::{
    kube_proxy::{Profile, Version},
    step::Command,
};
use chainbreak_engine::log::EventLog;
use chainbreak_model::case::{ClusterSpec, IpFamily};
use futures::future::try_join_all;

use crate::{
    error::LabError,
    recorder::Recorder,
    world::{Node, World},
};

/// What every kubelet has made when it is ready (`kubelet_network_linux.go`). Felix's detection of the
/// iptables backend and iptables-wrappers look for them. A kubelet makes its chains again when somebody flushed
/// them, once a minute; this one does not.
const CANARIES: &str = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n\
    *nat\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n\
    *filter\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";
/// From 1.24.
const HINT: &str = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";
/// Until 1.26 (`IPTablesOwnershipCleanup` is on from 1.27): the drop of packets that kube-proxy marks,
/// which 1.20's rules for source ranges and local policies jump to.
const DROPS: &str = "*nat\n:KUBE-MARK-DROP - [0:0]\n-A KUBE-MARK-DROP -j MARK --or-mark 0x00008000\nCOMMIT\n\
    *filter\n:KUBE-FIREWALL - [0:0]\n\
    -A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked packets\" \
    -m mark --mark 0x00008000/0x00008000 -j DROP\n\
    -I OUTPUT -j KUBE-FIREWALL\n-I INPUT -j KUBE-FIREWALL\nCOMMIT\n";
/// The same releases keep others off what listens on the loopback address, in IPv4.
const LOCALNET: &str = "*filter\n\
    -A KUBE-FIREWALL -m comment --comment \"block incoming localnet connections\" -d 127.0.0.0/8 \
    ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\nCOMMIT\n";

/// Makes the chains on these nodes, as the kubelet of kube-proxy's release does, or a new one where there
/// is none; to be called before agents start.
pub(crate) async fn make(
    world: &World,
    nodes: &[&Arc<Node>],
    spec: &ClusterSpec,
    log: &EventLog,
) -> Result<(), LabError> {
    let version = spec.kube_proxy.as_ref();
    let version = version.and_then(|it| numbers(&it.version).parse().ok());
    let input = |family| input(version.as_ref(), family);
    let v6 = world.families.has_v6().then(|| input(IpFamily::V6));
    let inputs = [Some(input(IpFamily::V4)), v6];
    let on_each = nodes.iter().flat_map(|node| {
        let inputs = inputs.iter().zip([IpFamily::V4, IpFamily::V6]);
        inputs.filter_map(move |(input, family)| {
            let input = input.as_deref()?;
            Some(make_on(node, family, input, log))
        })
    });
    try_join_all(on_each).await.map(drop)
}

/// A real one may be a vendor's build: the numbers of `1.24.17-eks-1`, `1.26.5+k3s1` or `1.27.0-beta.1`.
fn numbers(version: &str) -> &str {
    let rest = |c: char| !c.is_ascii_digit() && c != '.';
    version.split(rest).next().unwrap_or_default()
}

fn input(release: Option<&Version>, family: IpFamily) -> String {
    let localnet = match family {
        IpFamily::V4 => LOCALNET,
        IpFamily::V6 => "",
    };
    let parts: &[&str] = match release.map(Version::profile) {
        Some(Profile::V1_20) => &[CANARIES, DROPS, localnet],
        Some(Profile::V1_26) => &[CANARIES, HINT, DROPS, localnet],
        Some(_) | None => &[CANARIES, HINT],
    };
    parts.concat()
}

async fn make_on(
    node: &Node,
    family: IpFamily,
    input: &str,
    log: &EventLog,
) -> Result<(), LabError> {
    let program = format!("{}-restore", family.iptables());
    let command = Command {
        argv: vec![program.clone(), "--noflush".to_owned()],
        input: input.to_owned(),
    };
    let recorder = Recorder::new("kubelet", node.name.clone(), log.clone());
    let output = recorder.run_in(&node.place, command).await;
    if output.exit == 0 {
        return Ok(());
    }
    let what = format!("{program} fails on {}: {}", node.name, output.stderr.trim());
    Err(LabError::Unable { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_until_1_26_drop_what_is_marked_and_from_1_24_on_leave_a_hint() {
        for (version, drops, hint) in [
            ("1.20.2", true, false),
            ("1.23", true, false),
            ("1.23.17-eks-1", true, false),
            ("1.24", true, true),
            ("1.26", true, true),
            ("1.26.5+k3s1", true, true),
            ("1.27", false, true),
            ("1.34", false, true),
        ] {
            let input = input(Some(&numbers(version).parse().unwrap()), IpFamily::V4);
            assert!(input.contains(":KUBE-KUBELET-CANARY"), "{version}");
            assert_eq!(input.contains(":KUBE-MARK-DROP"), drops, "{version}");
            assert_eq!(input.contains(":KUBE-IPTABLES-HINT"), hint, "{version}");
        }
        let new = "1.34".parse().unwrap();
        let v4 = |release| input(release, IpFamily::V4);
        assert_eq!(v4(None), v4(Some(&new)));
    }
}
