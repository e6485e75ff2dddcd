//! Which ports of a pod a service leads to.

use k8s_openapi::{
    api::{
        core::v1::{Container, Pod, PodSpec, ServicePort},
        discovery::v1::EndpointPort,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

/// The ports of a pod behind those of a service, in the service's order. A port whose name no
/// container of the pod knows is left out.
pub(super) fn resolve(ports: &[ServicePort], pod: &Pod) -> Vec<EndpointPort> {
    let resolved = ports.iter().filter_map(|port| {
        let number = number(port, pod)?;
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number),
            protocol: Some(protocol(port.protocol.as_ref())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    resolved.collect()
}

fn number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        // Zero is how the API says nothing.
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => named(pod, name, &protocol(port.protocol.as_ref())),
    }
}

fn named(pod: &Pod, name: &str, wanted: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| {
        port.name.as_deref() == Some(name) && protocol(port.protocol.as_ref()) == wanted
    });
    port.map(|port| port.container_port)
}

/// Those that run as long as the pod: sidecars are among the init containers.
fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|it| it.restart_policy.as_deref() == Some("Always"));
    spec.containers.iter().chain(sidecars)
}

fn protocol(said: Option<&String>) -> String {
    said.map_or("TCP", String::as_str).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn resolved(service: Value, container: &Value) -> Vec<(String, i32)> {
        let ports: Vec<ServicePort> = from_value(service).unwrap();
        let container = json!({ "name": "c", "ports": container });
        let pod: Pod = from_value(json!({ "spec": { "containers": [container] } })).unwrap();
        let pairs = resolve(&ports, &pod).into_iter();
        pairs
            .map(|port| (port.name.unwrap(), port.port.unwrap()))
            .collect()
    }

    #[test]
    fn a_named_port_is_the_containers_of_that_name_and_protocol() {
        let container = json!([
            { "name": "dns", "containerPort": 5353, "protocol": "UDP" },
            { "name": "dns", "containerPort": 5354, "protocol": "TCP" },
        ]);
        let service = json!([
            { "name": "udp", "port": 53, "targetPort": "dns", "protocol": "UDP" },
            { "name": "tcp", "port": 53, "targetPort": "dns" },
            { "name": "other", "port": 80, "targetPort": "web" },
        ]);
        let expected = [("udp".to_owned(), 5353), ("tcp".to_owned(), 5354)];
        assert_eq!(resolved(service, &container), expected);
    }

    #[test]
    fn a_number_needs_no_container_and_none_means_the_services_own() {
        let service = json!([{ "port": 80, "targetPort": 8080 }]);
        assert_eq!(resolved(service, &json!([])), [(String::new(), 8080)]);
        let service = json!([{ "port": 80 }]);
        assert_eq!(resolved(service, &json!([])), [(String::new(), 80)]);
    }
}
