//! Whether anything answers where traffic goes.

use chainbreak_probe::wire::Protocol;

use super::{
    super::{
        fields::note,
        manifests::{ServicePort, ServicePorts},
    },
    World,
};
use crate::{
    case::{Destination, IpFamily},
    diagnostic::Gathered,
    yaml::Node,
};

/// The declared Service that traffic goes to.
fn service_of<'a>(to: &'a Destination, world: &World<'a>) -> Option<(String, &'a ServicePorts)> {
    let (namespace, name) = to.service()?;
    let service = world.manifests.service(namespace, name)?;
    Some((format!("{namespace}/{name}"), service))
}

/// A Service of one family has no address of the other.
pub(super) fn has_family(
    gathered: &Gathered,
    at: &Node,
    to: &Destination,
    family: IpFamily,
    world: &World<'_>,
) {
    if let (Some((name, service)), Some(cluster)) = (service_of(to, world), world.cluster)
        && cluster.ip_families.contains(&family)
        && !service.has(family, cluster)
    {
        let message = format!("service {name} has no {family} address");
        let hint = "set its ipFamilyPolicy to PreferDualStack, or name the family first in its \
                    ipFamilies";
        note(gathered, &at.place, message, Some(hint.to_owned()));
    }
}

/// A Service answers only at the ports that it has, at a node only when it has node ports; a host where
/// its nginx listens.
pub(super) fn has_port(
    gathered: &Gathered,
    at: &Node,
    to: &Destination,
    (port, protocol): (u16, Protocol),
    world: &World<'_>,
) {
    if let (Destination::Host(host), Some(cluster)) = (to, world.cluster) {
        let nginx = cluster.hosts.get(host).and_then(|host| host.nginx);
        if nginx != Some(port) && protocol == Protocol::Tcp {
            let message = format!("nothing answers at port {port} of host {host:?}");
            let hint = format!("give it an nginx: `{host}: {{ nginx: {port} }}`");
            note(gathered, &at.place, message, Some(hint));
        }
        return;
    }
    let Some((name, service)) = service_of(to, world) else {
        return;
    };
    serves(gathered, at, (&name, service), port, protocol);
    if matches!(to, Destination::NodePort { .. }) && !service.has_node_ports {
        let message = format!("service {name} has no node port");
        note(
            gathered,
            &at.place,
            message,
            Some("make its type NodePort or LoadBalancer".into()),
        );
    }
}

/// Without any port it is the Service's mistake, and said there.
fn serves(
    gathered: &Gathered,
    at: &Node,
    (name, service): (&str, &ServicePorts),
    port: u16,
    protocol: Protocol,
) {
    let has = |protocol: Protocol| {
        let is_it = |it: &ServicePort| it.number == port && it.protocol == protocol.as_str();
        service.ports.iter().any(is_it)
    };
    if service.ports.is_empty() || has(protocol) {
        return;
    }
    let ports: Vec<String> = service.ports.iter().map(written).collect();
    let message = match protocol {
        Protocol::Tcp => format!("service {name} has no port {port}"),
        Protocol::Udp => format!("service {name} has no port {port} of UDP"),
    };
    let there = format!("it has {}", ports.join(", "));
    let hint = match Protocol::ALL.iter().find(|(_, other)| has(*other)) {
        Some((word, _)) => format!("{there}: write `protocol: {word}`"),
        None => there,
    };
    note(gathered, &at.place, message, Some(hint));
}

/// A port as people write it: `80`, `53/UDP`.
fn written(port: &ServicePort) -> String {
    match port.protocol.as_str() {
        "TCP" => port.number.to_string(),
        other => format!("{}/{other}", port.number),
    }
}

/// Over UDP a program answers that a pod brings with it.
pub(super) fn answers_udp(gathered: &Gathered, at: &Node, to: &Destination) {
    if let Destination::Host(host) = to {
        let message = format!("nothing at host {host:?} answers over UDP");
        let hint = "its nginx answers over TCP; over UDP a pod's own program can: see \
                    docs/scenario-language.md";
        note(gathered, &at.place, message, Some(hint.to_owned()));
    }
}
