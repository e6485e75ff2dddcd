//! Calico's manifest, made fit for a case: pure.

use chainbreak_model::{
    case::{Dataplane, IpFamily, IptablesVariant},
    names::AgentName,
};
use serde_json::{Map, Value, json};

use super::{Order, Way, is};
use crate::{error::KindError, hash::short, made::config, shared::signal};

/// The annotation of pods by which they are new ones.
pub(super) const NEW: &str = "chainbreak.dev/new-with";
/// Fields of FelixConfiguration that choose the dataplane.
const BPF: &str = Dataplane::FIELD;
pub(super) const NFTABLES: &str = "nftablesMode";
/// What calico-node may use in eBPF mode: its maps are charged to its pod, and with the operator's usual 512Mi it is killed
/// (projectcalico/calico, hack/test/kind/infra/values-bpf.yaml).
pub(super) const BPF_MEMORY: &str = "1Gi";
/// The API server's port in its node.
const API_PORT: &str = "6443";

/// Makes an object of the manifest fit for the case.
pub(super) fn fit(object: &mut Value, order: &Order<'_>) -> Result<(), KindError> {
    if is(object, "DaemonSet", "calico-node") {
        node(object, order);
    }
    let has_v6 = order.spec.ip_families.contains(&IpFamily::V6);
    if is(object, "ConfigMap", "calico-config") && has_v6 {
        assign(object, &order.spec.ip_families)?;
    }
    Ok(())
}

/// Of the `DaemonSet` calico-node: settings of the case, and what has its pods ready soon. They run where our label is, so that a case
/// may stop one.
fn node(set: &mut Value, order: &Order<'_>) {
    if set["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = "100%".into();
    }
    let template = &mut set["spec"]["template"];
    // They know the API's address by their environment.
    template["metadata"]["annotations"][NEW] = short(&json!([order.api]).to_string()).into();
    let pods = &mut template["spec"];
    pods["nodeSelector"][signal::label(AgentName::Felix)] = signal::LABELLED.into();
    let containers = pods["containers"].as_array_mut().into_iter().flatten();
    for container in containers.filter(|it| it["name"] == "calico-node") {
        for (name, value) in settings(order) {
            set_env(container, name, &value);
        }
        // Whatever the dataplane of the first case: a later one may have the same pods.
        if let Some(limit) = container.pointer_mut("/resources/limits/memory") {
            *limit = BPF_MEMORY.into();
        }
        look_often(container);
    }
}

/// The manifest asks every ten seconds whether Felix is ready, also of one that has just started: first when it has started. Felix alone is asked
/// for: of BIRD, which waits for other nodes, the readiness probe says what is to be said.
fn look_often(container: &mut Value) {
    let Some(mut startup) = container.get("readinessProbe").cloned() else {
        return;
    };
    if let Some(words) = startup["exec"]["command"].as_array_mut() {
        words.retain(|word| word != "-bird-ready");
    }
    startup["periodSeconds"] = 1.into();
    // A liveness probe, which waits for this one, ends Felix after 70 s: a minute and the manifest's delay.
    startup["failureThreshold"] = 70.into();
    container["startupProbe"] = startup;
}

/// The operator's pods are new ones whenever FelixConfiguration, or the API's address, is another one: an annotation of theirs.
pub(super) fn generation(order: &Order<'_>) -> String {
    short(&json!([order.felix, order.api]).to_string())
}

/// What calico-node sets in FelixConfiguration when it starts, where it is not there (v3.25 to v3.32): in the middle of a case that would be
/// another configuration, for which the Felix of every node begins anew.
const AT_THE_START: [(&str, &str); 2] =
    [("logSeverityScreen", "Info"), ("reportingInterval", "0s")];

/// FelixConfiguration with what the cluster is to be, unless the case says it itself. The operator chooses the dataplane by its own field.
pub(super) fn felix(order: &Order<'_>) -> Map<String, Value> {
    let mut felix = order.felix.clone();
    let backend = match order.spec.iptables {
        IptablesVariant::Legacy => "Legacy",
        IptablesVariant::Nft => "NFT",
    };
    for (field, value) in [("iptablesBackend", backend)].iter().chain(&AT_THE_START) {
        let value = || (*value).into();
        felix.entry((*field).to_owned()).or_insert_with(value);
    }
    if order.way == Way::Operator {
        felix.retain(|field, _| ![BPF, NFTABLES].contains(&field.as_str()));
    }
    felix
}

