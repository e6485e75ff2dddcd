//! The model kube-proxy, live.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::ready,
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::LocalBoxStream};
use ipnet::IpNet;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
    networking::v1::ServiceCIDR,
};
use kube::{Api, Client, runtime::watcher};
use tokio::{sync::watch, time::sleep_until};

use super::{
    Exec, LogSink, drive,
    feed::{Change, feed},
    health,
};
use crate::{
    kube_proxy::{Config, Event, Health, run},
    step::{LogLine, Stepper},
};

/// What kube-proxy's informers leave out (kube-proxy 1.32, server.go).
const SELECTOR: &str = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name";

/// Runs one life of kube-proxy, its health servers with it, and returns the reason for which its
/// process exits.
pub async fn kube_proxy(
    client: Client,
    config: Config,
    exec: Rc<dyn Exec>,
    log: &mut dyn LogSink,
) -> String {
    let mut config = config;
    if config.node_ip.is_none() {
        config.node_ip = node_ip(&client, &config).await;
    }
    let events = events(&client, &config);
    let (publish, published) = watch::channel(Health::new(&config.version));
    let log = RefCell::new(log);
    // The core's clock begins when it is driven, which is now.
    let servers = health::serve(config.clone(), published, Instant::now(), &log);
    let core = Stepper::new(move |io| {
        run(io, config, move |health| {
            publish.send_replace(health.clone());
        })
    });
    let mut say = |line: LogLine| log.borrow_mut().entry(line);
    tokio::select! {
        reason = drive(core, events, exec, &mut say) => reason,
        never = servers => match never {},
    }
}

/// The node's first internal address, asked for before anything else. A node that is not there, or has
/// none, is asked for six times within half a minute (1.20 utils/node.go, `GetNodeIP`); then the rules do
/// without.
async fn node_ip(client: &Client, config: &Config) -> Option<IpAddr> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut pause = Duration::from_secs(1);
    for tries_left in (0..6).rev() {
        let node = nodes.get_opt(&config.node_name).await.ok().flatten();
        let ip = node.and_then(|node| config.family.internal_ip(&node));
        if ip.is_some() || tries_left == 0 {
            return ip;
        }
        sleep_until((Instant::now() + pause).into()).await;
        pause *= 2;
    }
    None
}

fn events(client: &Client, config: &Config) -> LocalBoxStream<'static, Event> {
    let selected = watcher::Config::default().labels(SELECTOR);
    let services = feed::<Service>(Api::all(client.clone()), selected.clone()).map(service);
    let slices = feed::<EndpointSlice>(Api::all(client.clone()), selected).map(slice);
    let own = watcher::Config::default().fields(&format!("metadata.name={}", config.node_name));
    let nodes =
        feed::<Node>(Api::all(client.clone()), own).filter_map(async |change| match change {
            Change::Present(node) => Some(Event::Node(Box::new(node))),
            Change::Gone(..) => Some(Event::NodeGone),
            Change::Listed => None,
        });
    let mut all = vec![
        services.boxed_local(),
        slices.boxed_local(),
        nodes.boxed_local(),
    ];
    if config.follows_service_cidrs() {
        all.push(service_cidrs(client));
    }
    futures::stream::select_all(all).boxed_local()
}

/// Every change tells all of them.
fn service_cidrs(client: &Client) -> LocalBoxStream<'static, Event> {
    let mut known = BTreeMap::new();
    feed::<ServiceCIDR>(Api::all(client.clone()), watcher::Config::default())
        .filter_map(move |change| {
            match change {
                Change::Present(it) => {
                    let spec = it.spec.unwrap_or_default();
                    let cidrs = spec.cidrs.unwrap_or_default().into_iter();
                    let cidrs: Vec<IpNet> = cidrs.filter_map(|it| it.parse().ok()).collect();
                    known.insert(it.metadata.name.unwrap_or_default(), cidrs);
                }
                Change::Gone(_, name) => drop(known.remove(&name)),
                Change::Listed => return ready(None),
            }
            let all = known.values().flatten().copied().collect();
            ready(Some(Event::ServiceCidrs(all)))
        })
        .boxed_local()
}

fn service(change: Change<Service>) -> Event {
    match change {
        Change::Present(service) => Event::Service(Box::new(service)),
        Change::Gone(namespace, name) => Event::ServiceGone { namespace, name },
        Change::Listed => Event::ServicesSynced,
    }
}

fn slice(change: Change<EndpointSlice>) -> Event {
    match change {
        Change::Present(slice) => Event::Slice(Box::new(slice)),
        Change::Gone(namespace, name) => Event::SliceGone { namespace, name },
        Change::Listed => Event::SlicesSynced,
    }
}
