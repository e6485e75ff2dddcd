//! The jumps from built-in chains, made one by one with `iptables` in every full sync.
//!
//! Each is prepended when it is missing, so a clean chain ends up with them in the reverse of this
//! order, and one made again stands at the top.

use super::profile::Version;

/// A rule in a built-in chain that leads to one of kube-proxy's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jump {
    pub(crate) table: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    comment: &'static str,
    only_new: bool,
}

impl Jump {
    /// The rule's arguments.
    pub(crate) fn rule(&self) -> Vec<&'static str> {
        let mut words = Vec::new();
        if self.only_new {
            words.extend(["-m", "conntrack", "--ctstate", "NEW"]);
        }
        if !self.comment.is_empty() {
            words.extend(["-m", "comment", "--comment", self.comment]);
        }
        words.extend(["-j", self.to]);
        words
    }
}

const PORTALS: &str = "kubernetes service portals";
const EXTERNAL: &str = "kubernetes externally-visible service portals";
const BALANCER: &str = "kubernetes load balancer firewall";

const fn jump([table, from, to]: [&'static str; 3], comment: &'static str, only_new: bool) -> Jump {
    Jump {
        table,
        from,
        to,
        comment,
        only_new,
    }
}

/// All that there are, in the order in which they are made. The last two are copies of kubelet's.
const JUMPS: [Jump; 14] = [
    jump(
        ["filter", "INPUT", "KUBE-EXTERNAL-SERVICES"],
        EXTERNAL,
        true,
    ),
    jump(
        ["filter", "FORWARD", "KUBE-EXTERNAL-SERVICES"],
        EXTERNAL,
        true,
    ),
    jump(
        ["filter", "INPUT", "KUBE-NODEPORTS"],
        "kubernetes health check service ports",
        false,
    ),
    jump(["filter", "FORWARD", "KUBE-SERVICES"], PORTALS, true),
    jump(["filter", "OUTPUT", "KUBE-SERVICES"], PORTALS, true),
    jump(
        ["filter", "FORWARD", "KUBE-FORWARD"],
        "kubernetes forwarding rules",
        false,
    ),
    jump(["filter", "INPUT", "KUBE-PROXY-FIREWALL"], BALANCER, true),
    jump(["filter", "OUTPUT", "KUBE-PROXY-FIREWALL"], BALANCER, true),
    jump(["filter", "FORWARD", "KUBE-PROXY-FIREWALL"], BALANCER, true),
    jump(["nat", "OUTPUT", "KUBE-SERVICES"], PORTALS, false),
    jump(["nat", "PREROUTING", "KUBE-SERVICES"], PORTALS, false),
    jump(
        ["nat", "POSTROUTING", "KUBE-POSTROUTING"],
        "kubernetes postrouting rules",
        false,
    ),
    jump(["filter", "INPUT", "KUBE-FIREWALL"], "", false),
    jump(["filter", "OUTPUT", "KUBE-FIREWALL"], "", false),
];

/// The jumps of a release, in the order in which they are made.
pub(crate) fn jumps(version: &Version) -> impl Iterator<Item = &'static Jump> {
    let has = move |jump: &&Jump| match jump.to {
        "KUBE-NODEPORTS" => version.admits_health_checks(),
        "KUBE-PROXY-FIREWALL" => !version.drops_by_mark(),
        "KUBE-FIREWALL" => version.writes_kubelets_firewall(),
        _ => true,
    };
    let late = version.makes_the_masquerading_jump_last();
    let is_late = move |jump: &&Jump| late && jump.to == "KUBE-POSTROUTING";
    let first = JUMPS.iter().filter(has).filter(move |jump| !is_late(jump));
    first.chain(JUMPS.iter().filter(move |jump| is_late(jump)))
}

/// Chains of kubelet's that are made when missing, and left as they are.
pub(crate) fn kubelet_chains(version: &Version) -> &'static [(&'static str, &'static str)] {
    if version.drops_by_mark() {
        &[("nat", "KUBE-MARK-DROP")]
    } else {
        &[]
    }
}
