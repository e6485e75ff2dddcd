//! Driving traffic: a probe in each place that a scenario names, its samples into the history.

#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use chainbreak_model::{
    case::{Destination, IpFamily, Traffic},
    event::{EventKind, WatchTarget},
    names::{NodeName, TrafficName},
};
use chainbreak_probe::wire::{Errand, Order, Outcome, Protocol, Report};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use indexmap::IndexMap;
use k8s_openapi::api::core::v1::{Node, NodeAddress, Pod, Service};
use kube::{Api, Client, ResourceExt};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::ChildStdin,
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    answered_by::Answered,
    cluster::{Cluster, Command, Place, Process},
    infra_error::InfraError,
    log::{EventLog, micros},
};

/// How long a probe may take beside the timeout of its requests until the first has ended, and from the order to end until
/// it has.
const BESIDE: Duration = Duration::from_secs(10);

/// How many probes begin at a time: each is a process, on somebody's cluster one through the API.
const AT_ONCE: usize = 8;

/// Starts all traffic of a case, side by side: each waits for what becomes of one request, which may be a timeout. In the case's order.
pub(crate) async fn begin(
    cluster: &dyn Cluster,
    traffic: &IndexMap<TrafficName, Traffic>,
    log: &EventLog,
) -> Result<Vec<Flow>, InfraError> {
    let flows = (0..)
        .zip(traffic)
        .map(|(number, (name, traffic))| Flow::start(cluster, number, name, traffic, log));
    stream::iter(flows).buffered(AT_ONCE).try_collect().await
}

/// Stops it, and waits for what is under way.
pub(crate) async fn end(flows: Vec<Flow>) -> Result<(), InfraError> {
    try_join_all(flows.into_iter().map(Flow::stop))
        .await
        .map(drop)
}

/// A running probe.
#[derive(Debug)]
pub(crate) struct Flow {
    name: TrafficName,
    /// Where its requests go.
    target: SocketAddr,
    answered: watch::Receiver<Answered>,
    /// How long it may take to end.
    within: Duration,
    stdin: ChildStdin,
    reader: JoinHandle<Result<(), InfraError>>,
    process: Process,
}

impl Flow {
    /// Starts the probe of the traffic with that number in its case, and waits for its first answer or failure.
    pub(crate) async fn start(
        cluster: &dyn Cluster,
        number: u16,
        name: &TrafficName,
        traffic: &Traffic,
        log: &EventLog,
    ) -> Result<Self, InfraError> {
        let within = traffic.timeout + BESIDE;
        let begun = timeout(within, Self::begin(cluster, number, name, traffic, log)).await;
        begun.unwrap_or_else(|_elapsed| {
            let why = format!("its probe had no answer and no failure in {within:?}");
            Err(InfraError::new(format!("start {name}"), why))
        })
    }

