//! The model kube-proxy, live.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    convert::Infallible,
    future::{pending, ready},
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use futures::{StreamExt, channel::mpsc, future::select_all, stream::LocalBoxStream};
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
    kube_proxy::{Config, Event, Family, Health, Version, run},
    step::{LogLine, Stepper},
};

/// What kube-proxy's informers leave out until 1.35 (1.32 server.go).
pub(super) const NEITHER: &str =
    "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name";
/// From 1.36 each label hides one kind only (1.36.0 server.go). Services without a cluster IP are left out by that,
/// which comes to the same here.
const NO_OTHER_PROXY: &str = "!service.kubernetes.io/service-proxy-name";
const NOT_HEADLESS: &str = "!service.kubernetes.io/headless";

/// Runs one life of kube-proxy, its health servers with it, and returns the reason for which its
/// process exits. It has a proxier for each of `configs`, which differ in what is a family's own: one,
/// or two in a dual-stack cluster, whose default comes first (`metaproxier`). All are told the same,
/// but a slice is told to the proxier of its family only.
pub async fn kube_proxy(
    client: Client,
    configs: Vec<Config>,
    exec: Rc<dyn Exec>,
    log: &mut dyn LogSink,
) -> String {
    let Some(first) = configs.first().cloned() else {
        return "kube-proxy serves no family".to_owned();
    };
    let follows_cidrs = configs.iter().any(Config::follows_service_cidrs);
    let mut told = events(&client, &first, follows_cidrs);
    let log = RefCell::new(log);
    let unknown = vec![Health::new(&first.version); configs.len()];
    let pulse = Rc::new(watch::Sender::new(unknown));
    // The cores' clocks begin when they are driven, which is now.
    let servers = health::serve(configs.clone(), pulse.subscribe(), Instant::now(), &log);
    let mut ears = Vec::new();
    let mut proxiers = Vec::new();
    for (number, mut config) in configs.into_iter().enumerate() {
        let (tell, hear) = mpsc::unbounded();
        ears.push((config.family, tell));
        let (client, exec, log) = (client.clone(), Rc::clone(&exec), &log);
        let pulse = Rc::clone(&pulse);
        proxiers.push(Box::pin(async move {
            config.node_ip = config.node_ip.or(config.assumed_node_ip(number));
            if config.node_ip.is_none() {
                config.node_ip = node_ip(&client, &config).await;
            }
            let core = Stepper::new(move |io| {
                run(io, config, move |health| {
                    pulse.send_modify(|each| each[number] = health.clone());
                })
            });
            let mut say = |line: LogLine| log.borrow_mut().entry(line);
            drive(core, hear.boxed_local(), exec, &mut say).await
        }));
    }
    let telling = async {
        while let Some(event) = told.next().await {
            for (family, tell) in &ears {
                if concerns(&event, *family) {
                    // A proxier that has ended ends the process, and is told nothing any more.
                    drop(tell.unbounded_send(event.clone()));
                }
            }
        }
        pending::<Infallible>().await
    };
    tokio::select! {
        (reason, ..) = select_all(proxiers) => reason,
        never = servers => match never {},
        never = telling => match never {},
    }
}

/// Whether the proxier of that family is told of it.
pub fn concerns(event: &Event, family: Family) -> bool {
    match event {
        Event::Slice(slice) => slice.address_type == family.as_str(),
        _ => true,
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

fn events(client: &Client, config: &Config, follows_cidrs: bool) -> LocalBoxStream<'static, Event> {
    let node = &config.node_name;
    let own = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let nodes =
        feed::<Node>(Api::all(client.clone()), own).filter_map(async |change| match change {
            Change::Present(node) => Some(Event::Node(Box::new(node))),
            Change::Gone(..) => Some(Event::NodeGone),
            Change::Listed => None,
        });
    let services = services_and_slices(client, selectors(&config.version));
    let mut all = vec![services, nodes.boxed_local()];
    if follows_cidrs {
        all.push(service_cidrs(client));
    }
    futures::stream::select_all(all).boxed_local()
}

/// Services and their slices, but those that have one of the labels.
pub(super) fn services_and_slices(
    client: &Client,
    without: [&str; 2],
) -> LocalBoxStream<'static, Event> {
    let [of_services, of_slices] =
        without.map(|selector| watcher::Config::default().labels(selector));
    let services = feed::<Service>(Api::all(client.clone()), of_services).map(service);
    let slices = feed::<EndpointSlice>(Api::all(client.clone()), of_slices).map(slice);
    futures::stream::select(services, slices).boxed_local()
}

/// Which services and which slices are told: labels that they must not have.
pub fn selectors(version: &Version) -> [&'static str; 2] {
    if version.labels_hide_both_kinds() {
        [NEITHER, NEITHER]
    } else {
        [NO_OTHER_PROXY, NOT_HEADLESS]
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_told_to_the_proxier_of_its_family_and_a_service_to_both() {
        let slice = |family: &str| {
            let address_type = family.to_owned();
            Event::Slice(Box::new(EndpointSlice {
                address_type,
                ..EndpointSlice::default()
            }))
        };
        let hears = |event: &Event| [Family::Ipv4, Family::Ipv6].map(|it| concerns(event, it));
        assert_eq!(hears(&slice("IPv4")), [true, false]);
        assert_eq!(hears(&slice("IPv6")), [false, true]);
        assert_eq!(hears(&Event::Service(Box::default())), [true, true]);
    }
}
