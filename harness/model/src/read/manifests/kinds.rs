//! The kinds that a cluster of ours can run, and what Kubernetes refuses of each.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount},
    discovery::v1::EndpointSlice,
};
use serde::Deserialize;

use super::{
    super::{
        cluster,
        fields::{entries, note, number},
        strict,
        timeline::REPLICAS,
    },
    ServicePort, ServicePorts, unable,
};
use crate::{case::IpFamily, diagnostic::Gathered, yaml::Node};

/// What an object of a kind is: its API versions, its scope and how it is read.
pub(super) struct ObjectKind {
    pub(super) name: &'static str,
    pub(super) versions: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) check: fn(&Gathered, &Node) -> Option<()>,
}

const CALICO: &[&str] = &["projectcalico.org/v3", "crd.projectcalico.org/v1"];

/// The kinds that a cluster of ours can run.
pub(super) const KINDS: [ObjectKind; 11] = [
    ObjectKind {
        name: "Namespace",
        versions: &["v1"],
        namespaced: false,
        check: typed::<Namespace>,
    },
    ObjectKind {
        name: "Pod",
        versions: &["v1"],
        namespaced: true,
        check: pod,
    },
    ObjectKind {
        name: "Deployment",
        versions: &["apps/v1"],
        namespaced: true,
        check: deployment,
    },
    ObjectKind {
        name: "DaemonSet",
        versions: &["apps/v1"],
        namespaced: true,
        check: daemon_set,
    },
    ObjectKind {
        name: "Service",
        versions: &["v1"],
        namespaced: true,
        check: service,
    },
    ObjectKind {
        name: "EndpointSlice",
        versions: &["discovery.k8s.io/v1"],
        namespaced: true,
        check: typed::<EndpointSlice>,
    },
    ObjectKind {
        name: "ConfigMap",
        versions: &["v1"],
        namespaced: true,
        check: typed::<ConfigMap>,
    },
    ObjectKind {
        name: "Secret",
        versions: &["v1"],
        namespaced: true,
        check: typed::<Secret>,
    },
    ObjectKind {
        name: "ServiceAccount",
        versions: &["v1"],
        namespaced: true,
        check: typed::<ServiceAccount>,
    },
    ObjectKind {
        name: "FelixConfiguration",
        versions: CALICO,
        namespaced: false,
        check: felix,
    },
    ObjectKind {
        name: "IPPool",
        versions: CALICO,
        namespaced: false,
        check: ip_pool,
    },
];

/// Reads an object as its type.
fn typed<T>(gathered: &Gathered, node: &Node) -> Option<()>
where
    T: for<'a> Deserialize<'a>,
{
    strict::read::<T>(gathered, node).map(drop)
}

fn pod(gathered: &Gathered, node: &Node) -> Option<()> {
    typed::<Pod>(gathered, node)?;
    has_containers(gathered, node, node)
}

fn deployment(gathered: &Gathered, node: &Node) -> Option<()> {
    typed::<Deployment>(gathered, node)?;
    let replicas = node.get("spec").and_then(|spec| spec.get("replicas"));
    if let Some(replicas) = replicas.filter(|replicas| !replicas.is_null()) {
        number::<u64>(gathered, replicas, "spec.replicas", REPLICAS)?;
    }
    has_template(gathered, node)
}

fn daemon_set(gathered: &Gathered, node: &Node) -> Option<()> {
    typed::<DaemonSet>(gathered, node)?;
    has_template(gathered, node)
}

fn has_containers(gathered: &Gathered, whole: &Node, pod: &Node) -> Option<()> {
    let spec = pod.get("spec");
    if spec
        .and_then(|spec| spec.get("containers"))
        .is_some_and(|list| list.len() > 0)
    {
        unable::pod(gathered, spec?);
        return Some(());
    }
    note(
        gathered,
        &spec.unwrap_or(whole).place,
        "a pod needs a container",
        None,
    );
    None
}

/// A controller finds its pods by labels: with others than the template gives it would make pods
/// without end, and Kubernetes refuses it.
fn has_template(gathered: &Gathered, node: &Node) -> Option<()> {
    let path = |from: &'_ Node, keys: &[&str]| -> Option<serde_json::Value> {
        let node = keys.iter().try_fold(from, |node, key| node.get(key))?;
        Some(node.to_json())
    };
    let selector = path(node, &["spec", "selector", "matchLabels"]);
    let labels = path(node, &["spec", "template", "metadata", "labels"]).unwrap_or_default();
    let spec = node.get("spec").unwrap_or(node);
    let selected = selector.as_ref().and_then(|selector| selector.as_object());
    let Some(selected) = selected.filter(|labels| !labels.is_empty()) else {
        note(
            gathered,
            &spec.place,
            "spec.selector.matchLabels is missing",
            None,
        );
        return None;
    };
    if let Some((label, _)) = selected
        .iter()
        .find(|(label, value)| labels.get(label) != Some(value))
    {
        let message = format!("the template's labels do not match the selector's {label:?}");
        note(
            gathered,
            &spec.get("selector").unwrap_or(spec).place,
            message,
            None,
        );
        return None;
    }
    has_containers(gathered, node, spec.get("template")?)
}

fn service(gathered: &Gathered, node: &Node) -> Option<()> {
    typed::<Service>(gathered, node)?;
    let spec = node.get("spec").unwrap_or(node);
    // Kubernetes takes no status from who applies an object; a pasted one that says nothing does no harm.
    let balancer = node
        .get("status")
        .and_then(|status| status.get("loadBalancer"));
    if let Some(ingress) = balancer
        .and_then(|balancer| balancer.get("ingress"))
        .filter(|it| it.len() > 0)
    {
        let message = "the status of a Service is the cluster's to write";
        let hint = "write the address as spec.loadBalancerIP";
        note(gathered, &ingress.place, message, Some(hint.to_owned()));
    }
    if !ports(node).ports.is_empty() {
        return Some(());
    }
    note(gathered, &spec.place, "a service needs a port", None);
    None
}

pub(super) fn ports(node: &Node) -> ServicePorts {
    let spec = node.get("spec").map(Node::to_json).unwrap_or_default();
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports = ports.filter_map(|port| {
        let number = u16::try_from(port["port"].as_u64()?).ok()?;
        Some(ServicePort {
            name: port["name"].as_str().unwrap_or_default().to_owned(),
            number,
            protocol: port["protocol"].as_str().unwrap_or("TCP").to_owned(),
        })
    });
    let kind = spec["type"].as_str().unwrap_or_default();
    let families = spec["ipFamilies"].as_array().into_iter().flatten();
    let families = families.filter_map(|word| {
        let known = |(name, _): &&(&str, IpFamily)| word == *name;
        IpFamily::ALL.iter().find(known).map(|(_, family)| *family)
    });
    let policy = spec["ipFamilyPolicy"].as_str().unwrap_or("SingleStack");
    ServicePorts {
        ports: ports.collect(),
        has_node_ports: matches!(kind, "NodePort" | "LoadBalancer"),
        families: families.collect(),
        is_dual: policy != "SingleStack",
    }
}

fn felix(gathered: &Gathered, node: &Node) -> Option<()> {
    cluster::calico::felix_spec(gathered, node.get("spec")?).map(drop)
}

/// Its spec is read where its name is known.
fn ip_pool(gathered: &Gathered, node: &Node) -> Option<()> {
    if let Some(spec) = node.get("spec") {
        return entries(gathered, spec, "an IPPool").map(drop);
    }
    note(gathered, &node.place, "an IPPool needs a spec", None);
    None
}
