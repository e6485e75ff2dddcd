//! The same rules in a real kernel, with packets to services' addresses: each comes out as the walk says.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use chainbreak_netfilter::{
    Family,
    nft::NftTable,
    walk::{Packet, Protocol},
};
use chainbreak_recordings::{IptablesBackend, Mode, Standing, World as Recorded};
use rand::{Rng, RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::{
    compare::Kernel,
    front::{Backend, Front, restore},
    places::{Place, in_ipv6},
    recorded::{corpus, objects, stood, table},
    talk,
    tally::{Seeds, Tally, inside},
    world::{Sent, World},
};

const NFTABLES: Backend = Backend::Tables("kube-proxy", "cat");

/// One of each release and mode, in both families.
const WORLDS: u64 = 27;

#[test]
fn what_real_kube_proxies_wrote_does_with_packets_what_the_walk_says() {
    inside(
        "kernel::what_real_kube_proxies_wrote_does_with_packets_what_the_walk_says",
        WORLDS,
        compare_worlds,
    );
}

fn compare_worlds(seeds: &Seeds) {
    let corpus = corpus();
    let worlds = corpus.iter().flat_map(|(_, _, worlds)| worlds);
    let addresses: BTreeSet<IpAddr> = worlds.flat_map(node_addresses).collect();
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let mut kernel = Kernel::new(&addresses);
    let mut tally = Tally::default();
    // One release and mode after the other.
    for seed in seeds.each() {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let at = usize::try_from(seed).unwrap() % corpus.len();
        let (name, mode, worlds) = &corpus[at];
        let recorded = worlds.choose(&mut random).unwrap();
        for family in [Family::V4, Family::V6] {
            let world = world(&mut random, recorded, *mode, family);
            let at = format!(
                "seed {seed}, {name} world {} {family:?}",
                recorded.setup.seed
            );
            if !world.packets.is_empty() && !tally.is_over() {
                tally.compare(&mut kernel, &world, &at);
            }
        }
    }
    tally.tell(seeds);
}

fn addresses(list: &Value, key: &str) -> Vec<IpAddr> {
    let list = list.as_array().into_iter().flatten();
    let text = list.filter_map(|it| if key.is_empty() { it } else { &it[key] }.as_str());
    text.filter_map(|it| it.parse().ok()).collect()
}

fn node_addresses(world: &Recorded) -> Vec<IpAddr> {
    addresses(&world.setup.node["status"]["addresses"], "address")
}

/// Where somebody may ask for services: protocols that packets are made of, with addresses and ports.
fn targets(world: &Recorded, mode: Mode) -> Vec<(Protocol, SocketAddr)> {
    let nodes = node_addresses(world);
    let mut targets = Vec::new();
    for service in objects(world) {
        let spec = &service["spec"];
        // Whom a service with affinity remembers is in no listing of iptables.
        if mode == Mode::Iptables && spec["sessionAffinity"] == "ClientIP" {
            continue;
        }
        let ingress = &service["status"]["loadBalancer"]["ingress"];
        let own = [
            addresses(&spec["clusterIPs"], ""),
            addresses(&spec["externalIPs"], ""),
            addresses(ingress, "ip"),
        ];
        for port in spec["ports"].as_array().into_iter().flatten() {
            let protocol = match port["protocol"].as_str() {
                Some("UDP") => Protocol::UDP,
                Some("SCTP") => continue,
                _ => Protocol::TCP,
            };
            let number = |key: &str| u16::try_from(port[key].as_u64()?).ok();
            let at = |addresses: &[IpAddr], port: Option<u16>| {
                let port = port.filter(|it| *it > 0);
                let ends = addresses.iter().filter_map(|it| Some((*it, port?)));
                ends.map(|end| (protocol, SocketAddr::from(end))).collect()
            };
            let asked: [Vec<(Protocol, SocketAddr)>; 2] = [
                at(&own.concat(), number("port")),
                at(&nodes, number("nodePort")),
            ];
            targets.extend(asked.concat());
        }
    }
    targets
}

fn world(random: &mut ChaCha8Rng, recorded: &Recorded, mode: Mode, family: Family) -> World {
    let standing = stood(recorded);
    let (backend, rules) = match (mode, recorded.setup.backend) {
        (Mode::Nftables, _) => (NFTABLES, script(&table(&standing, name(family)))),
        (_, IptablesBackend::Legacy) => (Backend::Legacy, save(&standing, name(family))),
        (_, IptablesBackend::Nft) => (Backend::Nft, save(&standing, name(family))),
    };
    let is_of = |it: &IpAddr| it.is_ipv4() == (family == Family::V4);
    let mut targets = targets(recorded, mode);
    targets.retain(|(_, at)| is_of(&at.ip()));
    let pods = recorded.setup.cluster_cidrs.iter();
    let pod = pods.filter_map(|net| net.hosts().nth(9)).find(is_of);
    // Without a network of pods the family was not served.
    let packets = match pod {
        Some(pod) if !targets.is_empty() => talk::packets(random, 12, |random, sport| {
            let (protocol, at) = *targets.choose(random).unwrap();
            first(random, (protocol, at), pod, sport)
        }),
        _ => Vec::new(),
    };
    World {
        front: Front { family, backend },
        rules,
        rp_filter: [0, 0],
        packets,
    }
}

fn name(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// The first packet of a connection to a service: a pod's, the node's own, or one from outside.
fn first(
    random: &mut impl Rng,
    (protocol, at): (Protocol, SocketAddr),
    pod: IpAddr,
    sport: u16,
) -> Sent {
    let [outside, own] = [[192, 0, 2, 5], [10, 1, 2, 1]].map(|it| {
        let address = Ipv4Addr::from(it);
        if at.is_ipv4() {
            IpAddr::from(address)
        } else {
            in_ipv6(address).into()
        }
    });
    let (from, src) = match random.random_range(0..5) {
        0 => (Place::Node, own),
        1 | 2 => (Place::Server, outside),
        _ => (Place::Client, pod),
    };
    let packet = Packet::new(protocol, SocketAddr::new(src, sport), at);
    talk::sent(random, from, packet)
}

/// What iptables-restore takes. Counters of `nfnetlink_acct` would have to be made first: what names them is left out.
fn save(standing: &Standing, family: &str) -> String {
    let mut standing = standing.clone();
    standing.drop_lines_with("--nfacct-name");
    restore(&[], &[], &[]) + &standing.ruleset(family).to_string()
}

/// What nft takes.
fn script(table: &NftTable) -> String {
    let mut text = format!("table {} {} {{\n", table.family, table.name);
    for (name, about) in &table.about {
        // Two statements, which nft lists in one line.
        let about = about.join("\n").replace(" policy ", "; policy ");
        writeln!(text, "{name} {{\n{about}").unwrap();
        let (word, name) = name.split_once(' ').unwrap();
        if word == "chain" {
            for rule in &table.table.chains[name].rules {
                writeln!(text, "{}", rule.text).unwrap();
            }
        } else if !table.sets[name].is_empty() {
            writeln!(text, "elements = {{ {} }}", table.sets[name].join(", ")).unwrap();
        }
        text.push_str("}\n");
    }
    text + "}\n"
}
