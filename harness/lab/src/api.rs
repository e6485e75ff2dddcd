//! The Kubernetes API of a world, and the objects that are there from the beginning.

use std::{
    collections::BTreeMap,
    future::pending,
    net::{IpAddr, SocketAddr, TcpListener},
    sync::Arc,
};

use chainbreak_apiserver::{Asked, Kubelets, Server, ServerConfig, first_ip};
use chainbreak_engine::log::EventLog;
use chainbreak_model::{
    case::{ApiWay, Case, IpFamily, PodOwner},
    event::EventKind,
    names::NodeName,
};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::{
    addresses::{API_PORT, SERVICE_PORT, block},
    error::LabError,
    world::{Node, World},
};

mod calico;
pub(crate) mod endpoint;

/// Agents of many nodes come at once, and a connection that finds the queue full waits a second.
const BACKLOG: u32 = 4096;
/// Who makes the first objects.
const FIELD_MANAGER: &str = "chainbreak-lab";

/// Where the API answers, in the world only: itself, or the Service `kubernetes`, which a node has to translate.
pub(crate) fn address(world: &World, way: ApiWay) -> SocketAddr {
    match way {
        ApiWay::Direct => SocketAddr::new(world.plan.api(), API_PORT),
        ApiWay::Service => {
            let ranges = world.families.services(world.plan.services());
            SocketAddr::new(first_ip(ranges[0]), SERVICE_PORT)
        }
    }
}

/// The same as a URL: plain HTTP.
pub(crate) fn url(world: &World, way: ApiWay) -> String {
    format!("http://{}", address(world, way))
}

/// The server of a world, not yet listening. What an agent asks for in vain is in the history when it
/// asks first: a report shows what the lab lacks.
pub(crate) fn server(
    world: &World,
    seed: u64,
    log: EventLog,
    kubelets: Arc<dyn Kubelets>,
) -> Arc<Server> {
    let nodes = nodes_by_address(world);
    Server::new(ServerConfig {
        service_cidrs: world.families.services(world.plan.services()),
        // As every cluster has it: an agent may come by the Service `kubernetes`, and a partial sync refers to it.
        advertised: Some(endpoint::address(world, 0)),
        seed,
        kubelets: Some(kubelets),
        on_unknown: Some(Arc::new(move |asked| {
            let (text, times) = (said(asked, &nodes), None);
            log.append(EventKind::UnknownRequest { text, times });
        })),
        ..ServerConfig::new(Arc::new(Timestamp::now))
    })
}

/// Which node has an address of the underlay.
pub(crate) fn nodes_by_address(world: &World) -> BTreeMap<IpAddr, NodeName> {
    let families = world.families.wired();
    let of = |family: IpFamily| {
        let nodes = world.nodes();
        nodes.map(move |node| (family.address(node.address), node.name.clone()))
    };
    families.flat_map(of).collect()
}

/// A request and who made it: the node of the peer's address, and the program as it calls itself.
fn said(asked: &Asked, nodes: &BTreeMap<IpAddr, NodeName>) -> String {
    let program = match &*asked.user_agent {
        "" => "a program without a name",
        name => name,
    };
    match nodes.get(&asked.peer) {
        Some(node) => format!("{asked} to {program} on {node}"),
        None => format!("{asked} to {program} at {}", asked.peer),
    }
}

/// Listens on the underlay, in the worker's own network namespace, and nowhere else: in each family that is wired.
pub(crate) fn listen(world: &World) -> Result<Vec<TcpListener>, LabError> {
    let families = world.families.wired();
    let addresses = families.map(|family| family.address(world.plan.api()));
    let addresses = addresses.map(|address| SocketAddr::new(address, API_PORT));
    addresses.map(listen_at).collect()
}

/// Listens at an address of the worker's.
pub(crate) fn listen_at(address: SocketAddr) -> Result<TcpListener, LabError> {
    let listening = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    listening().map_err(|source| LabError::Listen { address, source })
}

