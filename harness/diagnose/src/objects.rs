//! Kubernetes objects as `kubectl get … -o yaml` and `-o json` print them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use chainbreak_netfilter::names::{Namespaced, PortName, Protocol};
use serde::Deserialize;
use serde_json::Value;

/// What the API holds, as far as it was attached.
#[derive(Debug, Clone, Default)]
pub struct Objects(Vec<Value>);

/// A Service's address and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServicePort {
    pub(crate) name: PortName,
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) port: u16,
}

impl Objects {
    /// Takes in a text; false where it has none.
    pub(crate) fn add(&mut self, text: &str) -> bool {
        let before = self.0.len();
        for document in documents(text) {
            self.take(document);
        }
        self.0.len() > before
    }

    fn take(&mut self, value: Value) {
        match value {
            Value::Array(items) => items.into_iter().for_each(|it| self.take(it)),
            Value::Object(mut object) => {
                let kind = object.get("kind").and_then(Value::as_str);
                let Some(kind) = kind.map(str::to_owned) else {
                    return;
                };
                match object.get_mut("items").map(Value::take) {
                    Some(items) if kind.ends_with("List") => self.take(items),
                    _ => self.0.push(Value::Object(object)),
                }
            }
            _ => {}
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of a kind.
    pub(crate) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        let is = move |object: &&Value| object["kind"] == kind;
        self.0.iter().filter(is)
    }

    /// The spec of FelixConfiguration `default`.
    pub(crate) fn felix_configuration(&self) -> Option<&Value> {
        let mut all = self.of("FelixConfiguration");
        all.find(|it| it["metadata"]["name"] == "default")
            .map(|it| &it["spec"])
    }

    /// The versions of kube-proxy and of calico/node: tags of images, and what nodes say.
    pub(crate) fn versions(&self) -> BTreeSet<(&'static str, String)> {
        let images = [("kube-proxy", "/kube-proxy:"), ("calico", "calico/node:")];
        let mut versions = BTreeSet::new();
        for object in &self.0 {
            let spec = object
                .pointer("/spec/template/spec")
                .unwrap_or(&object["spec"]);
            let containers = spec["containers"].as_array().into_iter().flatten();
            for image in containers.filter_map(|it| it["image"].as_str()) {
                let slashed = format!("/{image}");
                let told = images.iter().filter_map(|(what, name)| {
                    let (_, tag) = slashed.split_once(name)?;
                    Some((*what, tag.split('@').next()?.to_owned()))
                });
                versions.extend(told);
            }
        }
        let nodes = self.of("Node");
        let said = nodes.filter_map(|it| it.pointer("/status/nodeInfo/kubeProxyVersion")?.as_str());
        versions.extend(
            said.filter(|it| !it.is_empty())
                .map(|it| ("kube-proxy", it.to_owned())),
        );
        versions
    }

    /// The ports of Services that have cluster IPs.
    pub(crate) fn services(&self) -> Vec<ServicePort> {
        let ports = self.of("Service").flat_map(|service| {
            let name = namespaced(service);
            let ips = service
                .pointer("/spec/clusterIPs")
                .and_then(Value::as_array);
            let ips = ips.map_or_else(
                || vec![&service["spec"]["clusterIP"]],
                |all| all.iter().collect(),
            );
            let addresses: BTreeSet<IpAddr> = ips
                .into_iter()
                .filter_map(|ip| ip.as_str()?.parse().ok())
                .collect();
            let ports = service.pointer("/spec/ports").and_then(Value::as_array);
            let of_port = move |port: &Value| {
                Some(ServicePort {
                    name: PortName {
                        service: name.clone(),
                        port: port["name"].as_str().unwrap_or_default().to_owned(),
                        protocol: Protocol::from_api(port["protocol"].as_str())?,
                    },
                    addresses: addresses.clone(),
                    port: u16::try_from(port["port"].as_u64()?).ok()?,
                })
            };
            ports
                .into_iter()
                .flatten()
                .filter_map(of_port)
                .collect::<Vec<_>>()
        });
        ports.filter(|port| !port.addresses.is_empty()).collect()
    }

    /// The endpoints that are ready, of the ports of Services that have slices; none without any slice.
    pub(crate) fn endpoints(&self) -> Option<BTreeMap<PortName, BTreeSet<SocketAddr>>> {
        let mut endpoints: Option<BTreeMap<PortName, BTreeSet<SocketAddr>>> = None;
        for slice in self.of("EndpointSlice") {
            let all = endpoints.get_or_insert_default();
            let Some(service) = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str()
            else {
                continue;
            };
            let service = Namespaced::new(namespaced(slice).namespace, service);
            let ready: Vec<IpAddr> = addresses(slice).collect();
            for port in slice["ports"].as_array().into_iter().flatten() {
                let number = port["port"].as_u64().and_then(|it| u16::try_from(it).ok());
                let protocol = Protocol::from_api(port["protocol"].as_str());
                let (Some(number), Some(protocol)) = (number, protocol) else {
                    continue;
                };
                let name = PortName {
                    service: service.clone(),
                    port: port["name"].as_str().unwrap_or_default().to_owned(),
                    protocol,
                };
                let of_port = all.entry(name).or_default();
                of_port.extend(ready.iter().map(|ip| SocketAddr::new(*ip, number)));
            }
        }
        endpoints
    }
}

/// The addresses of a slice's endpoints that are ready; where that is not said, they are.
fn addresses(slice: &Value) -> impl Iterator<Item = IpAddr> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let ready = endpoints.filter(|it| it["conditions"]["ready"].as_bool().unwrap_or(true));
    let addresses = ready.flat_map(|it| it["addresses"].as_array().into_iter().flatten());
    addresses.filter_map(|it| it.as_str()?.parse().ok())
}