/// Whether Felix begins with eBPF.
pub(crate) fn bpf(felix: &Map<String, Value>) -> bool {
    felix.get(BPF).and_then(Value::as_bool) == Some(true)
}

fn settings(order: &Order<'_>) -> Vec<(&'static str, String)> {
    let families = &order.spec.ip_families;
    let (v4, v6) = (IpFamily::V4, IpFamily::V6);
    let mut settings = Vec::new();
    let mut set = |name, value: &str| settings.push((name, value.to_owned()));
    if families.contains(&v6) {
        set("FELIX_IPV6SUPPORT", "true");
        set("IP6", "autodetect");
    }
    if !families.contains(&v4) {
        set("IP", "none");
        // BIRD's is an IPv4 address otherwise.
        set("CALICO_ROUTER_ID", "hash");
    }
    if order.pools.is_empty() {
        // All nodes are on one network: BIRD's routes reach every pod, in eBPF mode too, which knows no IPIP.
        set("CALICO_IPV4POOL_IPIP", "Never");
        set("CALICO_IPV4POOL_CIDR", config::PODS.0);
        if families.contains(&v6) {
            set("CALICO_IPV6POOL_CIDR", config::PODS.1);
        }
    } else {
        // With a default pool's network beside it calico-node ends at once.
        set("NO_DEFAULT_POOLS", "true");
    }
    settings
}

/// Has Calico's IPAM give pods an address of each family. The plugin's configuration is a template, not yet JSON.
fn assign(map: &mut Value, families: &[IpFamily]) -> Result<(), KindError> {
    const IPAM: &str = "\"type\": \"calico-ipam\"";
    let config = map["data"]["cni_network_config"].as_str();
    let config = config.filter(|config| config.contains(IPAM));
    let config = config.ok_or_else(|| KindError::Manifest {
        origin: "Calico's ConfigMap calico-config".to_owned(),
        why: format!("cni_network_config has no {IPAM}, where it would be told of IPv6"),
    })?;
    let v4 = families.contains(&IpFamily::V4);
    let told = format!("{IPAM}, \"assign_ipv4\": \"{v4}\", \"assign_ipv6\": \"true\"");
    map["data"]["cni_network_config"] = config.replacen(IPAM, &told, 1).into();
    Ok(())
}

fn set_env(container: &mut Value, name: &str, value: &str) {
    if !container["env"].is_array() {
        container["env"] = json!([]);
    }
    let env = container["env"].as_array_mut().expect("it is one now");
    env.retain(|variable| variable["name"] != name);
    env.push(json!({ "name": name, "value": value }));
}

