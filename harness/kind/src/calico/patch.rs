//! Calico's manifest, made fit for a case: pure.

use chainbreak_model::case::IptablesVariant;
use serde_json::{Map, Value, json};

use crate::{
    config,
    hash::short,
    spec::{Network, Spec},
};

/// Init containers that make Calico the owner of pods' interfaces.
const CNI: [&str; 2] = ["upgrade-ipam", "install-cni"];
/// What kindnet calls the host's ends of pods' interfaces begins so.
const VETH: &str = "veth";
/// The API server's port in its node.
const API_PORT: &str = "6443";

/// Of the `DaemonSet` calico-node: settings of the case; and where Calico does not own the pods, nothing of its CNI and of BIRD.
pub(super) fn node(set: &mut Value, spec: &Spec, felix: &Map<String, Value>) {
    // New pods whenever FelixConfiguration is another one.
    let text = serde_json::to_string(felix).expect("a JSON object has string keys");
    let hash = short(&text);
    let template = &mut set["spec"]["template"];
    template["metadata"]["annotations"]["chainbreak.dev/felix"] = hash.into();
    let pods = &mut template["spec"];
    let owns = spec.network == Network::Calico;
    if !owns && let Some(init) = pods["initContainers"].as_array_mut() {
        init.retain(|container| !CNI.iter().any(|name| container["name"] == *name));
    }
    let containers = pods["containers"].as_array_mut().into_iter().flatten();
    for container in containers.filter(|it| it["name"] == "calico-node") {
        for (name, value) in settings(spec, owns) {
            set_env(container, name, &value);
        }
        if !owns {
            without_bird(container);
        }
    }
}

fn settings(spec: &Spec, owns: bool) -> Vec<(&'static str, String)> {
    let backend = match spec.iptables {
        IptablesVariant::Legacy => "Legacy",
        IptablesVariant::Nft => "NFT",
    };
    let mut settings = vec![("FELIX_IPTABLESBACKEND", backend.to_owned())];
    if owns {
        // All nodes are on one network: BIRD's routes reach every pod, in eBPF mode too, which knows no IPIP.
        settings.push(("CALICO_IPV4POOL_IPIP", "Never".to_owned()));
        settings.push(("CALICO_IPV4POOL_CIDR", config::PODS.0.to_owned()));
    } else {
        settings.push(("CALICO_NETWORKING_BACKEND", "none".to_owned()));
        settings.push(("FELIX_INTERFACEPREFIX", VETH.to_owned()));
    }
    settings
}

fn set_env(container: &mut Value, name: &str, value: &str) {
    if !container["env"].is_array() {
        container["env"] = json!([]);
    }
    let env = container["env"].as_array_mut().expect("it is one now");
    env.retain(|variable| variable["name"] != name);
    env.push(json!({ "name": name, "value": value }));
}

/// Its probes no longer ask for BIRD, which does not run.
fn without_bird(container: &mut Value) {
    for probe in ["livenessProbe", "readinessProbe"] {
        if let Some(command) = container[probe]["exec"]["command"].as_array_mut() {
            command.retain(|word| word.as_str().is_none_or(|word| !word.starts_with("-bird")));
        }
    }
    let life = &mut container["lifecycle"];
    if life.is_object() {
        // It tells BIRD to shut down gracefully.
        *life = json!({});
    }
}

/// Where nobody serves the Service `kubernetes`: how Calico's pods reach the API instead.
pub(super) fn services_endpoint(spec: &Spec) -> Option<Value> {
    spec.proxy.is_none().then(|| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "namespace": "kube-system", "name": "kubernetes-services-endpoint" },
            "data": {
                "KUBERNETES_SERVICE_HOST": spec.name().container(1),
                "KUBERNETES_SERVICE_PORT": API_PORT,
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::{AgentSource, CalicoSpec, ClusterSpec, PodOwner};

    use super::*;
    use crate::spec::tests::{cluster, spec};

    fn with_calico(pods: PodOwner) -> ClusterSpec {
        let mut cluster = cluster();
        cluster.calico = Some(CalicoSpec {
            version: "v3.28.1".to_owned(),
            source: AgentSource::Cluster,
            pods,
        });
        cluster
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
            "lifecycle": { "preStop": { "exec": { "command": ["/bin/calico-node", "-shutdown"] } } },
        }]);
        let init = json!([{ "name": "upgrade-ipam" }, { "name": "install-cni" }, { "name": "mount-bpffs" }]);
        json!({ "spec": { "template": {
            "metadata": { "labels": { "k8s-app": "calico-node" } },
            "spec": { "initContainers": init, "containers": containers },
        } } })
    }

    fn patched(pods: PodOwner) -> Value {
        let mut set = set();
        node(&mut set, &spec(&with_calico(pods)).unwrap(), &Map::new());
        set["spec"]["template"].take()
    }

    #[test]
    fn where_calico_owns_the_pods_it_keeps_its_cni_and_routes_without_encapsulation() {
        insta::assert_snapshot!(serde_yaml::to_string(&patched(PodOwner::Calico)).unwrap());
    }

    #[test]
    fn where_another_cni_owns_the_pods_nothing_of_calicos_own_is_left() {
        insta::assert_snapshot!(serde_yaml::to_string(&patched(PodOwner::ThirdParty)).unwrap());
    }

    #[test]
    fn another_felix_configuration_means_new_pods() {
        let annotation = |felix: Value| {
            let mut set = set();
            let felix = felix.as_object().unwrap();
            node(
                &mut set,
                &spec(&with_calico(PodOwner::Calico)).unwrap(),
                felix,
            );
            set["spec"]["template"]["metadata"]["annotations"].take()
        };
        let bpf = || json!({ "bpfEnabled": true });
        assert_eq!(annotation(bpf()), annotation(bpf()));
        assert_ne!(annotation(bpf()), annotation(json!({})));
    }

    #[test]
    fn without_kube_proxy_calico_is_told_where_the_api_is() {
        let mut cluster = with_calico(PodOwner::Calico);
        assert_eq!(services_endpoint(&spec(&cluster).unwrap()), None);
        cluster.kube_proxy = None;
        let spec = spec(&cluster).unwrap();
        let host = services_endpoint(&spec).unwrap()["data"]["KUBERNETES_SERVICE_HOST"].take();
        assert_eq!(host, format!("{}-control-plane", spec.name()));
    }
}
