//! The model Felix, live.

use std::{net::IpAddr, rc::Rc};

use futures::{
    FutureExt, StreamExt,
    stream::{LocalBoxStream, select_all},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher,
};
use serde_json::{Map, Value};

use super::{
    Exec, LogSink, drive,
    feed::{Change, feed},
};
use crate::{
    felix::{Config, Event, Workload, run},
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
    let events = events(&client, &config.node_name, pods);
    drive(Stepper::new(|io| run(io, config)), events, exec, log).await
}

fn events(
    client: &Client,
    node: &str,
    pods: Option<InterfaceName>,
) -> LocalBoxStream<'static, Event> {
    let mut feeds = vec![configuration(client)];
    if let Some(interface) = pods {
        feeds.push(workloads(client, node, interface));
    }
    let expected = feeds.len();
    let mut listed = 0;
    // Felix is in sync when everything that it watches has been listed.
    select_all(feeds)
        .filter_map(move |told| {
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

/// FelixConfiguration `default`; where there is none, an empty one.
fn configuration(client: &Client) -> LocalBoxStream<'static, Told> {
    let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", "FelixConfiguration");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let own = watcher::Config::default().fields("metadata.name=default");
    let mut empty = true;
    feed(api, own)
        .flat_map(move |change| futures::stream::iter(configured(change, &mut empty)))
        .boxed_local()
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

/// The pods of the node that have an address and a network of their own.
fn workloads(
    client: &Client,
    node: &str,
    interface: InterfaceName,
) -> LocalBoxStream<'static, Told> {
    let own = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    feed::<Pod>(Api::all(client.clone()), own)
        .filter_map(move |change| {
            async move {
                match change {
                    Change::Present(pod) => {
                        workload(&pod, interface).map(|pod| Told::Event(Event::Workload(pod)))
                    }
                    Change::Gone(namespace, name) => {
                        Some(Told::Event(Event::WorkloadGone { namespace, name }))
                    }
                    Change::Listed => Some(Told::Listed),
                }
            }
            .boxed_local()
        })
        .boxed_local()
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
    fn a_configuration_that_is_gone_is_an_empty_one_however_felix_learnt_of_it() {
        let changes = [Change::Present(object()), Change::Listed, gone()];
        assert_eq!(told(changes).pop(), Some(config(json!({}))));
    }
}
