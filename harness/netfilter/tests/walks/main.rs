//! Walks through what real agents wrote: Felix v3.28.1 with kube-proxy 1.32.3 in iptables mode, and kube-proxy 1.35.4 and
//! 1.36.1 in nftables mode.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

mod conntrack;
mod iptables;
mod nftables;
mod policies;
mod programs;
mod translation;
mod unknown;

use chainbreak_netfilter::{
    Family, Ruleset,
    walk::{Packet, Path, Protocol, Routing, State, Step, Walk},
};

/// A node with two pods of its own and an uplink.
const ROUTES: &str = "default via 10.0.1.254 dev eth0
10.0.1.0/24 dev eth0 proto kernel scope link src 10.0.1.1
10.20.1.2 dev calia7a3e029a7b scope link
10.20.1.3 dev cali6fa97c49190 scope link
10.20.1.5 dev cali37033675791 scope link
10.20.2.0/24 via 10.0.1.2 dev eth0
";
/// The interface of the pod 10.20.1.2.
const POD: &str = "calia7a3e029a7b";

const FELIX: &str = include_str!("../data/felix-3.28.1-with-kube-proxy-1.32.3.save");

fn node(save: &str) -> State {
    let mut state = routed();
    state.add_save(&Ruleset::parse(save).unwrap());
    state
}

fn routed() -> State {
    let mut state = State::new(Family::V4);
    state.set_routing(Routing::read(Family::V4, "", ROUTES, ""));
    state
}

fn tcp(from: &str, to: &str) -> Packet {
    Packet::syn(from.parse().unwrap(), to.parse().unwrap())
}

fn udp(from: &str, to: &str) -> Packet {
    Packet::new(Protocol::UDP, from.parse().unwrap(), to.parse().unwrap())
}

/// Where each way leads, with its share.
fn ends(walk: &Walk) -> Vec<String> {
    let end = |path: &Path| format!("{:.2} {:?} {}", path.share, path.end, path.packet);
    walk.paths.iter().map(end).collect()
}

/// The chains of the rules that matched.
fn chains(path: &Path) -> Vec<&str> {
    path.rules().map(|(site, ..)| site.chain.as_str()).collect()
}

fn only(walk: &Walk) -> &Path {
    assert_eq!(walk.paths.len(), 1, "{:?}", ends(walk));
    &walk.paths[0]
}

fn site(step: Option<&Step>) -> (&str, &str, usize) {
    match step {
        Some(Step::Rule { site, number, .. }) => (&site.table, &site.chain, *number),
        other => panic!("{other:?}"),
    }
}
