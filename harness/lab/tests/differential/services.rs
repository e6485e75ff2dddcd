//! Random services and their endpoint slices.
//!
//! Service `number` has a fixed name, cluster IP, and node ports; all else is drawn again each time.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

/// Whether a service has a cluster IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    WithAddress,
    Without,
}

const NAMESPACES: [&str; 2] = ["default", "kube-system"];
/// Some hold the node's own address.
const RANGES: [&str; 6] = [
    "198.18.0.0/15",
    "203.0.113.0/24",
    "0.0.0.0/0",
    "172.16.9.9/12",
    "10.0.1.1/32",
    "10.0.0.0/8",
];
const PORTS: [u16; 6] = [80, 443, 53, 8080, 5000, 65535];
const SLICES: [&str; 3] = ["a", "b", "c"];

/// A service of chance.
pub(crate) fn service(rng: &mut ChaCha8Rng, number: u8) -> (Kind, Value) {
    let (type_, headless) = match rng.random_range(0..100) {
        0..35 => ("ClusterIP", false),
        35..55 => ("NodePort", false),
        55..86 => ("LoadBalancer", false),
        86..90 => ("ExternalName", false),
        _ => ("ClusterIP", true),
    };
    let mut spec = Map::new();
    spec.insert("type".to_owned(), json!(type_));
    let kind = match (type_, headless) {
        ("ExternalName", _) => {
            spec.insert("externalName".to_owned(), json!("x.example"));
            Kind::Without
        }
        (_, true) => {
            spec.insert("clusterIP".to_owned(), json!("None"));
            Kind::Without
        }
        _ => {
            spec.insert(
                "clusterIP".to_owned(),
                json!(format!("10.96.1.{}", number + 1)),
            );
            Kind::WithAddress
        }
    };
    let exposed = matches!(type_, "NodePort" | "LoadBalancer");
    spec.insert("ports".to_owned(), ports(rng, number, exposed));
    if kind == Kind::WithAddress {
        options(rng, number, exposed, &mut spec);
    }
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(rng, number), "spec": spec,
    });
    if type_ == "LoadBalancer" {
        balance(rng, number, &mut object);
    }
    (kind, object)
}

fn namespace(number: u8) -> &'static str {
    NAMESPACES[usize::from(number) % NAMESPACES.len()]
}

fn metadata(rng: &mut ChaCha8Rng, number: u8) -> Value {
    let mut labels = Map::new();
    if rng.random_bool(0.05) {
        labels.insert("service.kubernetes.io/headless".to_owned(), json!(""));
    }
    if rng.random_bool(0.05) {
        labels.insert(
            "service.kubernetes.io/service-proxy-name".to_owned(),
            json!("other"),
        );
    }
    let mut annotations = Map::new();
    if rng.random_bool(0.25) {
        annotations.insert(
            "service.kubernetes.io/topology-mode".to_owned(),
            json!("Auto"),
        );
        // What it was called until 1.26.
        annotations.insert(
            "service.kubernetes.io/topology-aware-hints".to_owned(),
            json!("auto"),
        );
    }
    json!({
        "name": format!("s{number}"), "namespace": namespace(number),
        "labels": labels, "annotations": annotations,
    })
}

/// One to three ports; the same number with another protocol is another port.
fn ports(rng: &mut ChaCha8Rng, number: u8, exposed: bool) -> Value {
    let count = rng.random_range(1..4_u16);
    let named = count > 1 || rng.random_bool(0.5);
    let with_node_ports = rng.random_bool(0.9);
    let ports = (0..count).map(|index| {
        let mut port = Map::new();
        if named {
            port.insert("name".to_owned(), json!(format!("p{index}")));
        }
        let which = usize::from(number) + usize::from(index);
        port.insert("port".to_owned(), json!(PORTS[which % PORTS.len()]));
        port.insert("protocol".to_owned(), json!(protocol(number, index)));
        if exposed && with_node_ports {
            let node_port = 31_000 + u16::from(number) * 10 + index;
            port.insert("nodePort".to_owned(), json!(node_port));
        }
        if rng.random_bool(0.2) {
            port.insert("targetPort".to_owned(), json!("named"));
        }
        Value::Object(port)
    });
    ports.collect()
}

fn protocol(number: u8, index: u16) -> &'static str {
    match (u16::from(number) + index) % 4 {
        1 => "UDP",
        3 => "SCTP",
        _ => "TCP",
    }
}

fn options(rng: &mut ChaCha8Rng, number: u8, exposed: bool, spec: &mut Map<String, Value>) {
    let mut set = |key: &str, value: Value| drop(spec.insert(key.to_owned(), value));
    if rng.random_bool(0.3) {
        set("sessionAffinity", json!("ClientIP"));
        let seconds = [1, 10, 10_800, 86_400][rng.random_range(0..4)];
        if rng.random_bool(0.6) {
            set(
                "sessionAffinityConfig",
                json!({ "clientIP": { "timeoutSeconds": seconds } }),
            );
        }
    }
    if exposed && rng.random_bool(0.5) {
        set("externalTrafficPolicy", json!("Local"));
    }
    if rng.random_bool(0.3) {
        let mut ips = vec![format!("198.51.100.{}", number + 1)];
        // An address of both places. Whose it is in nftables mode, of services that claim one port of it, is the order of a Go map:
        // no two of these have a port in common.
        if number.is_multiple_of(3) {
            ips.push("203.0.113.9".to_owned());
        }
        ips.truncate(rng.random_range(1..3));
        set("externalIPs", json!(ips));
    }
    if rng.random_bool(0.1) {
        set("publishNotReadyAddresses", json!(true));
    }
    if rng.random_bool(0.1) {
        set("internalTrafficPolicy", json!("Local"));
    }
}

