//! What recorded worlds hold: what kube-proxy left standing, and the addresses of services.

use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use chainbreak_netfilter::{
    nft::{NftTable, Tables},
    walk::Protocol,
};
use chainbreak_recordings::{Mode, Operation, Standing, World, file};
use serde_json::Value;

/// A service's port with what serves it.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) protocol: Protocol,
    pub(crate) at: SocketAddr,
    pub(crate) affinity: bool,
}

/// What kube-proxy wrote last of each place, and not what a third party did to it afterwards: kube-proxy need not notice.
/// In nftables mode the flushed chain of an endpoint stays empty until the endpoint changes, and swallows its share of the
/// connections (kube-proxy 1.35.4, world 49).
pub(crate) fn written(world: &World) -> Standing {
    let mut standing = Standing::default();
    for round in &world.rounds {
        standing.change(&round.after);
    }
    standing
}

/// What stood in the kernel at the end, whoever wrote it.
pub(crate) fn stood(world: &World) -> Standing {
    let mut standing = Standing::default();
    for round in &world.rounds {
        for operation in &round.operations {
            if let Operation::Harm { after, .. } = operation {
                standing.change(after);
            }
        }
        standing.change(&round.after);
    }
    standing
}

/// The Services that there are at the end.
pub(crate) fn objects(world: &World) -> Vec<&Value> {
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
    objects.into_values().collect()
}

/// Their cluster IPs.
pub(crate) fn services(world: &World) -> Vec<Served> {
    let objects = objects(world).into_iter();
    objects.flat_map(ports).collect()
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

/// kube-proxy's table as nft would have listed it.
pub(crate) fn table(standing: &Standing, family: &str) -> NftTable {
    let table = Tables::of_places(standing.places()).listed_table(family, "kube-proxy");
    table.unwrap_or_default()
}

/// The corpus: each file's name, mode and worlds that kube-proxy came to rest in.
pub(crate) fn corpus() -> Vec<(String, Mode, Vec<World>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let paths = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = paths.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".json.gz"));
    paths.sort();
    let read = |path: std::path::PathBuf| {
        let recording = file::read(&path).unwrap();
        let done = |world: &World| world.rounds.last().is_some_and(|round| !round.stuck);
        let worlds = recording.worlds.into_iter().filter(done).collect();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, recording.header.mode, worlds)
    };
    paths.into_iter().map(read).collect()
}
