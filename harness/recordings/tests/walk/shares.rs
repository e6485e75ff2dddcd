//! To each service's endpoints by their shares, and nothing that kube-proxy writes is unknown on the way.

use std::{collections::BTreeMap, net::SocketAddr};

use chainbreak_netfilter::{
    Family, Ruleset,
    walk::{self, Effect, Packet, Routing, State, walk},
};
use chainbreak_recordings::{Mode, Standing, World};

use crate::recorded::{Served, corpus, services, table, written};

fn state(standing: &Standing, mode: Mode, family: Family) -> State {
    let mut state = State::new(family);
    let (name, routes) = match family {
        Family::V4 => (
            "ip",
            "default via 10.0.1.254 dev eth0\n10.0.1.0/24 dev eth0 proto kernel scope link src 10.0.1.1\n",
        ),
        Family::V6 => (
            "ip6",
            "default via fd00:10:0:1::fe dev eth0\nfd00:10:0:1::/64 dev eth0 proto kernel scope link src fd00:10:0:1::1\n",
        ),
    };
    let mut ruleset: Ruleset = standing.ruleset(name);
    // Of nft, and in the same form.
    ruleset.tables.shift_remove("kube-proxy");
    state.add_save(&ruleset);
    if mode == Mode::Nftables {
        state.add_nft(&[table(standing, name)]);
    }
    state.set_routing(Routing::read(family, "", routes, ""));
    state
}

/// How many services were asked about.
#[derive(Debug, Default)]
struct Asked {
    walked: usize,
    translated: usize,
}

#[test]
fn whatever_kube_proxy_wrote_of_a_service_without_affinity_leads_to_its_endpoints_by_equal_shares()
{
    let mut asked = Asked::default();
    for (name, mode, worlds) in corpus() {
        for world in &worlds {
            let at = format!("{name} world {}", world.setup.seed);
            ask(world, mode, &at, &mut asked);
        }
    }
    assert!(
        asked.walked > 1000 && asked.translated * 2 > asked.walked,
        "{asked:?}"
    );
}

fn ask(world: &World, mode: Mode, at: &str, asked: &mut Asked) {
    let standing = written(world);
    // Whom a service with affinity remembers is in no dump of iptables.
    for served in services(world).iter().filter(|it| !it.affinity) {
        let family = if served.at.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        let state = state(&standing, mode, family);
        let at = format!("{at} {served:?}");
        let paths = ways(&state, served, &at);
        let translated = leads_to_endpoints(&paths, &at);
        asked.walked += 1;
        asked.translated += usize::from(translated);
    }
}

/// The ways to a service. None of them assumes anything.
fn ways(state: &State, served: &Served, at: &str) -> Vec<walk::Path> {
    let from = match served.at {
        SocketAddr::V4(_) => "203.0.113.99:40000",
        SocketAddr::V6(_) => "[fd00:99::1]:40000",
    };
    let mut packet = Packet::syn(from.parse().unwrap(), served.at).by("eth0");
    packet.protocol = served.protocol;
    let walk = walk(state, &packet);
    for path in &walk.paths {
        assert!(path.assumes().next().is_none(), "{at}: {path:#?}");
    }
    walk.paths
}

/// Whether it is translated, in equal shares. If not, it does not arrive either.
fn leads_to_endpoints(paths: &[walk::Path], at: &str) -> bool {
    let mut shares: BTreeMap<SocketAddr, f64> = BTreeMap::new();
    let translates = |effect: &Effect| matches!(effect, Effect::Dnat(..));
    for path in paths {
        if path.rules().any(|(.., effect)| translates(effect)) {
            let end = SocketAddr::new(path.packet.dst, path.packet.dport);
            *shares.entry(end).or_default() += path.share;
        } else {
            assert!(!path.end.arrives(), "{at}: {path:#?}");
        }
    }
    let sum: f64 = shares.values().sum();
    if !shares.is_empty() {
        assert!((sum - 1.0).abs() < 1e-6, "{at}: {shares:?}");
        let fair = sum / shares.len() as f64;
        let is_fair = |share: &f64| (share - fair).abs() < 1e-4;
        assert!(shares.values().all(is_fair), "{at}: {shares:?}");
    }
    !shares.is_empty()
}
