//! Kubernetes objects as `kubectl get … -o yaml` and `-o json` print them.

#[cfg(test)]
mod tests;

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

    /// The endpoints of the ports of Services that have slices, or, where no slice was attached, Endpoints; none without any of these.
    pub(crate) fn endpoints(&self) -> Option<BTreeMap<PortName, Endpoints>> {
        self.slices().or_else(|| self.endpoints_of_old())
    }

    /// Those that slices name, which alone have the pods that are ending.
    pub(crate) fn slices(&self) -> Option<BTreeMap<PortName, Endpoints>> {
        let mut endpoints: Option<BTreeMap<PortName, Endpoints>> = None;
        for slice in self.of("EndpointSlice") {
            let all = endpoints.get_or_insert_default();
            let Some(service) = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str()
            else {
                continue;
            };
            let service = Namespaced::new(namespaced(slice).namespace, shown(service));
            for (name, port) in ports(&service, slice) {
                all.entry(name).or_default().take(slice, port);
            }
        }
        endpoints
    }

    /// What `kubectl get endpoints` prints, all that sosreports have. They are of one family of addresses, and lack some of more than 1,000, so
    /// that nothing is known of a Service of two families nor of one of so many.
    fn endpoints_of_old(&self) -> Option<BTreeMap<PortName, Endpoints>> {
        let of_one = |it: &&Value| {
            let ips = it["spec"]["clusterIPs"].as_array();
            ips.is_none_or(|all| all.len() == 1)
        };
        let of_one: BTreeSet<Namespaced> =
            self.of("Service").filter(of_one).map(namespaced).collect();
        let mut endpoints: Option<BTreeMap<PortName, Endpoints>> = None;
        for object in self.of("Endpoints") {
            let all = endpoints.get_or_insert_default();
            let lacks_some = object["metadata"]["annotations"].get(OVER_CAPACITY);
            let service = namespaced(object);
            if lacks_some.is_some() || !of_one.contains(&service) {
                continue;
            }
            for subset in object["subsets"].as_array().into_iter().flatten() {
                for (name, port) in ports(&service, subset) {
                    all.entry(name).or_default().take_subset(subset, port);
                }
            }
        }
        endpoints
    }
}

/// The ports of a slice or a subset, with their numbers.
fn ports(service: &Namespaced, of: &Value) -> impl Iterator<Item = (PortName, u16)> {
    let ports = of["ports"].as_array().into_iter().flatten();
    ports.filter_map(|port| {
        let name = PortName {
            service: service.clone(),
            port: shown(port["name"].as_str().unwrap_or_default()),
            protocol: Protocol::from_api(port["protocol"].as_str())?,
        };
        Some((name, u16::try_from(port["port"].as_u64()?).ok()?))
    })
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

    /// Those of a subset of Endpoints at a port.
    fn take_subset(&mut self, subset: &Value, port: u16) {
        for (list, is_ready) in [("addresses", true), ("notReadyAddresses", false)] {
            let addresses = subset[list].as_array().into_iter().flatten();
            self.add(addresses.map(|it| &it["ip"]), port, is_ready);
        }
    }

    /// Those of a slice at a port; where nothing is said of their condition they are ready.
    fn take(&mut self, slice: &Value, port: u16) {
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let addresses = endpoint["addresses"].as_array().into_iter().flatten();
            let is_ready = endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
            self.add(addresses, port, is_ready);
            self.are_hinted |= endpoint.get("hints").is_some_and(|it| !it.is_null());
        }
    }

    fn add<'a>(&mut self, addresses: impl Iterator<Item = &'a Value>, port: u16, is_ready: bool) {
        let addresses = addresses.filter_map(|it| it.as_str()?.parse::<IpAddr>().ok());
        let at: Vec<SocketAddr> = addresses.map(|ip| SocketAddr::new(ip, port)).collect();
        if is_ready {
            self.ready.extend(&at);
        }
        self.all.extend(at);
    }
}

/// On which nodes pods are.
#[derive(Debug, Default)]
pub struct Places(BTreeMap<Namespaced, String>);

impl Places {
    /// Takes in the pods in a text: whether it has objects of any kind.
    pub fn add(&mut self, text: &str) -> bool {
        let mut objects = Objects::default();
        let has_objects = objects.add(text).0;
        let on_nodes = objects.of("Pod").filter_map(|pod| {
            let node = pod["spec"]["nodeName"].as_str()?;
            Some((namespaced(pod), shown(node)))
        });
        self.0.extend(on_nodes);
        has_objects
    }

    /// Whether no pod is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The node of a pod.
    pub fn node_of(&self, namespace: &str, name: &str) -> Option<&str> {
        let pod = Namespaced::new(namespace, name);
        self.0.get(&pod).map(String::as_str)
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

/// By which Endpoints say that they lack some (`truncated`, Kubernetes 1.22 and later).
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
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
