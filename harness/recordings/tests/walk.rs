//! Packets walk through what real kube-proxies left standing: to each service's endpoints by their shares, and nothing that
//! they write is unknown on the way.
//!
//! Of each place counts what kube-proxy wrote last, not what a third party did to it afterwards: kube-proxy need not notice.
//! In nftables mode the flushed chain of an endpoint stays empty until the endpoint changes, and swallows its share of the
//! connections (kube-proxy 1.35.4, world 49).

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use chainbreak_netfilter::{
    Family, Rule, Ruleset,
    nft::NftTable,
    walk::{self, Effect, Packet, Protocol, Routing, State, walk},
};
use chainbreak_recordings::{Mode, Operation, Standing, World, file};
use serde_json::Value;

/// A service's port with what serves it.
#[derive(Debug)]
struct Served {
    protocol: Protocol,
    at: SocketAddr,
    affinity: bool,
}

/// What kube-proxy wrote last of each place.
fn written(world: &World) -> Standing {
    let mut standing = Standing::default();
    for round in &world.rounds {
        standing.change(&round.after);
    }
    standing
}

/// The cluster IPs that there are at the end.
fn services(world: &World) -> Vec<Served> {
    let mut objects: BTreeMap<(String, String), &Value> = BTreeMap::new();
    for operation in world.rounds.iter().flat_map(|round| &round.operations) {
        let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        match operation {
            Operation::Put(object) if object["kind"] == "Service" => {
                let about = &object["metadata"];
                let text = |name: &str| about[name].as_str().unwrap_or_default();
                objects.insert(key(text("namespace"), text("name")), object);
            }
            Operation::Delete {
                kind,
                namespace,
                name,
            } if kind == "Service" => {
                objects.remove(&key(namespace, name));
            }
            _ => {}
        }
    }
    objects.values().flat_map(|object| ports(object)).collect()
}

/// Labels of services that kube-proxy passes over.
const OTHERS: [&str; 2] = [
    "service.kubernetes.io/service-proxy-name",
    "service.kubernetes.io/headless",
];

fn ports(service: &Value) -> Vec<Served> {
    let spec = &service["spec"];
    let ip = spec["clusterIP"].as_str().map(str::parse);
    let labels = &service["metadata"]["labels"];
    let is_others = OTHERS.iter().any(|it| !labels[it].is_null());
    let (Some(Ok(ip)), false) = (ip, is_others) else {
        return Vec::new();
    };
    let ports = spec["ports"].as_array().into_iter().flatten();
    let served = |port: &Value| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_lowercase();
        let number = u16::try_from(port["port"].as_u64()?).ok()?;
        Some(Served {
            protocol: Protocol::parse(&protocol)?,
            at: SocketAddr::new(ip, number),
            affinity: spec["sessionAffinity"] == "ClientIP",
        })
    };
    ports.filter_map(served).collect()
}

/// The table as nft would have listed it.
fn table(standing: &Standing, family: &str) -> NftTable {
    let mut table = NftTable {
        family: family.to_owned(),
        name: "kube-proxy".to_owned(),
        ..NftTable::default()
    };
    for (place, lines) in standing.places() {
        let words: Vec<&str> = place.split(' ').collect();
        let [of, "kube-proxy", word, name] = *words.as_slice() else {
            continue;
        };
        if of != family {
            continue;
        }
        let is_about = |line: &&String| {
            ["type ", "comment ", "flags ", "timeout "]
                .iter()
                .any(|it| line.starts_with(it))
        };
        let (about, rest): (Vec<&String>, Vec<&String>) = lines.iter().partition(is_about);
        if word == "chain" {
            let chain = table.table.chains.entry(name.to_owned()).or_default();
            chain.rules = rest.into_iter().map(Rule::new).collect();
        } else {
            let element = |line: &String| line.trim_start_matches("element ").to_owned();
            table
                .sets
                .insert(name.to_owned(), rest.into_iter().map(element).collect());
        }
        table.about.insert(
            format!("{word} {name}"),
            about.into_iter().cloned().collect(),
        );
    }
    table
}

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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut asked = Asked::default();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with(".json.gz") {
            continue;
        }
        let recording = file::read(&path).unwrap();
        let done = |world: &&World| world.rounds.last().is_some_and(|round| !round.stuck);
        for world in recording.worlds.iter().filter(done) {
            let at = format!("{} world {}", path.display(), world.setup.seed);
            ask(world, recording.header.mode, &at, &mut asked);
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