    async fn begin(
        cluster: &dyn Cluster,
        number: u16,
        name: &TrafficName,
        traffic: &Traffic,
        log: &EventLog,
    ) -> Result<Self, InfraError> {
        let target = target(cluster, traffic).await?;
        let order = Order {
            target,
            every_us: micros(traffic.every),
            timeout_us: micros(traffic.timeout),
            protocol: traffic.protocol,
            connections: traffic.connections,
            count: None,
            source: None,
            number,
        };
        let trouble =
            |error: &dyn std::fmt::Display| InfraError::new(format!("start {name}"), error);
        let place = Place::from(&traffic.from);
        let mut process = cluster
            .exec(&place, &Command::Probe)
            .await
            .map_err(|error| trouble(&error))?;
        let (Some(mut stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(trouble(&"its standard input and output are not piped"));
        };
        let mut line =
            serde_json::to_string(&Errand::Requests(order)).map_err(|error| trouble(&error))?;
        line.push('\n');
        stdin
            .write_all(line.as_bytes())
            .await
            .map_err(|error| trouble(&error))?;
        let (last, mut answered) = watch::channel(None);
        let reading = read(
            (name.clone(), target),
            BufReader::new(stdout),
            log.clone(),
            last,
        );
        let reader = tokio::spawn(reading);
        if answered.changed().await.is_err() {
            let ended = reader.await.map_err(|error| trouble(&error))?;
            let why = match ended {
                Ok(()) => "the probe ended at once".to_owned(),
                Err(trouble) => trouble.to_string(),
            };
            return Err(trouble(&format!("{why}{}", last_words(&mut process).await)));
        }
        Ok(Self {
            name: name.clone(),
            target,
            answered,
            within: traffic.timeout + BESIDE,
            stdin,
            reader,
            process,
        })
    }

    /// The traffic's name.
    pub(crate) fn name(&self) -> &TrafficName {
        &self.name
    }

    /// Where its requests go.
    pub(crate) fn target(&self) -> SocketAddr {
        self.target
    }

    /// What became of its last request.
    pub(crate) fn answered(&self) -> &watch::Receiver<Answered> {
        &self.answered
    }

    /// Stops sending and waits for what is under way.
    pub(crate) async fn stop(self) -> Result<(), InfraError> {
        let (name, within) = (self.name.clone(), self.within);
        let ended = timeout(within, self.end()).await;
        ended.unwrap_or_else(|_elapsed| {
            let why = format!("its probe did not end in {within:?}");
            Err(InfraError::new(format!("end {name}"), why))
        })
    }

    async fn end(self) -> Result<(), InfraError> {
        let Self {
            name,
            stdin,
            reader,
            mut process,
            ..
        } = self;
        drop(stdin);
        let trouble = |error: &dyn std::fmt::Display| InfraError::new(format!("end {name}"), error);
        let heard = reader.await.map_err(|error| trouble(&error))?;
        let status = process.wait().await.map_err(|error| trouble(&error))?;
        if heard.is_ok() && status.success() {
            return Ok(());
        }
        let why = heard.map_or_else(|trouble| trouble.to_string(), |()| status.to_string());
        Err(trouble(&format!("{why}{}", last_words(&mut process).await)))
    }
}

/// What the ended probe said on standard error, as an addition to a sentence.
async fn last_words(process: &mut Process) -> String {
    let mut words = String::new();
    if let Some(stderr) = &mut process.stderr {
        // What cannot be read is not said; the sentence stands without it.
        drop(stderr.read_to_string(&mut words).await);
    }
    match words.trim() {
        "" => String::new(),
        words => format!(": {words}"),
    }
}

/// Copies the probe's reports into the history. `last` is told with each sample.
async fn read(
    (name, target): (TrafficName, SocketAddr),
    stdout: BufReader<tokio::process::ChildStdout>,
    log: EventLog,
    last: watch::Sender<Answered>,
) -> Result<(), InfraError> {
    let trouble = |error: &dyn std::fmt::Display| InfraError::new(format!("hear of {name}"), error);
    let mut start_us = 0;
    let mut lines = stdout.lines();
    while let Some(line) = lines.next_line().await.map_err(|error| trouble(&error))? {
        match serde_json::from_str(&line).map_err(|error| trouble(&error))? {
            Report::Started { monotonic_us, from } => {
                start_us = log.at_monotonic(monotonic_us);
                log.append(EventKind::Aimed {
                    traffic: name.clone(),
                    at: target,
                    from,
                });
            }
            Report::Sample(sample) => {
                let what = EventKind::Sample {
                    traffic: name.clone(),
                    sample: sample.clone(),
                };
                log.append_at(start_us + sample.at_us, what);
                last.send_replace(match sample.outcome {
                    Outcome::Answered { local, .. } => Some((Instant::now(), local)),
                    _ => None,
                });
            }
            Report::Done { sent, lateness } => {
                // Whoever doubts a gap looks here first: a starved probe sends late.
                let traffic = name.clone();
                let watched = WatchTarget::Requests { traffic };
                log.watched(watched, start_us, log.now_us(), None);
                let value = format!(
                    "{sent} requests, sent late by {} µs in the median, {} µs at 99 %, {} µs at most",
                    lateness.median_us, lateness.p99_us, lateness.max_us
                );
                log.append(EventKind::Fact {
                    name: format!("probe {name}"),
                    value,
                });
                return Ok(());
            }
        }
    }
    Err(trouble(&"the probe ended before it was told to"))
}

/// Looks the address up in the API: the one of the family that traffic asks for, or the first.
async fn target(cluster: &dyn Cluster, traffic: &Traffic) -> Result<SocketAddr, InfraError> {
    let client = cluster.api();
    let (all, what, port) = match &traffic.to {
        Destination::Service { namespace, name } => {
            let spec = service(client, namespace, name).await?.spec;
            let all = spec.and_then(|spec| spec.cluster_ips);
            let what = format!("service {namespace}/{name}");
            (all.unwrap_or_default(), what, traffic.port)
        }
        Destination::Pod { namespace, name } => {
            let all = pod_ips(client, namespace, name).await?;
            (all, format!("pod {namespace}/{name}"), traffic.port)
        }
        Destination::Host(host) => {
            let all = addresses_of(cluster, &Place::Host(host.clone()));
            let all = all.iter().map(ToString::to_string).collect();
            (all, format!("host {host}"), traffic.port)
        }
        Destination::NodePort {
            node,
            namespace,
            name,
        } => {
            let service = service(client.clone(), namespace, name).await?;
            let port = node_port(&service, traffic.port, traffic.protocol)?;
            let mut all = node_ips(client, node).await?;
            // Of a node's addresses those count that the Service answers at.
            let families = service.spec.and_then(|spec| spec.ip_families);
            let families = families.unwrap_or_default();
            let rank = |ip: &String| {
                families
                    .iter()
                    .position(|it| Some(it.as_str()) == family(ip))
            };
            all.retain(|ip| rank(ip).is_some());
            all.sort_by_key(rank);
            (all, format!("service {namespace}/{name} at {node}"), port)
        }
    };
    address(&all, traffic.family, &what).map(|ip| SocketAddr::new(ip, port))
}

/// The addresses by which a host is meant, one of each family.
pub(crate) fn addresses_of(cluster: &dyn Cluster, place: &Place) -> Vec<IpAddr> {
    let all = cluster.places().into_iter();
    all.filter(|(at, _)| at == place)
        .map(|(_, address)| address)
        .collect()
}

async fn pod_ips(client: Client, namespace: &str, name: &str) -> Result<Vec<String>, InfraError> {
    let pod = Api::<Pod>::namespaced(client, namespace).get(name).await;
    let looked = |error| InfraError::new(format!("look up pod {namespace}/{name}"), error);
    let ips = pod.map_err(looked)?.status.and_then(|it| it.pod_ips);
    Ok(ips.into_iter().flatten().map(|ip| ip.ip).collect())
}

async fn node_ips(client: Client, name: &NodeName) -> Result<Vec<String>, InfraError> {
    let node = Api::<Node>::all(client).get(name.as_str()).await;
    let node = node.map_err(|error| InfraError::new(format!("look up node {name}"), error))?;
    let addresses = node.status.and_then(|status| status.addresses);
    let internal = |it: NodeAddress| (it.type_ == "InternalIP").then_some(it.address);
    Ok(addresses
        .into_iter()
        .flatten()
        .filter_map(internal)
        .collect())
}

/// `IPv4`, as the API writes it, of an address that is one.
fn family(ip: &str) -> Option<&'static str> {
    ip.parse().ok().map(|ip| IpFamily::of(ip).as_str())
}

