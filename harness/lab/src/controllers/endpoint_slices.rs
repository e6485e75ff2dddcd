//! EndpointSlices: for every service with a selector, the pods it leads to.
//!
//! A slice has one address family and one set of ports, and at most 100 endpoints. A change of one pod
//! is a change of one slice: endpoints stay where they are, new ones fill gaps, and a slice that has
//! become empty is used again. A service without any endpoint keeps one empty slice.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    api::{
        core::v1::{Node, ObjectReference, Pod, Service, ServiceSpec},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use super::{
    name_generator::NameGenerator,
    pods::{controlled_by, has_ended, is_ready, is_terminating, node_name},
    ports::resolve,
    seen::key,
    view::{SERVICE_NAME, View},
    write::{Verb, Writes},
};

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Slices that say otherwise are somebody else's.
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Most endpoints in a slice.
const FULL: usize = 100;

/// Sees to all services.
pub(super) fn reconcile(view: &View<'_>, generator: &mut NameGenerator, writes: &mut Writes) {
    for service in view.seen.services.iter() {
        let Some(spec) = &service.spec else { continue };
        let selects = spec
            .selector
            .as_ref()
            .is_some_and(|selector| !selector.is_empty());
        let leads_away = spec.type_.as_deref() == Some("ExternalName");
        if service.metadata.deletion_timestamp.is_none() && selects && !leads_away {
            let groups = groups(view, service, spec);
            let packing = Packing::of(view, service, spec);
            packing.pack(groups, view, generator, writes);
        }
    }
}

/// What all endpoints of a slice have in common.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    family: &'static str,
    ports: Vec<EndpointPort>,
    /// By the pod's name.
    endpoints: BTreeMap<String, Endpoint>,
}

fn families(spec: &ServiceSpec) -> Vec<&'static str> {
    let said = spec.ip_families.as_deref().unwrap_or(&[]);
    let known = |name: &String| if name == "IPv6" { "IPv6" } else { "IPv4" };
    if !said.is_empty() {
        return said.iter().map(known).collect();
    }
    let address = spec.cluster_ip.as_deref().and_then(|ip| ip.parse().ok());
    vec![address.map_or("IPv4", family)]
}

fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

fn names(service: &Service) -> (&str, &str) {
    let metadata = &service.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    (namespace, metadata.name.as_deref().unwrap_or_default())
}

/// The pods that the service's selector names and that have not ended.
fn selected<'a>(view: &View<'a>, service: &'a Service, spec: &'a ServiceSpec) -> Vec<&'a Pod> {
    let (namespace, _) = names(service);
    let mut labels = spec.selector.iter().flatten();
    let first = labels.next();
    let found = first.map_or(&[][..], |(label, value)| {
        view.pods_with(namespace, label, value)
    });
    let fits = |pod: &&&Pod| {
        let rest = &mut labels.clone();
        !has_ended(pod) && rest.all(|(label, value)| pod.labels().get(label) == Some(value))
    };
    found.iter().filter(fits).copied().collect()
}

fn groups<'a>(view: &View<'a>, service: &'a Service, spec: &'a ServiceSpec) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for pod in selected(view, service, spec) {
        let ports = resolve(spec.ports.as_deref().unwrap_or(&[]), pod);
        for family in families(spec) {
            let Some(address) = address(pod, family) else {
                continue;
            };
            let same = |group: &&mut Group| group.family == family && group.ports == ports;
            let at = groups.iter_mut().find(same);
            let endpoint = endpoint(view, service, spec, pod, address);
            if let Some(group) = at {
                group.endpoints.insert(pod.name_any(), endpoint);
            } else {
                let endpoints = BTreeMap::from([(pod.name_any(), endpoint)]);
                let ports = ports.clone();
                groups.push(Group {
                    family,
                    ports,
                    endpoints,
                });
            }
        }
    }
    groups
}

fn address(pod: &Pod, wanted: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let mut all = all.chain(status.pod_ip.as_deref());
    let found = all.find(|ip| ip.parse().is_ok_and(|ip| family(ip) == wanted));
    found.map(str::to_owned)
}

fn endpoint(
    view: &View<'_>,
    service: &Service,
    spec: &ServiceSpec,
    pod: &Pod,
    address: String,
) -> Endpoint {
    let (serving, terminating) = (is_ready(pod), is_terminating(pod));
    let always = spec.publish_not_ready_addresses == Some(true);
    let node = node_name(pod);
    let at_home = pod
        .spec
        .as_ref()
        .filter(|pod| pod.subdomain == service.metadata.name);
    let zone = |node: &Node| node.labels().get(ZONE).cloned();
    Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(always || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: at_home.and_then(|pod| pod.hostname.clone()),
        node_name: node.map(str::to_owned),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.namespace(),
            name: Some(pod.name_any()),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        zone: node.and_then(|name| view.node(name)).and_then(zone),
        ..Endpoint::default()
    }
}

/// A service's slices on the way from how they are to how they are to be.
struct Packing<'a> {
    service: &'a Service,
    families: Vec<&'static str>,
    labels: BTreeMap<String, String>,
    existing: Vec<&'a EndpointSlice>,
}

