//! The objects that an API server makes by itself, before anybody asks.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::{
    create::create,
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
    service_cidr(state, config.service_cidr)?;
    match config.advertised {
        Some(at) => itself(state, config.service_cidr, at),
        None => Ok(()),
    }
}

fn service_cidr(state: &mut State, cidr: IpNet) -> Result<(), ApiError> {
    let kind = ("networking.k8s.io", "v1", "servicecidrs");
    let mut object = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [cidr]}});
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

fn add(
    state: &mut State,
    (group, version, plural): (&str, &str, &str),
    namespace: Option<&str>,
    name: &str,
    mut object: Value,
) -> Result<(), ApiError> {
    let kind = state.kinds.find(group, version, plural).cloned();
    let kind = kind.ok_or(ApiError::NoSuchResource)?;
    object["metadata"]["name"] = name.into();
    create(state, &kind, namespace, object).map(drop)
}
