//! Hosts outside of the cluster: containers on its Docker network, made and removed with the case by testcontainers. A
//! container beside the cluster has labels by which a killed run's are found ([`crate::made::clean`]).

mod container;
mod wiring;

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use chainbreak_model::case::{ClusterSpec, HostSpec, IpFamily};
use container::Whose;
use futures::future::{join_all, try_join_all};
use indexmap::IndexMap;
use kube::Client;
use testcontainers::{ContainerAsync, GenericImage};
use wiring::{Neighbours, PROTOCOL};

use crate::{
    error::KindError,
    made::{
        docker,
        raise::Raising,
        spec::{Network, Spec},
    },
    name::ClusterName,
    shared::{
        cluster::Host,
        nodes::{Node, Nodes},
        program::VOLUME,
    },
    tool::Tool,
    wait,
};

/// What a command in a container may take.
const SHORT: Duration = Duration::from_secs(30);
/// nginx answers within some milliseconds.
const ANSWERS: Duration = Duration::from_secs(20);
/// Reads a batch of `ip`. A host passes nothing on, and goes by the scenario's routes: not by what a node would rather have it do.
const WIRE: &str = "for it in ip_forward conf/all/accept_redirects conf/eth0/accept_redirects; do \
    echo 0 > /proc/sys/net/ipv4/$it || exit; done; \
    if [ -d /proc/sys/net/ipv6/conf/eth0 ]; then \
    echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_redirects || exit; fi; \
    exec ip -batch -";

type Container = ContainerAsync<GenericImage>;

/// All hosts of a case.
#[derive(Default)]
pub(crate) struct Hosts {
    pub(super) all: IndexMap<String, Host>,
    /// What Docker gave each, by name.
    own: IndexMap<String, Vec<IpAddr>>,
    containers: Mutex<Vec<Container>>,
    /// The network that the nodes are on, too.
    network: String,
    /// Where routes to them are.
    nodes: Vec<Node>,
    families: Vec<IpFamily>,
}

/// Of what hosts are made.
#[derive(Clone, Copy)]
struct Parts<'a> {
    /// The image of nodes.
    node: &'a str,
    /// The image of what answers.
    nginx: &'a str,
}

impl Raising<'_> {
    /// Starts what the case has outside of the cluster, as soon as that has containers: it need not be ready.
    pub(super) async fn start_hosts(&self, spec: &Spec, nginx: &str) -> Result<Hosts, KindError> {
        let cluster = &self.case.cluster;
        if cluster.hosts.is_empty() {
            return Ok(Hosts::of(cluster));
        }
        let names: Vec<&str> = cluster.hosts.keys().map(String::as_str).collect();
        self.say(format!(
            "raising outside of the cluster: {}",
            names.join(", ")
        ));
        if cluster.hosts.values().any(|host| host.nginx.is_some()) {
            docker::have(nginx).await?;
        }
        let parts = Parts {
            node: &spec.image.name,
            nginx,
        };
        let hosts = Hosts::start(cluster, &spec.name(), parts).await?;
        for (name, host) in cluster.hosts.iter() {
            let nginx = host.nginx.map(|_| format!(" with {nginx}"));
            let value = format!("a container{}", nginx.unwrap_or_default());
            self.fact(format!("host {name}"), value);
        }
        Ok(hosts)
    }

    /// Has them and the nodes reach each other.
    pub(super) async fn wire_hosts(
        &self,
        hosts: &mut Hosts,
        client: &Client,
        nodes: &Nodes,
        spec: &Spec,
    ) -> Result<(), KindError> {
        let cluster = &self.case.cluster;
        hosts.nodes.clone_from(&nodes.0);
        hosts.forget_routes().await?;
        if cluster.hosts.is_empty() {
            return Ok(());
        }
        let pods = match spec.network {
            Network::Kindnet => nodes.pods(client).await?,
            // Its addresses are of blocks that it gives to nodes as they need them.
            Network::Calico => Vec::new(),
        };
        wiring::check(cluster, &pods)?;
        let mut neighbours = Neighbours {
            hosts: hosts.own.clone(),
            pods,
            ..Neighbours::default()
        };
        for (node, number) in nodes.0.iter().zip(1..) {
            let own = addresses(&spec.name().container(number), &hosts.network).await?;
            neighbours.nodes.insert(node.name.to_string(), own);
        }
        hosts.wire(cluster, &neighbours).await
    }
}

impl Hosts {
    /// None yet.
    fn of(cluster: &ClusterSpec) -> Self {
        Self {
            families: cluster.ip_families.clone(),
            ..Self::default()
        }
    }

