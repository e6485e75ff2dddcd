//! Kubernetes objects as `kubectl get … -o yaml` and `-o json` print them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use chainbreak_model::is_hidden;
use chainbreak_netfilter::names::{Namespaced, PortName, Protocol};
use serde_json::Value;

/// What the API holds, as far as it was attached.
#[derive(Debug, Clone, Default)]
pub struct Objects(Arc<Vec<Value>>);

/// A Service's address and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServicePort {
    pub(crate) name: PortName,
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) port: u16,
    /// Whether kube-proxy leads every request to it, and to any of its endpoints that are ready: no policy, hint or label says otherwise.
    pub(crate) is_plain: bool,
}

/// The endpoints of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    /// All that its slices name, in whatever condition.
    pub(crate) all: BTreeSet<SocketAddr>,
    pub(crate) ready: BTreeSet<SocketAddr>,
    /// Whether some are meant for the clients of some places.
    pub(crate) are_hinted: bool,
}

impl Objects {
    /// Takes in a text: whether it has any, and what of it is something else.
    pub(crate) fn add<'a>(&mut self, text: &'a str) -> (bool, Cow<'a, str>) {
        let before = self.0.len();
        let (documents, rest) = documents(text);
        for document in documents {
            self.take(document);
        }
        (self.0.len() > before, rest)
    }

    /// Takes in an object, or a list of some.
    pub fn take(&mut self, value: Value) {
        match value {
            Value::Array(items) => {
                for item in items {
                    self.take(item);
                }
            }
            Value::Object(mut object) => {
                let kind = object.get("kind").and_then(Value::as_str);
                let Some(kind) = kind.map(str::to_owned) else {
                    return;
                };
                match object.get_mut("items").map(Value::take) {
                    Some(items) if kind.ends_with("List") => self.take(items),
                    _ => Arc::make_mut(&mut self.0).push(Value::Object(object)),
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

    /// The versions of kube-proxy and of calico/node, by the tags of images. What nodes say of kube-proxy is the kubelet's own version.
    pub(crate) fn versions(&self) -> BTreeSet<(&'static str, String)> {
        let images = [("kube-proxy", "/kube-proxy:"), ("calico", "calico/node:")];
        let mut versions = BTreeSet::new();
        for object in self.0.iter() {
            let spec = object
                .pointer("/spec/template/spec")
                .unwrap_or(&object["spec"]);
            let containers = spec["containers"].as_array().into_iter().flatten();
            for image in containers.filter_map(|it| it["image"].as_str()) {
                let slashed = format!("/{image}");
                let told = images.iter().filter_map(|(what, name)| {
                    let (_, tag) = slashed.split_once(name)?;
                    let tag = tag.split(|c: char| c == '@' || c.is_whitespace() || c.is_control());
                    Some((*what, tag.into_iter().next()?.to_owned()))
                });
                versions.extend(told);
            }
        }
        versions
    }

    /// The ports of Services that have cluster IPs.
    pub(crate) fn services(&self) -> Vec<ServicePort> {
        let ports = self.ports();
        ports.filter(|port| !port.addresses.is_empty()).collect()
    }

    /// The ports of Services, in words, of which all endpoints that are ready are asked; also of those whose addresses nobody says.
    pub(crate) fn plain(&self) -> BTreeSet<String> {
        let ports = self.ports().filter(|port| port.is_plain);
        ports.map(|port| port.name.to_string()).collect()
    }

    fn ports(&self) -> impl Iterator<Item = ServicePort> {
        self.of("Service").flat_map(|service| {
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
            let is_plain = is_plain(service);
            let ports = service.pointer("/spec/ports").and_then(Value::as_array);
            let of_port = move |port: &Value| {
                Some(ServicePort {
                    name: PortName {
                        service: name.clone(),
                        port: shown(port["name"].as_str().unwrap_or_default()),
                        protocol: Protocol::from_api(port["protocol"].as_str())?,
                    },
                    addresses: addresses.clone(),
                    port: u16::try_from(port["port"].as_u64()?).ok()?,
                    is_plain,
                })
            };
            ports
                .into_iter()
                .flatten()
                .filter_map(of_port)
                .collect::<Vec<_>>()
        })
    }

    /// The endpoints of the ports of Services that have slices; none without any slice.
    pub(crate) fn endpoints(&self) -> Option<BTreeMap<PortName, Endpoints>> {
        let mut endpoints: Option<BTreeMap<PortName, Endpoints>> = None;
        for slice in self.of("EndpointSlice") {
            let all = endpoints.get_or_insert_default();
            let Some(service) = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str()
            else {
                continue;
            };
            let service = Namespaced::new(namespaced(slice).namespace, shown(service));
            for port in slice["ports"].as_array().into_iter().flatten() {
                let number = port["port"].as_u64().and_then(|it| u16::try_from(it).ok());
                let protocol = Protocol::from_api(port["protocol"].as_str());
                let (Some(number), Some(protocol)) = (number, protocol) else {
                    continue;
                };
                let name = PortName {
                    service: service.clone(),
                    port: shown(port["name"].as_str().unwrap_or_default()),
                    protocol,
                };
                all.entry(name).or_default().take(slice, number);
            }
        }
        endpoints
    }
}

impl Endpoints {
    /// Those of one family of addresses.
    pub(crate) fn of_family(&self, is_v6: bool) -> Self {
        let of = |all: &BTreeSet<SocketAddr>| {
            all.iter()
                .filter(|at| at.is_ipv6() == is_v6)
                .copied()
                .collect()
        };
        Self {
            all: of(&self.all),
            ready: of(&self.ready),
            are_hinted: self.are_hinted,
        }
    }

    /// Those of a slice at a port; where nothing is said of their condition they are ready.
    fn take(&mut self, slice: &Value, port: u16) {
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let addresses = endpoint["addresses"].as_array().into_iter().flatten();
            let addresses = addresses.filter_map(|it| it.as_str()?.parse::<IpAddr>().ok());
            let at: Vec<SocketAddr> = addresses.map(|ip| SocketAddr::new(ip, port)).collect();
            if endpoint["conditions"]["ready"].as_bool().unwrap_or(true) {
                self.ready.extend(&at);
            }
            self.all.extend(at);
            self.are_hinted |= endpoint.get("hints").is_some_and(|it| !it.is_null());
        }
    }
}

/// See [`ServicePort::is_plain`].
fn is_plain(service: &Value) -> bool {
    let (spec, about) = (&service["spec"], &service["metadata"]);
    let labels = [
        "service.kubernetes.io/service-proxy-name",
        "service.kubernetes.io/headless",
    ];
    let labelled = labels.iter().any(|it| about["labels"].get(it).is_some());
    let annotations = [
        "service.kubernetes.io/topology-mode",
        "service.kubernetes.io/topology-aware-hints",
    ];
    let annotated = annotations
        .iter()
        .any(|it| about["annotations"].get(it).is_some());
    let local = spec["internalTrafficPolicy"] == "Local";
    !local && !labelled && !annotated && spec["trafficDistribution"].is_null()
}

fn namespaced(object: &Value) -> Namespaced {
    let text = |name: &str| object["metadata"][name].as_str().map(shown);
    Namespaced::new(
        text("namespace").unwrap_or_else(|| "default".to_owned()),
        text("name").unwrap_or_default(),
    )
}

/// A stranger's name, of which nothing makes a line of its own.
pub(crate) fn shown(name: &str) -> String {
    name.replace(is_hidden, "\u{fffd}")
}

/// YAML of more bytes is not read, nor what is nested deeper: nobody's objects are.
const LARGEST: usize = 32 << 20;
const DEEPEST: usize = 100;

/// The documents of a text that may be objects, JSON or YAML, and what is left of it.
fn documents(text: &str) -> (Vec<Value>, Cow<'_, str>) {
    let trimmed = text.trim_start();
    if trimmed.starts_with(['{', '[']) && trimmed.contains("\"kind\"") {
        let mut values = serde_json::Deserializer::from_str(trimmed).into_iter::<Value>();
        let mut read = Vec::new();
        let mut end = 0;
        while let Some(Ok(value)) = values.next() {
            read.push(value);
            end = values.byte_offset();
        }
        return (read, Cow::Borrowed(trimmed.get(end..).unwrap_or_default()));
    }
    let (mut read, mut rest) = (Vec::new(), String::new());
    for document in text.split("\n---") {
        match of_yaml(document) {
            Some(value) => read.push(value),
            None => rest.extend([document, "\n"]),
        }
    }
    if read.is_empty() {
        return (read, Cow::Borrowed(text));
    }
    (read, Cow::Owned(rest))
}

fn of_yaml(document: &str) -> Option<Value> {
    let starts = ["apiVersion:", "kind:"];
    let says = |line: &str| starts.iter().any(|it| line.starts_with(it));
    if document.len() > LARGEST || !document.lines().any(says) || depth(document) > DEEPEST {
        return None;
    }
    let value: Value = serde_yaml::from_str(document).ok()?;
    value.get("kind")?.is_string().then_some(value)
}

/// How deep brackets are nested, at most, those in texts among them.
fn depth(text: &str) -> usize {
    let (mut depth, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
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
    fn of_slices_and_services_the_endpoints_and_the_ports_are_known() {
        let mut objects = Objects::default();
        assert!(objects.add(SLICES).0);
        let [service] = objects.services().try_into().unwrap();
        assert_eq!(
            (service.name.to_string(), service.port),
            ("test/web:http".to_owned(), 80)
        );
        assert_eq!(
            service.addresses,
            BTreeSet::from(["10.96.1.0".parse().unwrap()])
        );
        assert!(service.is_plain);
        let endpoints = &objects.endpoints().unwrap()[&service.name];
        assert_eq!(
            endpoints.ready,
            BTreeSet::from(["10.20.1.2:80".parse().unwrap()])
        );
        assert_eq!(endpoints.all.len(), 2);
        assert_eq!(Objects::default().endpoints(), None);
        let local = SLICES.replace(
            "clusterIP: 10",
            "internalTrafficPolicy: Local, clusterIP: 10",
        );
        let mut objects = Objects::default();
        objects.add(&local);
        assert!(!objects.services()[0].is_plain);
    }

    #[test]
    fn versions_are_told_by_images() {
        let mut objects = Objects::default();
        let pod = |image: &str| serde_json::json!({ "kind": "Pod", "spec": { "containers": [{ "image": image }] } });
        for image in [
            "registry.k8s.io/kube-proxy:v1.33.4@sha256:ab",
            "calico/node:v3.28.1\n✗ forged",
        ] {
            assert!(objects.add(&pod(image).to_string()).0);
        }
        let told: Vec<(&str, String)> = objects.versions().into_iter().collect();
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|(what, tag)| (*what, tag.as_str()))
            .collect();
        assert_eq!(told, [("calico", "v3.28.1"), ("kube-proxy", "v1.33.4")]);
    }

    #[test]
    fn what_is_no_object_is_left_to_others() {
        let deep = format!("kind: x\ny: {}", "[".repeat(100_000));
        for text in [
            "*nat\nCOMMIT\n",
            "{\"log\":\"x\"}",
            "kind of: a text\n",
            "kind: [\n",
            "[1, \"kind\"]",
            &deep,
        ] {
            let mut objects = Objects::default();
            assert!(!objects.add(text).0, "{text:.40}");
        }
        let mut objects = Objects::default();
        let json = "{\"kind\": \"Pod\"}\n*nat\nCOMMIT\n";
        assert_eq!(objects.add(json), (true, "\n*nat\nCOMMIT\n".into()));
        let yaml = "*nat\nCOMMIT\n---\nkind: Pod\n";
        assert_eq!(objects.add(yaml), (true, "*nat\nCOMMIT\n".into()));
    }
}