fn balance(rng: &mut ChaCha8Rng, number: u8, object: &mut Value) {
    if rng.random_bool(0.5) {
        let ranges = (0..rng.random_range(1..4)).map(|_| RANGES[rng.random_range(0..RANGES.len())]);
        let ranges: Vec<&str> = ranges.collect();
        object["spec"]["loadBalancerSourceRanges"] = json!(ranges);
    }
    if object["spec"]["externalTrafficPolicy"] == "Local" {
        object["spec"]["healthCheckNodePort"] = json!(32_000 + u16::from(number));
    }
    let mut ingress = vec![
        json!({ "ip": format!("192.0.2.{}", number + 1) }),
        json!({ "hostname": "balancer.example" }),
        json!({ "ip": format!("192.0.2.{}", number + 101), "ipMode": "Proxy" }),
        json!({ "ip": format!("192.0.2.{}", number + 201), "ipMode": "VIP" }),
        json!({ "ip": format!("fd00:9::{}", number + 1) }),
    ];
    ingress.rotate_left(rng.random_range(0..5));
    ingress.truncate(rng.random_range(0..4));
    object["status"] = json!({ "loadBalancer": { "ingress": ingress } });
}

/// What names the slices that a service may have.
pub(crate) fn slice_names(number: u8) -> impl Iterator<Item = Value> {
    SLICES.iter().map(move |letter| {
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": { "name": format!("s{number}-{letter}"), "namespace": namespace(number) },
        })
    })
}

/// Slices of chance for a service.
///
/// Endpoints 0 and 1 are always ready and may be in any slices, as when they move; every other one has a
/// slice of its own and is ready by chance. All slices have the same ports: of two ports of one address
/// in two slices 1.20 takes one, by chance.
pub(crate) fn slices(rng: &mut ChaCha8Rng, number: u8) -> Vec<Value> {
    let mut written = Vec::new();
    let ports = slice_ports(rng, number);
    let hinted = rng.random_bool(0.3);
    for (index, mut slice) in slice_names(number).enumerate() {
        if rng.random_bool(if index == 0 { 0.1 } else { 0.6 }) {
            continue;
        }
        slice["metadata"]["labels"] = json!({ "kubernetes.io/service-name": format!("s{number}") });
        // Of what type a slice's addresses are never changes: the API refuses it.
        let ipv4 = (usize::from(number) + index) % 5 != 4;
        slice["addressType"] = json!(if ipv4 { "IPv4" } else { "IPv6" });
        slice["ports"] = ports.clone();
        let there: Vec<usize> = (0..8)
            .filter(|&it| rng.random_bool(0.45) && (it < 2 || it % SLICES.len() == index))
            .collect();
        let endpoints = there
            .into_iter()
            .map(|it| endpoint(rng, number, it, ipv4, hinted));
        slice["endpoints"] = endpoints.collect();
        written.push(slice);
    }
    written
}

/// The names of a service's ports, all or some; numbers are the endpoints' own.
fn slice_ports(rng: &mut ChaCha8Rng, number: u8) -> Value {
    let unnamed = rng.random_bool(0.3);
    let count = rng.random_range(1..4_u16);
    let ports = (0..count).map(|index| {
        let name = if unnamed && index == 0 {
            String::new()
        } else {
            format!("p{index}")
        };
        let port = 8000 + index + rng.random_range(0..2);
        json!({ "name": name, "port": port, "protocol": protocol(number, index) })
    });
    ports.collect()
}

/// With hints, most endpoints are for the node's own zone or another; one without makes all count for
/// nothing.
fn endpoint(rng: &mut ChaCha8Rng, number: u8, index: usize, ipv4: bool, hinted: bool) -> Value {
    let address = if ipv4 {
        format!("10.20.{}.{}", number + 1, index * 9 + 2)
    } else {
        format!("fd00:{number}::{}", index + 1)
    };
    let mut endpoint = json!({ "addresses": [address] });
    if let Some(node) = [Some("n1"), Some("n2"), None][index % 3] {
        endpoint["nodeName"] = json!(node);
    }
    if hinted && index != 7 {
        let zone = ["z1", "z2"][index % 2];
        endpoint["hints"] = json!({ "forZones": [{ "name": zone }] });
    }
    let fixed = index < 2;
    if !fixed || rng.random_bool(0.5) {
        let ready = fixed || rng.random_bool(0.7);
        endpoint["conditions"] = json!({ "ready": ready });
        if rng.random_bool(0.3) {
            let conditions = json!({ "ready": ready, "serving": true, "terminating": !ready });
            endpoint["conditions"] = conditions;
        }
    }
    endpoint
}