    /// Makes the hosts of a case beside its cluster. They answer on the network of its nodes when this returns.
    async fn start(
        cluster: &ClusterSpec,
        name: &ClusterName,
        parts: Parts<'_>,
    ) -> Result<Self, KindError> {
        let first = name.container(1);
        let mut raised = Self {
            network: network_of(&first).await?,
            ..Self::of(cluster)
        };
        let volume = docker::volume(&first, VOLUME).await?;
        let started = cluster.hosts.keys().map(async |host| {
            let whose = Whose {
                cluster: name,
                host,
            };
            let request = whose.pause(parts.node, &raised.network, &volume);
            raised.keep(container::start(request).await?);
            let own = addresses(&name.beside("host", host), &raised.network).await?;
            Ok((host.clone(), own))
        });
        let started = join_all(started).await.into_iter();
        raised.own = started.collect::<Result<_, KindError>>()?;
        let hosts = raised.own.iter().map(|(host, own)| {
            let raised = Host {
                addresses: wiring::main_addresses(cluster, host, own),
                entry: docker::entry(&name.beside("host", host)),
                program: container::PROGRAM.to_owned(),
            };
            (host.clone(), raised)
        });
        raised.all = hosts.collect();
        // Each comes to its end: who makes containers is not to be broken off.
        let hosts = cluster.hosts.iter();
        let served = hosts.map(|(host, spec)| raised.serve(name, host, spec, parts));
        let served = join_all(served).await.into_iter();
        served.collect::<Result<(), _>>()?;
        Ok(raised)
    }

    /// Addresses and routes of all hosts, and routes of all nodes.
    async fn wire(&self, cluster: &ClusterSpec, neighbours: &Neighbours) -> Result<(), KindError> {
        let hosts = self.all.iter().map(async |(name, host)| {
            let batch = neighbours.of_host(cluster, name);
            told(&host.entry, &["sh", "-c", WIRE], batch).await
        });
        try_join_all(hosts).await?;
        let batch = neighbours.of_node(cluster);
        let nodes = self.nodes.iter().filter(|_| !batch.is_empty());
        let nodes = nodes.map(|node| node.feed(&["ip", "-batch", "-"], &batch));
        try_join_all(nodes).await.map(drop)
    }

    /// nginx of a host that has one, which accepts connections when this returns.
    async fn serve(
        &self,
        cluster: &ClusterName,
        host: &str,
        spec: &HostSpec,
        parts: Parts<'_>,
    ) -> Result<(), KindError> {
        let (Some(port), Some(raised)) = (spec.nginx, self.all.get(host)) else {
            return Ok(());
        };
        let has_v6 = self.families.contains(&IpFamily::V6);
        let request = Whose { cluster, host }.nginx(parts.nginx, port, has_v6);
        self.keep(container::start(request).await?);
        let listeners = ["ss", "-Hltn", &format!("sport = :{port}")].map(str::to_owned);
        let argv: Vec<String> = raised.entry.iter().cloned().chain(listeners).collect();
        let look = || async {
            match Tool::new(SHORT, argv.clone()).output().await {
                Ok(listeners) if listeners.trim().is_empty() => Err("nobody listens".to_owned()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        };
        let container = cluster.beside("nginx", host);
        let evidence = || async { docker::said(&container).await };
        let what = format!("nginx on host/{host} listens at {port}");
        wait::until(&what, ANSWERS, look, evidence).await
    }

    /// Removes all of them. Every error.
    pub(crate) async fn end(&self) -> Vec<KindError> {
        let containers = std::mem::take(&mut *self.lock());
        let removed = containers.into_iter().map(Container::rm);
        let removed = join_all(removed).await.into_iter();
        let doing = "remove a container beside the cluster";
        let refused = removed.filter_map(|it| it.map_err(KindError::container(doing)).err());
        refused.collect()
    }

    /// Takes routes of ours from the nodes of a cluster that is kept: this case's, or what a killed run left.
    pub(crate) async fn forget_routes(&self) -> Result<(), KindError> {
        let each = self.families.iter().map(|family| match family {
            IpFamily::V4 => "-4",
            IpFamily::V6 => "-6",
        });
        let flush = each.map(|family| format!("ip {family} route flush proto {PROTOCOL}"));
        let flush = flush.collect::<Vec<_>>().join(" && ");
        let argv = ["sh", "-c", &flush];
        let flushed = self.nodes.iter().map(|node| node.run(&argv));
        try_join_all(flushed).await.map(drop)
    }

    fn keep(&self, container: Container) {
        self.lock().push(container);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Container>> {
        self.containers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The network that the nodes are on.
async fn network_of(first: &str) -> Result<String, KindError> {
    let network = docker::networks(first).await?.into_keys().next();
    let lost = || KindError::Unable(format!("{first} is on no network"));
    network.ok_or_else(lost)
}

async fn addresses(container: &str, network: &str) -> Result<Vec<IpAddr>, KindError> {
    let mut networks = docker::networks(container).await?;
    let lost = || KindError::Unable(format!("{container} is not on the network {network}"));
    networks.remove(network).ok_or_else(lost)
}

/// Runs a command there to its end, with something to read.
async fn told(entry: &[String], argv: &[&str], input: String) -> Result<(), KindError> {
    let argv = argv.iter().map(|&word| word.to_owned());
    let argv = entry.iter().cloned().chain(argv);
    let told = Tool::new(SHORT, argv).reading(input).output().await;
    told.map(drop)
}
