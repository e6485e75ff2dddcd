//! The model Felix, live.

use std::{collections::BTreeMap, net::IpAddr, rc::Rc};

use futures::{
    StreamExt,
    stream::{LocalBoxStream, SelectAll, select_all},
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    Exec, LogSink, drive,
    feed::Change,
    kube_proxy::{NEITHER, services_and_slices},
    watcher_cache::{Heard, Watched, watcher_cache},
};
use crate::{
    felix::{Config, Event, Pool, Version, Workload, lost_with_the_process, run, written},
    step::Stepper,
};

/// Names the host's end of a pod's interface, from its namespace and name.
pub type InterfaceName = fn(&str, &str) -> String;

/// Runs one life of Felix and returns the reason for which its process exits: a changed
/// configuration, or rules that could not be programmed. `pods` names interfaces where Calico owns
/// the pods; without it Felix knows no workload.
pub async fn felix(
    client: Client,
    config: Config,
    pods: Option<InterfaceName>,
    exec: Rc<dyn Exec>,
    log: &mut dyn LogSink,
) -> String {
    if let Some(lost) = lost_with_the_process(&config)
        && let Err(why) = written(&exec.run(lost).await)
    {
        return format!("panic: {why}");
    }
    let events = events(&client, &config, pods);
    drive(Stepper::new(|io| run(io, config)), events, exec, log).await
}

fn events(
    client: &Client,
    config: &Config,
    pods: Option<InterfaceName>,
) -> LocalBoxStream<'static, Event> {
    let version = config.version;
    let pools = pools(client, version);
    let mut feeds = vec![configuration(client, version), nodes(client, version)];
    if let Some(interface) = pods {
        feeds.push(workloads(client, config, interface));
    }
    let expected = feeds.len() + 1;
    // Felix's own proxy has informers of its own, and nobody else waits for them.
    if config.programs {
        let proxied = services_and_slices(client, [NEITHER; 2]);
        feeds.push(
            proxied
                .map(|event| Told::Event(Event::Proxied(event)))
                .boxed_local(),
        );
    }
    let mut listed = 0;
    // Felix lists the pools before it starts: by them it decides once whether it has a tunnel (daemon.go,
    // `NewEncapsulationCalculator`).
    let told = futures::stream::unfold(Feeds::Pools(pools, feeds), Feeds::next);
    // Felix is in sync when everything that it watches has been listed.
    told.filter_map(move |told| {
        let event = match told {
            Told::Event(event) => Some(event),
            Told::Listed => {
                listed += 1;
                (listed == expected).then_some(Event::InSync)
            }
        };
        async move { event }
    })
    .boxed_local()
}

#[derive(Debug, PartialEq)]
enum Told {
    Event(Event),
    Listed,
}

type Feed = LocalBoxStream<'static, Told>;

/// The pools until they are listed, and then all there is.
enum Feeds {
    Pools(Feed, Vec<Feed>),
    All(SelectAll<Feed>),
}

impl Feeds {
    async fn next(self) -> Option<(Told, Self)> {
        match self {
            Self::Pools(mut pools, mut others) => {
                let told = pools.next().await?;
                if matches!(told, Told::Event(Event::Unreached(_))) {
                    return Some((told, Self::Pools(pools, others)));
                }
                others.push(pools);
                Some((told, Self::All(select_all(others))))
            }
            Self::All(mut all) => {
                let told = all.next().await?;
                Some((told, Self::All(all)))
            }
        }
    }
}

/// What Felix is told of the changes of a kind, and that the API does not answer.
fn feed<K>(
    api: Api<K>,
    watched: Watched,
    mut tell: impl FnMut(Change<K>) -> Vec<Told> + 'static,
) -> Feed
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    watcher_cache(api, watched)
        .flat_map(move |heard| {
            futures::stream::iter(match heard {
                Heard::Change(change) => tell(change),
                Heard::Unreached(it) => vec![Told::Event(Event::Unreached(it))],
            })
        })
        .boxed_local()
}