/// How Calico's pods, or its operator's, reach the API, if not by the Service `kubernetes`.
pub(super) fn services_endpoint(order: &Order<'_>, namespace: &str) -> Option<Value> {
    order.api.as_ref().map(|host| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "namespace": namespace, "name": "kubernetes-services-endpoint" },
            "data": {
                "KUBERNETES_SERVICE_HOST": host,
                "KUBERNETES_SERVICE_PORT": API_PORT,
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::PodOwner;

    use super::*;
    use crate::made::spec::{
        Spec,
        tests::{spec, with_calico},
    };

    fn order<'a>(spec: &'a Spec, felix: &'a Map<String, Value>) -> Order<'a> {
        Order {
            spec,
            way: Way::Manifest,
            felix,
            pools: Vec::new(),
            api: None,
        }
    }

    /// As in Calico's manifest, cut to what matters.
    fn set() -> Value {
        let containers = json!([{
            "name": "calico-node",
            "env": [
                { "name": "CALICO_NETWORKING_BACKEND", "valueFrom": { "configMapKeyRef": { "name": "calico-config" } } },
                { "name": "CALICO_IPV4POOL_IPIP", "value": "Always" },
            ],
            "livenessProbe": { "exec": { "command": ["/bin/calico-node", "-felix-live", "-bird-live"] } },
            "readinessProbe": { "exec": { "command": ["/bin/calico-node", "-felix-ready", "-bird-ready"] }, "periodSeconds": 10 },
            "lifecycle": { "preStop": { "exec": { "command": ["/bin/calico-node", "-shutdown"] } } },
        }]);
        let init = json!([{ "name": "upgrade-ipam" }, { "name": "install-cni" }, { "name": "mount-bpffs" }]);
        let update = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } });
        json!({ "spec": { "updateStrategy": update, "template": {
            "metadata": { "labels": { "k8s-app": "calico-node" } },
            "spec": {
                "nodeSelector": { "kubernetes.io/os": "linux" }, "initContainers": init, "containers": containers,
            },
        } } })
    }

    fn patched() -> Value {
        let mut set = set();
        let (spec, felix) = (spec(&with_calico(PodOwner::Calico)).unwrap(), Map::new());
        node(&mut set, &order(&spec, &felix));
        set["spec"].take()
    }

    #[test]
    fn calico_keeps_its_cni_routes_without_encapsulation_and_is_ready_as_soon_as_it_says_so() {
        insta::assert_snapshot!(serde_yaml::to_string(&patched()).unwrap());
    }

    #[test]
    fn a_limit_of_memory_is_one_that_lets_programs_live_and_none_comes_by_itself() {
        let with = |limits: Value| {
            let mut set = set();
            let container = &mut set["spec"]["template"]["spec"]["containers"][0];
            container["resources"] = limits;
            let (spec, felix) = (spec(&with_calico(PodOwner::Calico)).unwrap(), Map::new());
            node(&mut set, &order(&spec, &felix));
            set["spec"]["template"]["spec"]["containers"][0]["resources"].take()
        };
        let limited = with(json!({ "limits": { "memory": "512Mi" } }));
        assert_eq!(limited, json!({ "limits": { "memory": BPF_MEMORY } }));
        let asked = json!({ "requests": { "cpu": "250m" } });
        assert_eq!(with(asked.clone()), asked);
    }

    #[test]
    fn a_calico_node_that_starts_finds_nothing_to_set_in_felix_configuration() {
        let spec = spec(&with_calico(PodOwner::Calico)).unwrap();
        let of = |said: Value| felix(&order(&spec, said.as_object().unwrap()));
        let set = of(json!({ "logSeverityScreen": "Debug" }));
        assert_eq!(set["logSeverityScreen"], "Debug", "the case says it");
        assert_eq!(set["reportingInterval"], "0s");
        assert_eq!(of(json!({}))["logSeverityScreen"], "Info");
    }

    #[test]
    fn felix_writes_through_the_clusters_iptables_backend_unless_the_case_says_another() {
        let mut cluster = with_calico(PodOwner::Calico);
        cluster.iptables = IptablesVariant::Legacy;
        let spec = spec(&cluster).unwrap();
        let of = |said: Value| {
            let said = said.as_object().unwrap().clone();
            Value::Object(felix(&order(&spec, &said)))
        };
        assert_eq!(of(json!({}))["iptablesBackend"], "Legacy");
        let nft = json!({ "iptablesBackend": "NFT" });
        assert_eq!(of(nft)["iptablesBackend"], "NFT");
    }

    #[test]
    fn with_ipv6_calico_gives_pods_an_address_of_each_family() {
        let config = json!({
            "kind": "ConfigMap",
            "metadata": { "name": "calico-config" },
            "data": { "cni_network_config": "{ \"mtu\": __CNI_MTU__, \"ipam\": { \"type\": \"calico-ipam\" } }" },
        });
        let told = |families: &[IpFamily]| {
            let mut cluster = with_calico(PodOwner::Calico);
            cluster.ip_families = families.to_vec();
            let (spec, felix) = (spec(&cluster).unwrap(), Map::new());
            let order = order(&spec, &felix);
            let mut config = config.clone();
            fit(&mut config, &order).unwrap();
            let config = config["data"]["cni_network_config"].take();
            (config.as_str().unwrap().to_owned(), settings(&order))
        };
        let (config, _) = told(&[IpFamily::V4]);
        assert!(!config.contains("assign"), "{config}");
        let (config, dual) = told(&[IpFamily::V6, IpFamily::V4]);
        let both =
            "\"type\": \"calico-ipam\", \"assign_ipv4\": \"true\", \"assign_ipv6\": \"true\" }";
        assert!(config.contains(both), "{config}");
        assert!(dual.contains(&("FELIX_IPV6SUPPORT", "true".to_owned())));
        assert!(dual.contains(&("CALICO_IPV6POOL_CIDR", "fd00:10:20::/56".to_owned())));
        let (config, alone) = told(&[IpFamily::V6]);
        assert!(config.contains("\"assign_ipv4\": \"false\""), "{config}");
        assert!(alone.contains(&("IP", "none".to_owned())), "{alone:?}");
    }

    #[test]
    fn a_template_that_cannot_be_told_of_ipv6_is_refused() {
        let mut map = json!({ "data": { "cni_network_config": "{}" } });
        let said = assign(&mut map, &[IpFamily::V6]).unwrap_err().to_string();
        assert!(
            said.contains("calico-config: cni_network_config has no"),
            "{said}"
        );
    }
}
