//! The objects that an API server makes by itself, before anybody asks.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde_json::json;

use crate::{
    create::add,
    error::ApiError,
    object::Key,
    server::ServerConfig,
    service,
    state::State,
    update::{Part, update},
};

/// Namespaces, the `ServiceCIDR` that kube-proxy reads from 1.34 on, and, when the server says where it
/// is, Service `kubernetes` with its endpoint.
pub(crate) fn make(state: &mut State, config: &ServerConfig) -> Result<(), ApiError> {
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        add(state, ("", "v1", "namespaces"), None, name, json!({}))?;
    }
    service_cidr(state, &config.service_cidrs)?;
    match (config.advertised, config.service_cidrs.first()) {
        (Some(at), Some(cidr)) => itself(state, *cidr, at),
        _ => Ok(()),
    }
}

fn service_cidr(state: &mut State, cidrs: &[IpNet]) -> Result<(), ApiError> {
    let kind = ("networking.k8s.io", "v1", "servicecidrs");
    let mut object = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
    add(state, kind, None, "kubernetes", object.clone())?;
    object["status"]["conditions"] = json!([{
        "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": state.now(),
        "message": "Kubernetes Service CIDR is ready",
    }]);
    let (group, version, plural) = kind;
    let kind = state.kinds.find(group, version, plural).cloned();
    let kind = kind.ok_or(ApiError::NoSuchResource)?;
    update(
        state,
        &kind,
        &Key::new("", "kubernetes"),
        Part::Status,
        object,
    )?;
    Ok(())
}

/// The first cluster IP leads to the server, as the controller in `pkg/controlplane` has it.
fn itself(state: &mut State, cidr: IpNet, at: SocketAddr) -> Result<(), ApiError> {
    let family = if at.is_ipv4() { "IPv4" } else { "IPv6" };
    let port = json!({"name": "https", "port": at.port(), "protocol": "TCP"});
    let object = json!({
        "metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": service::first_ip(cidr),
            "ports": [{"name": "https", "port": 443, "targetPort": at.port()}],
        },
    });
    let services = ("", "v1", "services");
    add(state, services, Some("default"), "kubernetes", object)?;
    let object = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family, "ports": [port],
        "endpoints": [{"addresses": [at.ip()], "conditions": {"ready": true}}],
    });
    let slices = ("discovery.k8s.io", "v1", "endpointslices");
    add(state, slices, Some("default"), "kubernetes", object)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;

    fn made(advertised: Option<SocketAddr>) -> State {
        let mut config = ServerConfig::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
        config.advertised = advertised;
        let mut state = State::new(&config);
        make(&mut state, &config).unwrap();
        state
    }

    fn found(state: &State, storage: &str, namespace: &str) -> Option<Value> {
        let key = Key::new(namespace, "kubernetes");
        let object = state.store.get(&storage.into(), &key)?;
        Some(object.value().clone())
    }

    #[test]
    fn a_server_that_says_where_it_is_has_a_service_that_leads_there() {
        let state = made(Some(SocketAddr::from(([10, 0, 0, 1], 6443))));
        let service = found(&state, "services", "default").unwrap();
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
        let slice = found(&state, "endpointslices.discovery.k8s.io", "default").unwrap();
        assert_eq!(slice["endpoints"][0]["addresses"], json!(["10.0.0.1"]));
        assert_eq!(slice["ports"][0]["port"], 6443);
        assert_eq!(found(&made(None), "services", "default"), None);
    }

    #[test]
    fn the_range_of_services_is_an_object_and_ready() {
        let cidr = found(&made(None), "servicecidrs.networking.k8s.io", "").unwrap();
        assert_eq!(cidr["spec"]["cidrs"], json!(["10.96.0.0/16"]));
        assert_eq!(cidr["status"]["conditions"][0]["status"], "True");
    }
}
