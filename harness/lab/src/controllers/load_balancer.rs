//! The cloud's part: a service of type `LoadBalancer` gets an address, so that kube-proxy writes the
//! rules for one. Nothing outside routes to it: what a node or a pod sends there meets these rules.

use std::{collections::BTreeSet, net::Ipv4Addr};

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service, ServiceSpec};

use super::{
    births::fnv64,
    seen::{Key, key},
    view::View,
    write::{Verb, Writes},
};

/// Addresses are 192.0.2.1 … 192.0.2.254, which are nobody's (RFC 5737, TEST-NET-1).
const HOSTS: u8 = 254;

/// Sees to all services.
pub(super) fn reconcile(view: &View<'_>, writes: &mut Writes) {
    let services = || view.seen.services.iter();
    let mut taken: BTreeSet<String> = services().filter_map(given).collect();
    for service in services() {
        let given = given(service);
        let wanted = wanted(service, given.as_deref(), &taken);
        if wanted != given {
            taken.extend(wanted.clone());
            writes.push(Verb::Status, with(service, wanted));
        }
    }
}

/// The address that a service is to have: the one that it asks for, the one that it has, or one that
/// follows from its name.
fn wanted(service: &Service, given: Option<&str>, taken: &BTreeSet<String>) -> Option<String> {
    let spec = service.spec.as_ref().filter(|spec| is_balanced(spec))?;
    let asked = spec.load_balancer_ip.as_deref().filter(|ip| !ip.is_empty());
    let known = asked.or(given).map(str::to_owned);
    known.or_else(|| free(&key(service), taken))
}

fn is_balanced(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() == Some("LoadBalancer")
}

fn given(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.as_ref()?.first()?.ip.clone()
}

/// The same for the same name, whenever it is asked for, unless another service has it.
fn free(service: &Key, taken: &BTreeSet<String>) -> Option<String> {
    let (namespace, name) = service;
    let hash = fnv64(format!("{namespace}/{name}").as_bytes());
    let first = u8::try_from(hash % u64::from(HOSTS)).unwrap_or(0);
    let hosts = (first..HOSTS).chain(0..first);
    let addresses = hosts.map(|host| Ipv4Addr::new(192, 0, 2, host + 1).to_string());
    addresses
        .into_iter()
        .find(|address| !taken.contains(address))
}

fn with(service: &Service, address: Option<String>) -> Service {
    let mut service = service.clone();
    let ingress = address.map(|ip| {
        vec![LoadBalancerIngress {
            ip: Some(ip),
            ..LoadBalancerIngress::default()
        }]
    });
    service.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
    service
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_from_names_and_are_given_once() {
        let service = ("test".to_owned(), "web".to_owned());
        let first = free(&service, &BTreeSet::new()).unwrap();
        assert_eq!(free(&service, &BTreeSet::new()).as_ref(), Some(&first));
        let mut taken = BTreeSet::new();
        while let Some(next) = free(&service, &taken) {
            assert!(next.starts_with("192.0.2.") && taken.insert(next));
        }
        assert_eq!(taken.len(), usize::from(HOSTS));
        assert!(!taken.contains("192.0.2.0") && !taken.contains("192.0.2.255"));
    }
}
