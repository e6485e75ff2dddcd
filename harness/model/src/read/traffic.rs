//! `traffic:`, and the world that it refers to.

mod answers;

use std::time::Duration;

use answers::{answers_udp, has_family, has_port};
use chainbreak_probe::wire::{Connections, Protocol};
use indexmap::IndexMap;

use super::{
    fields::{Fields, duration, entries, note, number, text, word},
    is_name,
    manifests::Manifests,
};
use crate::{
    case::{ClusterSpec, Destination, IpFamily, Origin, Traffic},
    diagnostic::Gathered,
    language::{Kind, Mapping, default, needed, optional, words},
    names::{NodeName, TrafficName},
    nearest::suggest,
    yaml::{Entry, Node},
};

/// 100,000 requests a second are more than a probe can send; one an hour is none.
const EVERY: (Duration, Duration) = (Duration::from_micros(10), Duration::from_secs(3600));
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(600));

/// A node, a pod or a host.
pub(super) const PLACE: Kind =
    Kind::Form("^(pod/[^/]+(/[^/]+)?|node/n[0-9]+|host/[^/]+)$", "node/n1");

pub(super) static TRAFFIC: Mapping = Mapping {
    called: "traffic",
    doc: "Requests, sent at a fixed rate.",
    fields: &[&[
        needed(
            "from",
            PLACE,
            "Where requests start: `pod/NAME` (in `default`), `pod/NAMESPACE/NAME`, `node/n1` or `host/NAME`.",
        ),
        needed(
            "to",
            Kind::Form(
                "^((service|pod)/[^/]+/[^/]+|node-port/n[0-9]+/[^/]+/[^/]+|host/[^/]+)$",
                "service/test/web",
            ),
            "Where they go: `service/NAMESPACE/NAME`, `pod/NAMESPACE/NAME`, `node-port/n1/NAMESPACE/NAME` or `host/NAME`.",
        ),
        needed(
            "port",
            Kind::Whole(1, 65535),
            "The Service's port (its node port is looked up), the pod's, or the host's.",
        ),
        default(
            "protocol",
            Kind::Word(|| words(&Protocol::ALL)),
            "tcp",
            "`tcp`: HTTP. `udp`: a question and its answer, a datagram each.",
        ),
        optional(
            "family",
            Kind::Word(|| words(&IpFamily::ALL)),
            "Which of the target's addresses; its first when not given.",
        ),
        needed(
            "every",
            Kind::Time,
            "Distance of two requests; a slow answer does not slow the next one.",
        ),
        default(
            "connections",
            Kind::Word(|| words(&CONNECTIONS)),
            "new",
            "`new`: one for each request; `kept`: one as long as it lives. Over UDP: a new port of the client's for each question, or one port for all.",
        ),
        default(
            "timeout",
            Kind::Time,
            "1s",
            "When a request counts as timed out.",
        ),
    ]],
};

const CONNECTIONS: [(&str, Connections); 2] =
    [("new", Connections::New), ("kept", Connections::Kept)];

/// What traffic and timeline can refer to.
pub(super) struct World<'a> {
    pub(super) manifests: &'a Manifests,
    /// `None` when it could not be read: then no name of a node or host is doubted.
    pub(super) cluster: Option<&'a ClusterSpec>,
    /// `None` where it may not be referred to, or could not be read.
    pub(super) traffic: Option<&'a IndexMap<TrafficName, Traffic>>,
}

/// Reads `traffic:`; an entry that a variant sets to `none` is left out.
pub(super) fn read(
    gathered: &Gathered,
    node: &Node,
    world: &World<'_>,
) -> Option<IndexMap<TrafficName, Traffic>> {
    let mut traffic = IndexMap::new();
    let mut complete = true;
    for (name, Entry { key, node }) in entries(gathered, node, "traffic")? {
        if node.text() == Some("none") {
            continue;
        }
        if !is_name(name) {
            note(
                gathered,
                key,
                format!("traffic cannot be named {name:?}"),
                Some(super::NAME.into()),
            );
        }
        match flow(gathered, node, world) {
            Some(flow) => drop(traffic.insert(TrafficName::from(name.as_str()), flow)),
            None => complete = false,
        }
    }
    complete.then_some(traffic)
}