fn namespaced(object: &Value) -> Namespaced {
    let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
    Namespaced::new(
        text("namespace").unwrap_or_else(|| "default".to_owned()),
        text("name").unwrap_or_default(),
    )
}

/// What may be objects: a text of JSON, or documents of YAML of which one says its kind.
fn documents(text: &str) -> Vec<Value> {
    let trimmed = text.trim_start();
    if trimmed.starts_with(['{', '[']) && trimmed.contains("\"kind\"") {
        let values = serde_json::Deserializer::from_str(trimmed).into_iter::<Value>();
        return values.map_while(Result::ok).collect();
    }
    let says = |line: &str| {
        ["apiVersion:", "- apiVersion:", "kind:"]
            .iter()
            .any(|it| line.starts_with(it))
    };
    if !text.lines().any(says) {
        return Vec::new();
    }
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    documents.map_while(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICES: &str = "apiVersion: v1\nkind: List\nitems:\n\
        - apiVersion: discovery.k8s.io/v1\n  kind: EndpointSlice\n  metadata: { name: web-1, namespace: test, labels: { kubernetes.io/service-name: web } }\n  \
        addressType: IPv4\n  ports: [{ name: http, port: 80, protocol: TCP }]\n  \
        endpoints:\n  - { addresses: [10.20.1.2], conditions: { ready: true } }\n  - { addresses: [10.20.1.3], conditions: { ready: false } }\n\
        - apiVersion: v1\n  kind: Service\n  metadata: { name: web, namespace: test }\n  \
        spec: { clusterIP: 10.96.1.0, clusterIPs: [10.96.1.0], ports: [{ name: http, port: 80 }] }\n";

    #[test]
    fn of_slices_and_services_the_ready_endpoints_and_the_ports_are_known() {
        let mut objects = Objects::default();
        assert!(objects.add(SLICES));
        let [port] = objects.services().try_into().unwrap();
        let ServicePort {
            name,
            addresses,
            port,
        } = port;
        assert_eq!((name.to_string(), port), ("test/web:http".to_owned(), 80));
        assert_eq!(addresses, BTreeSet::from(["10.96.1.0".parse().unwrap()]));
        let endpoints = objects.endpoints().unwrap();
        assert_eq!(
            endpoints[&name],
            BTreeSet::from(["10.20.1.2:80".parse().unwrap()])
        );
        assert_eq!(Objects::default().endpoints(), None);
    }

    #[test]
    fn versions_are_told_by_images_and_by_nodes() {
        let mut objects = Objects::default();
        let pod = |image: &str| serde_json::json!({ "kind": "Pod", "spec": { "containers": [{ "image": image }] } });
        let node = serde_json::json!({ "kind": "Node", "status": { "nodeInfo": { "kubeProxyVersion": "v1.32.3" } } });
        for object in [
            pod("registry.k8s.io/kube-proxy:v1.33.4@sha256:ab"),
            pod("calico/node:v3.28.1"),
            node,
        ] {
            assert!(objects.add(&object.to_string()));
        }
        let told: Vec<(&str, String)> = objects.versions().into_iter().collect();
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|(what, tag)| (*what, tag.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("calico", "v3.28.1"),
                ("kube-proxy", "v1.32.3"),
                ("kube-proxy", "v1.33.4")
            ]
        );
    }

    #[test]
    fn what_is_no_object_is_left_to_others() {
        let mut objects = Objects::default();
        for text in [
            "*nat\nCOMMIT\n",
            "{\"log\":\"x\"}",
            "kind of: a text\n",
            "kind: [\n",
            "[1, \"kind\"]",
        ] {
            assert!(!objects.add(text), "{text}");
        }
    }
}
