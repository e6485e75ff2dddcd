//! The cloud's part: a service of type `LoadBalancer` gets an address, so that kube-proxy writes the rules for one. Pure. Nothing
//! outside routes to it: what a node, a pod or a host with a route sends there meets these rules.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use chainbreak_model::case::IpFamily;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service, ServiceSpec};
use kube::ResourceExt;

use crate::fnv::fnv64;

/// Addresses are 192.0.2.1 … 192.0.2.254, which are nobody's (RFC 5737, TEST-NET-1).
const HOSTS: u8 = 254;

/// The services whose addresses are to be others, with those.
pub fn reconcile<'a>(services: impl Iterator<Item = &'a Service> + Clone) -> Vec<Service> {
    let mut taken: BTreeSet<String> = services.clone().flat_map(given).collect();
    let mut changed = Vec::new();
    for service in services {
        let given = given(service);
        let wanted = wanted(service, &given, &taken);
        if wanted != given {
            taken.extend(wanted.clone());
            changed.push(with(service, wanted));
        }
    }
    changed
}

/// The addresses that a service is to have, one of each of its families: by the one that it asks for, those that
/// it has, or by one that follows from its name.
fn wanted(service: &Service, given: &[String], taken: &BTreeSet<String>) -> Vec<String> {
    let spec = service.spec.as_ref().filter(|spec| is_balanced(spec));
    let Some(spec) = spec else {
        return Vec::new();
    };
    let asked = spec.load_balancer_ip.clone().filter(|ip| !ip.is_empty());
    if asked.is_none() && !given.is_empty() {
        return given.to_vec();
    }
    let main = asked.or_else(|| free(service, taken));
    let Some(main) = main.and_then(|ip| ip.parse::<IpAddr>().ok()) else {
        return Vec::new();
    };
    let families = spec.ip_families.iter().flatten();
    let families = families.filter_map(|word| {
        let known = IpFamily::ALL.iter().find(|(name, _)| name == word);
        known.map(|(_, family)| *family)
    });
    families
        .map(|family| family.address(main).to_string())
        .collect()
}

fn is_balanced(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() == Some("LoadBalancer")
}

fn given(service: &Service) -> Vec<String> {
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
    let ingress = ingress.into_iter().flatten();
    ingress.filter_map(|ingress| ingress.ip.clone()).collect()
}

/// The same for the same name, whenever it is asked for, unless another service has it.
fn free(service: &Service, taken: &BTreeSet<String>) -> Option<String> {
    let namespace = service.namespace().unwrap_or_default();
    let name = service.name_any();
    let hash = fnv64(format!("{namespace}/{name}").as_bytes());
    let first = u8::try_from(hash % u64::from(HOSTS)).unwrap_or(0);
    let hosts = (first..HOSTS).chain(0..first);
    let addresses = hosts.map(|host| Ipv4Addr::new(192, 0, 2, host + 1).to_string());
    addresses
        .into_iter()
        .find(|address| !taken.contains(address))
}

fn with(service: &Service, addresses: Vec<String>) -> Service {
    let mut service = service.clone();
    let ingress = addresses.into_iter().map(|ip| LoadBalancerIngress {
        ip: Some(ip),
        ..LoadBalancerIngress::default()
    });
    let ingress: Vec<LoadBalancerIngress> = ingress.collect();
    let ingress = (!ingress.is_empty()).then_some(ingress);
    service.status.get_or_insert_default().load_balancer = Some(LoadBalancerStatus { ingress });
    service
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_from_names_and_are_given_once() {
        let metadata = serde_json::json!({ "namespace": "test", "name": "web" });
        let service = serde_json::json!({ "metadata": metadata });
        let service: Service = serde_json::from_value(service).unwrap();
        let first = free(&service, &BTreeSet::new()).unwrap();
        assert_eq!(free(&service, &BTreeSet::new()).as_ref(), Some(&first));
        let mut taken = BTreeSet::new();
        while let Some(next) = free(&service, &taken) {
            assert!(next.starts_with("192.0.2.") && taken.insert(next));
        }
        assert_eq!(taken.len(), usize::from(HOSTS));
        assert!(!taken.contains("192.0.2.0") && !taken.contains("192.0.2.255"));
    }

    #[test]
    fn a_service_has_an_address_of_each_of_its_families() {
        let service = |asked: Option<&str>, families: &[&str]| -> Service {
            let spec = serde_json::json!({
                "type": "LoadBalancer", "loadBalancerIP": asked, "ipFamilies": families,
            });
            let service = serde_json::json!({ "metadata": { "name": "web" }, "spec": spec });
            serde_json::from_value(service).unwrap()
        };
        let of = |service: &Service| wanted(service, &given(service), &BTreeSet::new());
        let both = service(Some("192.0.2.50"), &["IPv6", "IPv4"]);
        assert_eq!(of(&both), ["fd00:192::2:50", "192.0.2.50"]);
        let given = with(&both, of(&both));
        assert_eq!(of(&given), of(&both));
        let unasked = service(None, &["IPv6"]);
        assert!(of(&unasked)[0].starts_with("fd00:192::2:"));
        let given = with(&unasked, of(&unasked));
        assert_eq!(of(&given), of(&unasked));
    }
}