fn flow(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Traffic> {
    let fields = Fields::of(gathered, node, &TRAFFIC)?;
    let from = fields.need("from", |node| {
        place(gathered, node, world, "traffic cannot start at")
    });
    let to = fields.need("to", |node| to(gathered, node, world));
    let port = fields.need("port", |node| number(gathered, node, "port", (1, 65535)));
    let protocol = fields.or_default("protocol", |node| {
        word(gathered, node, "protocol", &Protocol::ALL)
    });
    let family = fields.maybe("family", |node| family(gathered, node, world));
    let every = fields.need("every", |node| duration(gathered, node, "every", EVERY));
    let connections = fields.or_default("connections", |node| {
        word(gathered, node, "connections", &CONNECTIONS)
    });
    let timeout = fields.or_default("timeout", |node| {
        duration(gathered, node, "timeout", TIMEOUT)
    });
    if let (Some(to), Some(port), Some(protocol), Some(at)) =
        (&to, port, protocol, fields.get("port"))
    {
        has_port(gathered, at, to, (port, protocol), world);
    }
    if let (Some(to), Some(Protocol::Udp), Some(at)) = (&to, protocol, fields.get("protocol")) {
        answers_udp(gathered, at, to);
    }
    if let (Some(to), Some(Some(family)), Some(at)) = (&to, family, fields.get("family")) {
        has_family(gathered, at, to, family, world);
    }
    Some(Traffic {
        from: from?,
        to: to?,
        port: port?,
        protocol: protocol?,
        family: family?,
        every: every?,
        connections: connections?,
        timeout: timeout?,
    })
}

/// One of the cluster's.
fn family(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<IpFamily> {
    let family = word(gathered, node, "family", &IpFamily::ALL)?;
    let known = world
        .cluster
        .is_none_or(|cluster| cluster.ip_families.contains(&family));
    if !known {
        let message = format!("the cluster has no {family}");
        let hint = "give it both: `cluster: { ip-families: [IPv4, IPv6] }`".to_owned();
        note(gathered, &node.place, message, Some(hint));
    }
    Some(family)
}

/// A place; `cannot` begins what is said of one that is none.
pub(super) fn place(
    gathered: &Gathered,
    node: &Node,
    world: &World<'_>,
    cannot: &str,
) -> Option<Origin> {
    let written = text(gathered, node, "a place")?;
    match written.split('/').collect::<Vec<_>>().as_slice() {
        ["pod", name] => pod(gathered, node, world, "default", name)
            .map(|(namespace, name)| Origin::Pod { namespace, name }),
        ["pod", namespace, name] => pod(gathered, node, world, namespace, name)
            .map(|(namespace, name)| Origin::Pod { namespace, name }),
        ["node", name] => cluster_node(gathered, node, world, name).map(Origin::Node),
        ["host", name] => host(gathered, node, world, name).map(Origin::Host),
        _ => {
            let hint = "write pod/NAME, pod/NAMESPACE/NAME, node/n1 or host/NAME";
            note(
                gathered,
                &node.place,
                format!("{cannot} {written:?}"),
                Some(hint.into()),
            );
            None
        }
    }
}

fn to(gathered: &Gathered, node: &Node, world: &World<'_>) -> Option<Destination> {
    let written = text(gathered, node, "to")?;
    match written.split('/').collect::<Vec<_>>().as_slice() {
        ["service", namespace, name] => service(gathered, node, world, namespace, name)
            .map(|(namespace, name)| Destination::Service { namespace, name }),
        ["pod", namespace, name] => pod(gathered, node, world, namespace, name)
            .map(|(namespace, name)| Destination::Pod { namespace, name }),
        ["node-port", at, namespace, name] => {
            let at = cluster_node(gathered, node, world, at);
            let service = service(gathered, node, world, namespace, name);
            let (node, (namespace, name)) = (at?, service?);
            Some(Destination::NodePort {
                node,
                namespace,
                name,
            })
        }
        ["host", name] => host(gathered, node, world, name).map(Destination::Host),
        _ => {
            let hint = "write service/NAMESPACE/NAME, pod/NAMESPACE/NAME, node-port/n1/NAMESPACE/NAME or host/NAME";
            note(
                gathered,
                &node.place,
                format!("traffic cannot go to {written:?}"),
                Some(hint.into()),
            );
            None
        }
    }
}

/// A declared pod, as namespace and name.
fn pod(
    gathered: &Gathered,
    at: &Node,
    world: &World<'_>,
    namespace: &str,
    name: &str,
) -> Option<(String, String)> {
    let found = world.manifests.has("Pod", namespace, name);
    if found || !world.manifests.is_complete() {
        return Some((namespace.to_owned(), name.to_owned()));
    }
    let full = format!("{namespace}/{name}");
    let hint = if let Some(owner) = world.manifests.owner_of_pods(namespace, name) {
        Some(format!(
            "pods of a {owner} get names of their own; declare a Pod"
        ))
    } else if let Some(elsewhere) = world.manifests.elsewhere("Pod", name) {
        Some(format!("did you mean pod/{elsewhere}/{name}?"))
    } else {
        let pods = world.manifests.names("Pod");
        let short = |full: &str| full.strip_prefix("default/").unwrap_or(full).to_owned();
        let pods: Vec<String> = pods.iter().map(|full| short(full)).collect();
        suggest(&short(&full), pods.iter().map(String::as_str))
    };
    note(gathered, &at.place, format!("unknown pod {full:?}"), hint);
    None
}

/// A declared Service, as namespace and name.
pub(super) fn service(
    gathered: &Gathered,
    at: &Node,
    world: &World<'_>,
    namespace: &str,
    name: &str,
) -> Option<(String, String)> {
    let found = world.manifests.has("Service", namespace, name);
    if found || !world.manifests.is_complete() {
        return Some((namespace.to_owned(), name.to_owned()));
    }
    let full = format!("{namespace}/{name}");
    let services = world.manifests.names("Service");
    let hint = suggest(&full, services.iter().map(String::as_str));
    note(
        gathered,
        &at.place,
        format!("unknown service {full:?}"),
        hint,
    );
    None
}

/// A node of the cluster.
pub(super) fn cluster_node(
    gathered: &Gathered,
    at: &Node,
    world: &World<'_>,
    name: &str,
) -> Option<NodeName> {
    let number = name.strip_prefix('n').and_then(|n| n.parse::<u16>().ok());
    let nodes = world.cluster.map_or(u16::MAX, |cluster| cluster.nodes);
    // `n01` is not a second name for `n1`.
    if number.is_some_and(|n| (1..=nodes).contains(&n) && format!("n{n}") == name) {
        return Some(NodeName::from(name));
    }
    let hint = if nodes == 1 {
        "there is only n1".into()
    } else {
        format!("there are n1 to n{nodes}")
    };
    note(
        gathered,
        &at.place,
        format!("unknown node {name:?}"),
        Some(hint),
    );
    None
}

fn host(gathered: &Gathered, at: &Node, world: &World<'_>, name: &str) -> Option<String> {
    let Some(cluster) = world.cluster else {
        return Some(name.to_owned());
    };
    if cluster.hosts.contains_key(name) {
        return Some(name.to_owned());
    }
    let hint = suggest(name, cluster.hosts.keys().map(String::as_str))
        .unwrap_or_else(|| format!("name it in the cluster: `hosts: [{name}]`"));
    note(
        gathered,
        &at.place,
        format!("unknown host {name:?}"),
        Some(hint),
    );
    None
}
