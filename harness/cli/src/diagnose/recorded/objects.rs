//! What the API held at a moment of a recorded run.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{
    case::{Case, Dataplane, Fault, Step},
    event::{Event, EventKind},
};
use serde_json::{Map, Value, json};

use super::asked::{At, addresses, asked};

/// The objects that the case began with, as the steps that had begun left them.
pub(super) fn objects(case: &Case, events: &[Event], at_us: u64) -> Vec<Value> {
    let mut objects = case.manifests.to_vec();
    let mut felix = (*case.cluster.felix).clone();
    for step in begun(case, events, at_us) {
        match step {
            Step::Apply(applied) => {
                for object in applied {
                    objects.retain(|it| id(it) != id(object));
                    objects.push(object.clone());
                }
            }
            Step::Delete(gone) => {
                let namespace = gone.namespace.as_deref().unwrap_or(DEFAULT);
                let gone = (Some(&*gone.kind), namespace, Some(&*gone.name));
                objects.retain(|it| id(it) != gone);
            }
            Step::Felix(changed) => set(&mut felix, changed),
            Step::Fault {
                fault: Fault::Switch { dataplane, .. },
                ..
            } => {
                let is_on = *dataplane == Dataplane::Bpf;
                felix.insert(Dataplane::FIELD.to_owned(), is_on.into());
            }
            _ => {}
        }
    }
    let asked = asked(case, events);
    for object in &mut objects {
        give_addresses(object, &asked);
    }
    if case.cluster.calico.is_some() {
        let metadata = json!({ "name": "default" });
        objects.push(json!({ "kind": "FelixConfiguration", "metadata": metadata, "spec": felix }));
    }
    objects
}

/// Gives a Service the addresses at which traffic asked it: the API had chosen them.
fn give_addresses(object: &mut Value, asked: &BTreeMap<String, BTreeSet<At>>) {
    let (Some("Service"), namespace, Some(name)) = id(object) else {
        return;
    };
    let Some(asked) = asked.get(&format!("{namespace}/{name}")) else {
        return;
    };
    if object["spec"].is_object() {
        let addresses = addresses(asked).into_iter().map(|it| it.to_string());
        let addresses: BTreeSet<String> = addresses.collect();
        object["spec"]["clusterIPs"] = addresses.into_iter().collect();
    }
}

/// The steps that had begun by then.
fn begun<'a>(case: &'a Case, events: &'a [Event], at_us: u64) -> impl Iterator<Item = &'a Step> {
    let before = events.iter().filter(move |event| event.at_us <= at_us);
    before.filter_map(|event| match event.what {
        EventKind::StepBegan { step } => case.timeline.get(step),
        _ => None,
    })
}

/// The namespace of whatever does not say it.
const DEFAULT: &str = "default";

/// Kind, namespace and name.
fn id(object: &Value) -> (Option<&str>, &str, Option<&str>) {
    let about = &object["metadata"];
    let namespace = about["namespace"].as_str().unwrap_or(DEFAULT);
    (object["kind"].as_str(), namespace, about["name"].as_str())
}

/// What is set to nothing is taken away, as by a merge patch.
fn set(spec: &mut Map<String, Value>, changed: &Map<String, Value>) {
    for (field, value) in changed {
        if value.is_null() {
            spec.remove(field);
        } else {
            spec.insert(field.clone(), value.clone());
        }
    }
}

/// The EndpointSlices of the Services that traffic goes to, as they were last told.
pub(super) fn slices(case: &Case, events: &[Event], at_us: u64) -> Vec<Value> {
    let mut last: BTreeMap<&str, Option<Value>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.at_us <= at_us) {
        if let EventKind::Endpoints {
            service,
            ready,
            draining,
        } = &event.what
        {
            let ready = ready.as_ref();
            let slice = ready.and_then(|ready| slice(case, service, ready, draining));
            last.insert(service, slice);
        }
    }
    last.into_values().flatten().collect()
}

/// One of a Service that the case began with; nothing where its ports are not known.
fn slice(
    case: &Case,
    service: &str,
    ready: &BTreeSet<String>,
    draining: &BTreeSet<String>,
) -> Option<Value> {
    let (namespace, name) = service.split_once('/')?;
    let of = |object: &Value| id(object) == (Some("Service"), namespace, Some(name));
    // One that is applied anew may have other ports from then on.
    let is_applied = |step: &Step| match step {
        Step::Apply(objects) => objects.iter().any(of),
        _ => false,
    };
    if case.timeline.iter().any(is_applied) {
        return None;
    }
    let ports = ports_of(case, service)?.iter();
    let ports = ports.map(|port| {
        let number = target(case, port)?;
        Some(json!({ "name": port["name"], "protocol": port["protocol"], "port": number }))
    });
    let ports: Option<Vec<Value>> = ports.collect();
    let endpoint = |address: &String, is_ready: bool| json!({ "addresses": [address], "conditions": { "ready": is_ready } });
    let endpoints = ready.iter().map(|address| endpoint(address, true));
    let endpoints = endpoints.chain(draining.iter().map(|address| endpoint(address, false)));
    Some(json!({
        "kind": "EndpointSlice",
        "metadata": { "name": name, "namespace": namespace, "labels": { "kubernetes.io/service-name": name } },
        "ports": ports?,
        "endpoints": endpoints.collect::<Vec<_>>(),
    }))
}

/// The ports of a Service, `namespace/name`, that the case began with.
fn ports_of<'a>(case: &'a Case, service: &str) -> Option<&'a [Value]> {
    let (namespace, name) = service.split_once('/')?;
    let of = |object: &&Value| id(object) == (Some("Service"), namespace, Some(name));
    let service = case.manifests.iter().find(of)?;
    service["spec"]["ports"].as_array().map(Vec::as_slice)
}

/// The same: whether each is UDP's, and the numbers behind them.
pub(super) fn ports(case: &Case, service: &str) -> Vec<(bool, u16, Option<u16>)> {
    let number = |number: u64| u16::try_from(number).ok();
    let ports = ports_of(case, service).into_iter().flatten();
    let ports = ports.filter_map(|port| {
        let target = target(case, port).and_then(number);
        let own = port["port"].as_u64().and_then(number)?;
        Some((port["protocol"] == "UDP", own, target))
    });
    ports.collect()
}

/// The number behind a port of a Service, by the containers' ports of that name.
fn target(case: &Case, port: &Value) -> Option<u64> {
    let target = &port["targetPort"];
    let Some(name) = target.as_str() else {
        return target.as_u64().or_else(|| port["port"].as_u64());
    };
    let pods = case.manifests.iter().map(|object| {
        let template = object.pointer("/spec/template/spec");
        template.unwrap_or(&object["spec"])
    });
    let containers = pods.filter_map(|spec| spec["containers"].as_array());
    let ports = containers.flatten().filter_map(|it| it["ports"].as_array());
    let mut numbers = ports.flatten().filter(|port| port["name"] == name);
    numbers.next()?["containerPort"].as_u64()
}
