//! Segments that nobody sent, into the live connections of some traffic.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use chainbreak_model::{
    case::{self, Destination},
    event::EventKind,
};
use chainbreak_probe::wire::{
    Errand,
    craft::{Craft, Report, Segment},
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, api::ListParams};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{ChildStdin, ChildStdout},
    task::JoinHandle,
};

use super::{
    Injection,
    undo::{How, Undo},
};
use crate::{
    cluster::{Cluster, Command, Place, Process},
    infra_error::InfraError,
    log::{EventLog, micros},
    output::ended,
    traffic::addresses_of,
};

/// Crafters at work, one for each place.
pub(super) struct Crafters(Vec<Crafter>);

struct Crafter {
    stdin: ChildStdin,
    /// How many segments it sent, once it is told to end.
    following: JoinHandle<Result<u64, String>>,
}

/// Where a traffic's requests are answered.
#[derive(Default)]
struct Backends {
    servers: BTreeSet<SocketAddr>,
    pods: BTreeSet<Place>,
    nodes: BTreeSet<Place>,
}

impl Injection<'_> {
    /// Starts a crafter in the given place; without one, in each backend's pod, or on its node where a node
    /// is needed.
    pub(super) async fn craft(&mut self, craft: &case::Craft) -> Result<(), InfraError> {
        let case::Craft {
            traffic, segment, ..
        } = craft;
        let what = format!(
            "{} segments into connections of {traffic}",
            segment.as_str()
        );
        let trouble = |why: String| InfraError::new(format!("craft {what}"), why);
        let backends = backends(self.cluster, craft).await.map_err(trouble)?;
        let places = match (&craft.from, segment) {
            (Some(from), _) => BTreeSet::from([Place::from(from)]),
            (None, Segment::StrayHandshake) => backends.nodes,
            (None, Segment::OutOfWindow | Segment::Reset) => backends.pods,
        };
        if places.is_empty() || backends.servers.is_empty() {
            return Err(trouble("nobody answers them".to_owned()));
        }
        let order = Craft {
            servers: backends.servers.into_iter().collect(),
            segment: *segment,
            every_us: micros(craft.every),
        };
        let mut crafters = Vec::new();
        for at in &places {
            let crafter = start(self.cluster, at, &order, self.log);
            crafters.push(crafter.await.map_err(trouble)?);
        }
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        self.say(format!("craft {what} from {}", places.join(", ")));
        self.undo.push(Undo::of(
            format!("no more {what}"),
            How::Craft(Crafters(crafters)),
        ));
        Ok(())
    }
}

impl Crafters {
    /// Ends them. That none of them ever knew a connection is an error: the fault was none.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        let mut sent = 0;
        for Crafter { stdin, following } in self.0.drain(..) {
            drop(stdin);
            sent += following.await.map_err(|error| error.to_string())??;
        }
        if sent == 0 {
            return Err("no connection was seen to send anything into".to_owned());
        }
        Ok(())
    }
}