/// Serves the API until the world is destroyed.
pub(crate) async fn serve(server: Arc<Server>, listener: TcpListener, log: EventLog) {
    serve_until(server, listener, log, pending()).await;
}

/// As [`serve`], until `over`; its connections are closed then.
pub(crate) async fn serve_until(
    server: Arc<Server>,
    listener: TcpListener,
    log: EventLog,
    over: impl Future<Output = ()>,
) {
    if let Err(error) = server.serve_until(listener, over).await {
        log.append(EventKind::Trouble {
            text: format!("the API server ended: {error}"),
        });
    }
}

/// How often requests came again for something that the server does not have.
pub(crate) fn note_unknown(server: &Server, world: &World, log: &EventLog) {
    let nodes = nodes_by_address(world);
    for (asked, count) in server.unknown_requests() {
        if count > 1 {
            let (text, times) = (said(&asked, &nodes), Some(count));
            log.append(EventKind::UnknownRequest { text, times });
        }
    }
}

/// A client whose connections leave from the calling thread's place.
pub(crate) fn client(url: &str) -> Result<Client, LabError> {
    let uri = url
        .parse()
        .expect("the URL is made of an address and a port");
    let mut config = Config::new(uri);
    // Plain HTTP needs nobody's certificates; without a word each client would read the whole machine's.
    config.root_cert = Some(Vec::new());
    Client::try_from(config).map_err(refused("make a client"))
}

/// Nodes, ready and with their pods' addresses, and Calico's configuration.
pub(crate) async fn provision(client: &Client, world: &World, case: &Case) -> Result<(), LabError> {
    let calico = case.cluster.calico.as_ref();
    let annotated = calico.is_some_and(|calico| calico.pods == PodOwner::Calico);
    let nodes = world.nodes();
    try_join_all(nodes.map(|node| register(client, world, node, annotated))).await?;
    calico::provision(client, world, case).await
}

/// Calico's installation of another version, over the one that is there.
pub(crate) async fn upgrade_calico(client: &Client, version: &str) -> Result<(), LabError> {
    calico::upgrade(client, version).await
}

async fn register(
    client: &Client,
    world: &World,
    node: &Node,
    annotated: bool,
) -> Result<(), LabError> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let (mut object, status) = node_object(world, node);
    if annotated {
        let prefix = world.plan.underlay_prefix();
        object["metadata"]["annotations"] = calico::node_addresses(world, node, prefix);
    }
    let what = format!("register node {}", node.name);
    let object = serde_json::from_value(object).expect("a node is a node");
    let created = nodes.create(&PostParams::default(), &object).await;
    created.map_err(refused(what.clone()))?;
    let parameters = PatchParams::apply(FIELD_MANAGER);
    let patched = nodes
        .patch_status(node.name.as_str(), &parameters, &Patch::Merge(status))
        .await;
    patched.map(drop).map_err(refused(what))
}

fn node_object(world: &World, node: &Node) -> (Value, Value) {
    let pods = world.families.nets(block(world.pools.main(), node.number));
    let internal = world.families.addresses(node.address).into_iter();
    let mut addresses: Vec<Value> = internal
        .map(|address| json!({ "type": "InternalIP", "address": address }))
        .collect();
    addresses.push(json!({ "type": "Hostname", "address": node.name }));
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
            },
        },
        "spec": { "podCIDR": pods.first(), "podCIDRs": pods },
    });
    let status = json!({ "status": {
        "addresses": addresses,
        "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
        "nodeInfo": {
            "architecture": std::env::consts::ARCH, "operatingSystem": "linux",
            "bootID": "", "containerRuntimeVersion": "chainbreak", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "v1.35.0", "machineID": "",
            "osImage": "chainbreak lab", "systemUUID": "",
        },
    }});
    (object, status)
}

fn refused(what: impl Into<String>) -> impl FnOnce(kube::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Api {
        what,
        source: Box::new(source),
    }
}
