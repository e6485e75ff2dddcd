//! kind's configuration file for a [`Spec`]. Kubernetes' nodes are called n1, n2, … as everywhere else
//! (kubeadm's `nodeRegistration.name`); kind's names stay those of their containers.

use std::time::Duration;

use chainbreak_model::case::IpFamily;
use serde_json::{Value, json};

use crate::{
    made::spec::{Network, Proxy, Spec},
    versions::Version,
};

/// A label of every node of ours: by it a cluster is known to be ours, in the API and, from the moment that the node's
/// container is there, in its `/kind/kubeadm.conf`. The value is the cluster's name.
pub(crate) const OURS: &str = "chainbreak.dev/cluster";

/// From here on kube-proxy's configuration says how much it logs (Kubernetes, pkg/proxy/apis/config/types.go).
const LOGS: Version = Version::of(1, 28, 0);

/// From here on it can say that conntrack is to be liberal.
const LIBERAL: Version = Version::of(1, 29, 0);

/// Pods of each family. Not the networks of kind's or Calico's own defaults: what is written there is meant so.
pub(crate) const PODS: (&str, &str) = ("10.20.0.0/16", "fd00:10:20::/56");
/// Services of each family: kubeadm's and kind's defaults.
const SERVICES: (&str, &str) = ("10.96.0.0/16", "fd00:10:96::/112");

/// YAML of kind's `v1alpha4`.
pub(crate) fn render(spec: &Spec) -> String {
    let nodes: Vec<Value> = (1..=spec.nodes).map(|number| node(spec, number)).collect();
    let mut patches = Vec::new();
    if let Some(proxy) = &spec.proxy {
        patches.push(kube_proxy(proxy, spec.image.version));
    }
    let config = json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {
            "ipFamily": ip_family(&spec.ip_families),
            "podSubnet": subnets(&spec.ip_families, PODS),
            "serviceSubnet": subnets(&spec.ip_families, SERVICES),
            "disableDefaultCNI": spec.network != Network::Kindnet,
            "kubeProxyMode": spec.proxy.as_ref().map_or("none", |proxy| proxy.mode),
        },
        "kubeadmConfigPatches": patches,
        "nodes": nodes,
    });
    serde_yaml::to_string(&config).expect("JSON can be written as YAML")
}

fn node(spec: &Spec, number: u16) -> Value {
    let (role, kind) = if number == 1 {
        ("control-plane", "InitConfiguration")
    } else {
        ("worker", "JoinConfiguration")
    };
    let registration = patch(&json!({
        "kind": kind,
        "nodeRegistration": { "name": format!("n{number}") },
    }));
    json!({
        "role": role,
        "image": spec.image.name,
        "labels": { OURS: spec.name().as_str() },
        "kubeadmConfigPatches": [registration],
    })
}

/// `maxPerCore: 0` leaves the machine's conntrack table as it is: its size is no container's to write. It logs as much as real ones do in the
/// lab, and in many clusters: what scenarios look for in a log is there at the second level.
fn kube_proxy(proxy: &Proxy, version: Version) -> String {
    let periods = json!({
        "minSyncPeriod": go_duration(proxy.min_sync_period),
        "syncPeriod": go_duration(proxy.sync_period),
    });
    let mut config = json!({
        "kind": "KubeProxyConfiguration",
        "mode": proxy.mode,
        "conntrack": { "maxPerCore": 0 },
        proxy.mode: periods,
    });
    // kind would have it for nftables mode, which hides what conntrack calls INVALID; a scenario says so itself.
    if version >= LIBERAL {
        put(
            &mut config,
            &json!({ "conntrack": { "tcpBeLiberal": false } }),
        );
    }
    if version >= LOGS {
        put(&mut config, &json!({ "logging": { "verbosity": 2 } }));
    }
    put(&mut config, &Value::Object(proxy.config.clone()));
    patch(&config)
}

/// Lays settings over others.
fn put(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, over) in over {
                put(under.entry(name.clone()).or_insert(Value::Null), over);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

fn patch(value: &Value) -> String {
    serde_yaml::to_string(value).expect("JSON can be written as YAML")
}

/// As Go's `time.ParseDuration` reads it.
fn go_duration(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn ip_family(families: &[IpFamily]) -> &'static str {
    match families {
        [_, _, ..] => "dual",
        [IpFamily::V6] => "ipv6",
        _ => "ipv4",
    }
}

/// The first family's comes first: it is the default of Services.
fn subnets(families: &[IpFamily], (v4, v6): (&str, &str)) -> String {
    let subnets = families.iter().map(|family| match family {
        IpFamily::V4 => v4,
        IpFamily::V6 => v6,
    });
    subnets.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::ProxyMode;

    use super::*;
    use crate::made::spec::tests::{cluster, spec};

    #[test]
    fn two_nodes_with_a_hurried_kube_proxy() {
        insta::assert_snapshot!(render(&spec(&cluster()).unwrap()));
    }

    #[test]
    fn ipvs_mode_is_kind_s_and_has_the_periods_of_its_own() {
        let mut cluster = cluster();
        let proxy = cluster.kube_proxy.as_mut().unwrap();
        proxy.mode = ProxyMode::Ipvs;
        let rendered = render(&spec(&cluster).unwrap());
        for lines in [
            "  ipvs:\n    minSyncPeriod: 1000ms\n    syncPeriod: 30000ms\n",
            "  mode: ipvs\n",
            "  kubeProxyMode: ipvs\n",
        ] {
            assert!(rendered.contains(lines), "{lines}: {rendered}");
        }
    }

    #[test]
    fn dual_stack_without_kube_proxy_in_ipv6_first() {
        let mut cluster = cluster();
        cluster.nodes = 1;
        cluster.kube_proxy = None;
        cluster.ip_families = vec![IpFamily::V6, IpFamily::V4];
        insta::assert_snapshot!(render(&spec(&cluster).unwrap()));
    }
}
