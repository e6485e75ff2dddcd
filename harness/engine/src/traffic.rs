//! Driving traffic: a probe in each place that a scenario names, its samples into the history.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use chainbreak_model::{
    case::{From, To, Traffic},
    event::What,
    names::TrafficName,
};
use chainbreak_probe::wire::{Errand, Order, Report};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, Client};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::ChildStdin,
    sync::oneshot,
    task::JoinHandle,
};

use crate::{
    cluster::{Cluster, Command, Place, Process},
    log::EventLog,
    trouble::Trouble,
};

/// A running probe.
#[derive(Debug)]
pub(crate) struct Flow {
    name: TrafficName,
    stdin: ChildStdin,
    reader: JoinHandle<Result<(), Trouble>>,
    process: Process,
}

impl Flow {
    /// Starts the probe and waits for its first answer or failure.
    pub(crate) async fn start(
        cluster: &dyn Cluster,
        name: &TrafficName,
        traffic: &Traffic,
        log: &EventLog,
    ) -> Result<Self, Trouble> {
        let target = target(cluster, traffic).await?;
        let order = Order {
            target,
            every_us: micros(traffic.every),
            timeout_us: micros(traffic.timeout),
            connections: traffic.connections,
            count: None,
            source: None,
        };
        let trouble = |error: &dyn std::fmt::Display| Trouble::new(format!("start {name}"), error);
        let place = place(&traffic.from);
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
        let (began, begun) = oneshot::channel();
        let reading = read(name.clone(), BufReader::new(stdout), log.clone(), began);
        let reader = tokio::spawn(reading);
        if begun.await.is_err() {
            let ended = reader.await.map_err(|error| trouble(&error))?;
            let why = match ended {
                Ok(()) => "the probe ended at once".to_owned(),
                Err(trouble) => trouble.to_string(),
            };
            return Err(trouble(&format!("{why}{}", last_words(&mut process).await)));
        }
        Ok(Self {
            name: name.clone(),
            stdin,
            reader,
            process,
        })
    }

    /// Stops sending and waits for what is under way.
    pub(crate) async fn stop(self) -> Result<(), Trouble> {
        let Self {
            name,
            stdin,
            reader,
            mut process,
        } = self;
        drop(stdin);
        let trouble = |error: &dyn std::fmt::Display| Trouble::new(format!("end {name}"), error);
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

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Copies the probe's reports into the history. `began` is told at the first sample.
async fn read(
    name: TrafficName,
    stdout: BufReader<tokio::process::ChildStdout>,
    log: EventLog,
    began: oneshot::Sender<()>,
) -> Result<(), Trouble> {
    let trouble = |error: &dyn std::fmt::Display| Trouble::new(format!("hear of {name}"), error);
    let mut began = Some(began);
    let mut start_us = 0;
    let mut lines = stdout.lines();
    while let Some(line) = lines.next_line().await.map_err(|error| trouble(&error))? {
        match serde_json::from_str(&line).map_err(|error| trouble(&error))? {
            Report::Started { monotonic_us } => start_us = case_time(&log, monotonic_us),
            Report::Sample(sample) => {
                let what = What::Sample {
                    traffic: name.clone(),
                    sample: sample.clone(),
                };
                log.append_at(start_us + sample.at_us, what);
                began.take().map(|began| began.send(()));
            }
            Report::Done { sent, lateness } => {
                // Whoever doubts a gap looks here first: a starved probe sends late.
                let value = format!(
                    "{sent} requests, sent late by {} µs in the median, {} µs at 99 %, {} µs at most",
                    lateness.median_us, lateness.p99_us, lateness.max_us
                );
                log.append(What::Fact {
                    name: format!("probe {name}"),
                    value,
                });
                return Ok(());
            }
        }
    }
    Err(trouble(&"the probe ended before it was told to"))
}

/// The case's time of a `CLOCK_MONOTONIC` reading, the clock that `Instant` reads too.
fn case_time(log: &EventLog, monotonic_us: u64) -> u64 {
    let ago = chainbreak_probe::clock::monotonic_us().saturating_sub(monotonic_us);
    Instant::now()
        .checked_sub(Duration::from_micros(ago))
        .map_or(0, |instant| log.at(instant))
}

fn place(from: &From) -> Place {
    match from {
        From::Pod { namespace, name } => Place::Pod {
            namespace: namespace.clone(),
            name: name.clone(),
        },
        From::Node(node) => Place::Node(node.clone()),
        From::Host(host) => Place::Host(host.clone()),
    }
}

/// Looks the address up in the API.
async fn target(cluster: &dyn Cluster, traffic: &Traffic) -> Result<SocketAddr, Trouble> {
    let client = cluster.api();
    let found = match &traffic.to {
        To::Service { namespace, name } => cluster_ip(client, namespace, name).await,
        To::Pod { namespace, name } => pod_ip(client, namespace, name).await,
        To::NodePort {
            node,
            namespace,
            name,
        } => {
            let place = Place::Node(node.clone());
            let address = cluster.places().into_iter().find(|(at, _)| *at == place);
            let address = address
                .ok_or_else(|| Trouble::new("find the target", place))?
                .1;
            let port = node_port(client, namespace, name, traffic.port).await?;
            return Ok(SocketAddr::new(address, port));
        }
    };
    Ok(SocketAddr::new(found?, traffic.port))
}

async fn cluster_ip(client: Client, namespace: &str, name: &str) -> Result<IpAddr, Trouble> {
    let spec = service(client, namespace, name).await?.spec;
    address(
        spec.and_then(|spec| spec.cluster_ip),
        &format!("service {namespace}/{name}"),
    )
}

async fn pod_ip(client: Client, namespace: &str, name: &str) -> Result<IpAddr, Trouble> {
    let what = format!("pod {namespace}/{name}");
    let pod = Api::<Pod>::namespaced(client, namespace).get(name).await;
    let pod = pod.map_err(|error| Trouble::new(format!("look up {what}"), error))?;
    address(pod.status.and_then(|status| status.pod_ip), &what)
}

async fn node_port(client: Client, namespace: &str, name: &str, port: u16) -> Result<u16, Trouble> {
    let ports = service(client, namespace, name)
        .await?
        .spec
        .and_then(|spec| spec.ports);
    let of_port = ports
        .unwrap_or_default()
        .into_iter()
        .find(|p| p.port == i32::from(port));
    of_port
        .and_then(|port| port.node_port)
        .and_then(|port| u16::try_from(port).ok())
        .ok_or_else(|| {
            Trouble::new(
                "find the target",
                format!("{namespace}/{name} has no node port for {port}"),
            )
        })
}

async fn service(client: Client, namespace: &str, name: &str) -> Result<Service, Trouble> {
    let service = Api::<Service>::namespaced(client, namespace)
        .get(name)
        .await;
    service.map_err(|error| Trouble::new(format!("look up service {namespace}/{name}"), error))
}

fn address(text: Option<String>, of: &str) -> Result<IpAddr, Trouble> {
    let text = text.unwrap_or_default();
    text.parse()
        .map_err(|error| Trouble::new(format!("read the address {text:?} of {of}"), error))
}