fn address(all: &[String], family: Option<IpFamily>, of: &str) -> Result<IpAddr, InfraError> {
    let mut all = all.iter().filter_map(|ip| ip.parse().ok());
    let found = all.find(|ip| family.is_none_or(|family| IpFamily::of(*ip) == family));
    let which = family.map_or("", IpFamily::as_str);
    found.ok_or_else(|| InfraError::new("find the target", format!("{of} has no {which} address")))
}

fn node_port(service: &Service, port: u16, protocol: Protocol) -> Result<u16, InfraError> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter());
    let mut ports = ports.flatten().filter(|it| {
        let carried = it.protocol.as_deref().unwrap_or("TCP");
        it.port == i32::from(port) && carried == protocol.as_str()
    });
    let number = ports.next().and_then(|port| port.node_port);
    number
        .and_then(|number| u16::try_from(number).ok())
        .ok_or_else(|| {
            let name = service.name_any();
            InfraError::new(
                "find the target",
                format!("service {name} has no node port for {port}"),
            )
        })
}

async fn service(client: Client, namespace: &str, name: &str) -> Result<Service, InfraError> {
    let service = Api::<Service>::namespaced(client, namespace)
        .get(name)
        .await;
    service.map_err(|error| InfraError::new(format!("look up service {namespace}/{name}"), error))
}