async fn start(
    cluster: &dyn Cluster,
    at: &Place,
    order: &Craft,
    log: &EventLog,
) -> Result<Crafter, String> {
    let mut process = cluster
        .exec(at, &Command::Probe)
        .await
        .map_err(|error| error.to_string())?;
    let (Some(mut stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
        return Err("its standard input and output are not piped".to_owned());
    };
    let errand = Errand::Craft(order.clone());
    let mut line = serde_json::to_string(&errand).map_err(|error| error.to_string())?;
    line.push('\n');
    let told = stdin.write_all(line.as_bytes()).await;
    told.map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(stdout).lines();
    if next(&mut lines).await? != Some(Report::Started) {
        // What it says on standard error is why.
        return Err(ended(process, "").await.err().unwrap_or_default());
    }
    let following = follow(lines, process, at.to_string(), log.clone());
    Ok(Crafter {
        stdin,
        following: tokio::spawn(following),
    })
}

/// Follows a crafter to its end, and says in the history what it came to.
async fn follow(
    mut lines: Lines<BufReader<ChildStdout>>,
    mut process: Process,
    at: String,
    log: EventLog,
) -> Result<u64, String> {
    let mut connections = BTreeSet::new();
    while let Some(report) = next(&mut lines).await? {
        match report {
            Report::Started => {}
            Report::Crafted { client, server } => {
                connections.insert((client, server));
            }
            Report::Done { segments } => {
                let known = connections.len();
                let text = format!("{at} has crafted {segments} segments into {known} connections");
                log.append(EventKind::Step { text });
                process.wait().await.map_err(|error| error.to_string())?;
                return Ok(segments);
            }
        }
    }
    Err(format!("the crafter in {at} ended before it was told to"))
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<Option<Report>, String> {
    let line = lines.next_line().await.map_err(|error| error.to_string())?;
    let report = line.map(|line| serde_json::from_str(&line));
    report.transpose().map_err(|error| error.to_string())
}

/// A host that answers itself.
fn of_host(cluster: &dyn Cluster, name: &str, port: u16) -> Result<Backends, String> {
    let host = Place::Host(name.to_owned());
    let addresses = addresses_of(cluster, &host).into_iter();
    let mut backends = Backends::default();
    backends
        .servers
        .extend(addresses.map(|it| SocketAddr::new(it, port)));
    if backends.servers.is_empty() {
        return Err(format!("there is no {host}"));
    }
    backends.pods.extend([host]);
    Ok(backends)
}

/// The endpoints of the traffic's Service, or its pod.
async fn backends(cluster: &dyn Cluster, craft: &case::Craft) -> Result<Backends, String> {
    let (namespace, selector, pod) = match &craft.to {
        Destination::Service { namespace, name }
        | Destination::NodePort {
            namespace, name, ..
        } => (
            namespace,
            format!("kubernetes.io/service-name={name}"),
            None,
        ),
        Destination::Pod { namespace, name } => (namespace, String::new(), Some(name)),
        Destination::Host(name) => return of_host(cluster, name, craft.port),
    };
    if let Some(name) = pod {
        return of_pod(cluster, namespace, name, craft.port).await;
    }
    let slices = Api::<EndpointSlice>::namespaced(cluster.api(), namespace);
    let slices = slices.list(&ListParams::default().labels(&selector)).await;
    let mut backends = Backends::default();
    for slice in slices.map_err(|error| error.to_string())? {
        let ports = slice.ports.unwrap_or_default().into_iter();
        let ports: Vec<u16> = ports
            .filter_map(|port| u16::try_from(port.port?).ok())
            .collect();
        for endpoint in slice.endpoints {
            let addresses = endpoint.addresses.iter();
            let addresses = addresses.filter_map(|address| address.parse::<IpAddr>().ok());
            for address in addresses {
                let servers = ports.iter().map(|&port| SocketAddr::new(address, port));
                backends.servers.extend(servers);
            }
            let node = endpoint.node_name.map(|node| Place::Node(node.into()));
            backends.nodes.extend(node);
            let pod = endpoint.target_ref.and_then(|pod| pod.name);
            backends.pods.extend(pod.map(|name| Place::Pod {
                namespace: namespace.clone(),
                name,
            }));
        }
    }
    Ok(backends)
}

async fn of_pod(
    cluster: &dyn Cluster,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Backends, String> {
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(cluster.api(), namespace);
    let pod = pods.get(name).await.map_err(|error| error.to_string())?;
    let status = pod.status.unwrap_or_default();
    let ips = status.pod_ips.unwrap_or_default().into_iter();
    let ips = ips.filter_map(|ip| ip.ip.parse::<IpAddr>().ok());
    let node = pod.spec.and_then(|spec| spec.node_name);
    Ok(Backends {
        servers: ips.map(|ip| SocketAddr::new(ip, port)).collect(),
        pods: BTreeSet::from([Place::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }]),
        nodes: node
            .map(|node| Place::Node(node.into()))
            .into_iter()
            .collect(),
    })
}