impl<'a> Packing<'a> {
    fn of(view: &View<'a>, service: &'a Service, spec: &ServiceSpec) -> Self {
        let mut labels = service.labels().clone();
        labels.insert(SERVICE_NAME.to_owned(), service.name_any());
        labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
        labels.remove(HEADLESS);
        if spec.cluster_ip.as_deref() == Some("None") {
            labels.insert(HEADLESS.to_owned(), String::new());
        }
        let (namespace, name) = names(service);
        let slices = view.slices_of(namespace, name).iter().copied();
        let ours = |slice: &&EndpointSlice| {
            slice.labels().get(MANAGED_BY).map(String::as_str) == Some(MANAGER)
                && slice.metadata.deletion_timestamp.is_none()
        };
        Self {
            service,
            families: families(spec),
            labels,
            existing: slices.filter(ours).collect(),
        }
    }

    fn pack(
        &self,
        mut groups: Vec<Group>,
        view: &View<'_>,
        generator: &mut NameGenerator,
        writes: &mut Writes,
    ) {
        // How each slice is to be, beside how it is now, if it is.
        let mut plan: Vec<(Option<&EndpointSlice>, EndpointSlice)> = Vec::new();
        for slice in &self.existing {
            let group = groups.iter_mut().find(|group| fits(slice, group));
            plan.push((Some(slice), self.kept(slice, group)));
        }
        for group in &mut groups {
            for (_, slice) in &mut plan {
                if fits(slice, group) {
                    fill(slice, group);
                }
            }
            while !group.endpoints.is_empty() {
                let empty = |slice: &&mut EndpointSlice| {
                    slice.endpoints.is_empty() && slice.address_type == group.family
                };
                if let Some(slice) = plan.iter_mut().map(|(_, slice)| slice).find(empty) {
                    fill(slice, group);
                } else {
                    let name = generator.name(&key(self.service), |key| view.seen.slices.has(key));
                    let mut slice = self.born(name, group.family);
                    fill(&mut slice, group);
                    plan.push((None, slice));
                }
            }
        }
        let bare = plan.iter().all(|(_, slice)| slice.endpoints.is_empty());
        let mut placeholder = bare;
        if plan.is_empty() {
            let name = generator.name(&key(self.service), |key| view.seen.slices.has(key));
            plan.push((None, self.born(name, self.families[0])));
        }
        for (before, after) in plan {
            let stays = !after.endpoints.is_empty()
                || (self.families.contains(&after.address_type.as_str())
                    && std::mem::take(&mut placeholder));
            write(before, after, stays, writes);
        }
    }

    /// A slice with those of its endpoints that are in the group still, as they are now.
    fn kept(&self, slice: &EndpointSlice, group: Option<&mut Group>) -> EndpointSlice {
        let mut kept = slice.clone();
        kept.metadata.labels = Some(self.labels.clone());
        let endpoints = std::mem::take(&mut kept.endpoints);
        if let Some(group) = group {
            let now = |endpoint: Endpoint| {
                let pod = endpoint.target_ref.and_then(|target| target.name)?;
                group.endpoints.remove(&pod)
            };
            kept.endpoints = endpoints.into_iter().filter_map(now).collect();
        }
        kept
    }

    fn born(&self, name: String, family: &str) -> EndpointSlice {
        EndpointSlice {
            address_type: family.to_owned(),
            metadata: ObjectMeta {
                name: Some(name),
                namespace: self.service.namespace(),
                labels: Some(self.labels.clone()),
                owner_references: Some(vec![controlled_by(self.service)]),
                ..ObjectMeta::default()
            },
            ..EndpointSlice::default()
        }
    }
}

fn fits(slice: &EndpointSlice, group: &Group) -> bool {
    slice.address_type == group.family
        && slice.ports.as_deref().unwrap_or(&[]) == group.ports.as_slice()
}

/// Moves as many of the group's endpoints into the slice as there is room for.
fn fill(slice: &mut EndpointSlice, group: &mut Group) {
    slice.ports = Some(group.ports.clone());
    while slice.endpoints.len() < FULL {
        let Some((_, endpoint)) = group.endpoints.pop_first() else {
            break;
        };
        slice.endpoints.push(endpoint);
    }
}

fn write(before: Option<&EndpointSlice>, after: EndpointSlice, stays: bool, writes: &mut Writes) {
    match before {
        None if stays => writes.push(Verb::Create, after),
        Some(_) if !stays => writes.push(Verb::Delete, after),
        Some(before) if !same(before, &after) => writes.push(Verb::Replace, after),
        _ => {}
    }
}

/// An API that leaves out empty lists says the same as one that does not.
fn same(before: &EndpointSlice, after: &EndpointSlice) -> bool {
    let ports = |slice: &EndpointSlice| slice.ports.clone().unwrap_or_default();
    before.metadata == after.metadata
        && before.endpoints == after.endpoints
        && ports(before) == ports(after)
}