/// A kind, or the objects of it that a field selector names.
fn watched(plural: &'static str, fields: impl Into<String>, version: Version) -> Watched {
    Watched {
        plural,
        fields: fields.into(),
        watches_again: version.watches_again(),
    }
}

/// FelixConfiguration `default`; where there is none, an empty one.
fn configuration(client: &Client, version: Version) -> Feed {
    let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", "FelixConfiguration");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let mut empty = true;
    let own = watched("felixconfigurations", "metadata.name=default", version);
    feed(api, own, move |change| configured(change, &mut empty))
}

/// What Felix is told of its configuration; `empty` until there was one.
fn configured(change: Change<DynamicObject>, empty: &mut bool) -> Vec<Told> {
    let none = || Told::Event(Event::Config(Map::new()));
    match change {
        Change::Present(object) => {
            *empty = false;
            vec![Told::Event(Event::Config(spec(&object)))]
        }
        Change::Gone(..) => vec![none()],
        Change::Listed if *empty => vec![none(), Told::Listed],
        Change::Listed => vec![Told::Listed],
    }
}

fn spec(object: &DynamicObject) -> Map<String, Value> {
    object
        .data
        .get("spec")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// All pools at once, and again whenever one changes.
fn pools(client: &Client, version: Version) -> Feed {
    let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", "IPPool");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let read = |object: &DynamicObject| pool(object.data.get("spec")?);
    all(api, watched("ippools", "", version), read, Event::Pools)
}

fn pool(spec: &Value) -> Option<Pool> {
    let is = |field: &str, word: &str| spec.get(field).and_then(Value::as_str) == Some(word);
    Some(Pool {
        cidr: spec.get("cidr")?.as_str()?.parse().ok()?,
        nat_outgoing: spec.get("natOutgoing") == Some(&Value::Bool(true)),
        vxlan: is("vxlanMode", "Always") || is("vxlanMode", "CrossSubnet"),
    })
}

/// The addresses of all nodes at once, and again whenever a node changes.
fn nodes(client: &Client, version: Version) -> Feed {
    let tell = |nodes: Vec<Vec<IpAddr>>| Event::Nodes(nodes.concat());
    let nodes = watched("nodes", "", version);
    all(Api::all(client.clone()), nodes, internal, tell)
}

/// A node's addresses, of each family that it has.
fn internal(node: &Node) -> Option<Vec<IpAddr>> {
    let addresses = node.status.as_ref()?.addresses.iter().flatten();
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    Some(
        internal
            .filter_map(|address| address.address.parse().ok())
            .collect(),
    )
}

/// What is read from all objects of a kind, when they are listed and whenever it changes after that.
fn all<K, T>(
    api: Api<K>,
    watched: Watched,
    read: impl Fn(&K) -> Option<T> + 'static,
    tell: impl Fn(Vec<T>) -> Event + 'static,
) -> Feed
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    T: Clone + PartialEq + 'static,
{
    let mut known: BTreeMap<(String, String), Option<T>> = BTreeMap::new();
    let mut is_listed = false;
    let mut told: Option<Vec<T>> = None;
    feed(api, watched, move |change| {
        let listed = matches!(change, Change::Listed);
        match change {
            Change::Present(object) => {
                let key = (object.namespace().unwrap_or_default(), object.name_any());
                known.insert(key, read(&object));
            }
            Change::Gone(namespace, name) => drop(known.remove(&(namespace, name))),
            Change::Listed => is_listed = true,
        }
        let now: Vec<T> = known.values().flatten().cloned().collect();
        let news = is_listed && told.as_ref() != Some(&now);
        let event = news.then(|| Told::Event(tell(now.clone())));
        told = is_listed.then_some(now);
        let listed = listed.then_some(Told::Listed);
        event.into_iter().chain(listed).collect()
    })
}

/// The pods of the node that have an address and a network of their own.
fn workloads(client: &Client, config: &Config, interface: InterfaceName) -> Feed {
    let own = format!("spec.nodeName={}", config.node_name);
    let own = watched("workloadendpoints", own, config.version);
    feed(Api::<Pod>::all(client.clone()), own, move |change| {
        let told = match change {
            Change::Present(pod) => {
                workload(&pod, interface).map(|pod| Told::Event(Event::Workload(pod)))
            }
            Change::Gone(namespace, name) => {
                Some(Told::Event(Event::WorkloadGone { namespace, name }))
            }
            Change::Listed => Some(Told::Listed),
        };
        told.into_iter().collect()
    })
}

fn workload(pod: &Pod, interface: InterfaceName) -> Option<Workload> {
    let (namespace, name) = (pod.namespace()?, pod.name_any());
    let spec = pod
        .spec
        .as_ref()
        .filter(|spec| spec.host_network != Some(true))?;
    let ips = pod.status.as_ref()?.pod_ips.iter().flatten();
    let addresses: Vec<IpAddr> = ips.filter_map(|ip| ip.ip.parse().ok()).collect();
    let account = spec.service_account_name.as_deref().unwrap_or("default");
    (!addresses.is_empty()).then(|| Workload {
        interface: interface(&namespace, &name),
        profiles: vec![
            format!("kns.{namespace}"),
            format!("ksa.{namespace}.{account}"),
        ],
        addresses,
        namespace,
        name,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> DynamicObject {
        let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", "FelixConfiguration");
        DynamicObject::new("default", &ApiResource::from_gvk(&kind))
            .data(json!({ "spec": { "bpfEnabled": true } }))
    }

    fn told(changes: impl IntoIterator<Item = Change<DynamicObject>>) -> Vec<Told> {
        let mut empty = true;
        let changes = changes.into_iter();
        changes
            .flat_map(|change| configured(change, &mut empty))
            .collect()
    }

    fn config(value: Value) -> Told {
        Told::Event(Event::Config(serde_json::from_value(value).unwrap()))
    }

    fn gone() -> Change<DynamicObject> {
        Change::Gone(String::new(), "default".to_owned())
    }

    #[test]
    fn felix_without_a_configuration_is_told_so_before_it_is_in_sync() {
        assert_eq!(told([Change::Listed]), [config(json!({})), Told::Listed]);
        let there = told([Change::Present(object()), Change::Listed]);
        assert_eq!(there, [config(json!({ "bpfEnabled": true })), Told::Listed]);
    }

    #[test]
    fn pools_are_read_as_felix_reads_them() {
        let vxlan = |mode: &str| {
            let spec = json!({ "cidr": "10.30.0.0/16", "vxlanMode": mode, "natOutgoing": true });
            pool(&spec).expect("it has a cidr")
        };
        assert!(vxlan("Always").vxlan && vxlan("CrossSubnet").vxlan);
        assert!(!vxlan("Never").vxlan && vxlan("Never").nat_outgoing);
        assert_eq!(pool(&json!({ "vxlanMode": "Always" })), None);
    }

    #[test]
    fn felix_hears_of_a_nodes_addresses_in_each_family() {
        let address = |kind, address| json!({ "type": kind, "address": address });
        let addresses = json!([
            address("InternalIP", "10.0.1.1"),
            address("InternalIP", "fd00:10::1:1"),
            address("Hostname", "n1"),
        ]);
        let node = json!({ "metadata": {}, "status": { "addresses": addresses } });
        let node = serde_json::from_value(node).unwrap();
        let expected = ["10.0.1.1", "fd00:10::1:1"].map(|it| it.parse().unwrap());
        assert_eq!(internal(&node), Some(expected.to_vec()));
    }

    #[test]
    fn a_configuration_that_is_gone_is_an_empty_one_however_felix_learnt_of_it() {
        let changes = [Change::Present(object()), Change::Listed, gone()];
        assert_eq!(told(changes).pop(), Some(config(json!({}))));
    }
}
