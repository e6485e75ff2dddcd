//! How real agents are told what a case asks for, by flags and environment. Pure.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use chainbreak_agents::felix as model;
use chainbreak_model::{
    case::{CalicoSpec, KubeProxySpec, PodOwner},
    names::{AgentName, NodeName},
};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::proxy_config;
use crate::wiring::OTHERS;

/// The variable by which Felix knows pods of another CNI, as the operator sets it; without it no program is attached to one
/// (measured with v3.28.1, v3.32.1).
pub(super) fn interface_prefix(pods: PodOwner) -> Option<(String, String)> {
    let variable = || ("FELIX_INTERFACEPREFIX".to_owned(), OTHERS.to_owned());
    (pods == PodOwner::ThirdParty).then(variable)
}

/// Where an agent is and whom it asks.
#[derive(Debug, Clone)]
pub(super) struct NodeContext {
    pub(super) node: NodeName,
    /// The node's.
    pub(super) address: IpAddr,
    /// The API's, plain HTTP.
    pub(super) api: SocketAddr,
    /// All pods', of each family.
    pub(super) pods: Vec<IpNet>,
    /// `PATH`.
    pub(super) path: String,
    /// A kubeconfig for that API.
    pub(super) kubeconfig: String,
    /// Whose the pods' interfaces are.
    pub(super) pod_owner: PodOwner,
    /// Whether the scenario says of which pools pods are.
    pub(super) has_pools: bool,
}

/// kube-proxy's flags. Those used here mean the same from 1.20 to 1.36 (cmd/kube-proxy/app/server.go, from
/// 1.32 options.go); defaults that fit are left alone (healthz on 0.0.0.0:10256, metrics on
/// 127.0.0.1:10249: each node has its own). What differs from version to version:
///
/// - up to 1.25, `--bind-address` decides the family and the source of node addresses, later the Node
///   object does; the same address is in both;
/// - no mode but ipvs has flags of its own for its periods: those of iptables mode set them in nftables mode, too
///   (1.36 options.go);
/// - from 1.29, UDP timeouts of conntrack can be set too, 0 (leave alone) by default.
pub(super) fn kube_proxy(spec: &KubeProxySpec, context: &NodeContext) -> Vec<String> {
    let mut flags = vec![
        format!("--master=http://{}", context.api),
        format!("--hostname-override={}", context.node),
        format!("--bind-address={}", context.address),
        format!("--proxy-mode={}", spec.mode.as_str()),
        // Without it there is no "from outside the pods" (`! -s`), and thus no masquerading of it.
        format!("--cluster-cidr={}", all_pods(context)),
        format!(
            "--iptables-min-sync-period={}",
            period(spec.min_sync_period)
        ),
        format!("--iptables-sync-period={}", period(spec.sync_period)),
    ];
    let untouched = LEFT_ALONE.map(|(flag, _, none)| format!("--conntrack-{flag}={none}"));
    flags.extend(untouched);
    flags.extend([
        // It is no more important than the rest of the machine.
        "--oom-score-adj=0".to_owned(),
        // The API speaks JSON only; this concerns the events that are written to it.
        "--kube-api-content-type=application/json".to_owned(),
        "-v=2".to_owned(),
    ]);
    flags
}

/// The same as a file, with what the case says over it; it takes the flags' place (options.go, `Complete`), but for
/// [`flags_beside_a_file`].
pub(super) fn kube_proxy_config(spec: &KubeProxySpec, context: &NodeContext) -> String {
    let mode = spec.mode.as_str();
    let untouched: BTreeMap<&str, Value> = LEFT_ALONE
        .map(|(_, field, none)| (field, none.parse().unwrap_or_else(|_| none.into())))
        .into();
    let mut config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": context.address,
        "mode": mode,
        "clusterCIDR": all_pods(context),
        mode: {
            "minSyncPeriod": period(spec.min_sync_period),
            "syncPeriod": period(spec.sync_period),
        },
        "conntrack": untouched,
        "oomScoreAdj": 0,
        "clientConnection": { "contentType": "application/json" },
    });
    proxy_config::put(&mut config, &Value::Object(spec.config.clone()));
    config.to_string()
}

/// Limits of conntrack are the machine's, and not being able to write them is fatal: each one's flag, its field in a file, and the
/// value that leaves it alone.
const LEFT_ALONE: [(&str, &str, &str); 3] = [
    ("max-per-core", "maxPerCore", "0"),
    ("tcp-timeout-established", "tcpEstablishedTimeout", "0s"),
    ("tcp-timeout-close-wait", "tcpCloseWaitTimeout", "0s"),
];

fn all_pods(context: &NodeContext) -> String {
    let pods = context.pods.iter().map(IpNet::to_string);
    pods.collect::<Vec<_>>().join(",")
}

fn period(period: Duration) -> String {
    format!("{}ms", period.as_millis())
}

/// The flags that count beside a file.
pub(super) fn flags_beside_a_file(file: &str, context: &NodeContext) -> Vec<String> {
    vec![
        format!("--config={file}"),
        format!("--master=http://{}", context.api),
        format!("--hostname-override={}", context.node),
        "-v=2".to_owned(),
    ]
}

/// The environment of either agent, beside [`felix`].
pub(super) fn environment(context: &NodeContext) -> BTreeMap<String, String> {
    let variables = [
        ("PATH", context.path.clone()),
        ("HOME", "/root".to_owned()),
        ("NODE_NAME", context.node.to_string()),
    ];
    named(variables).collect()
}

fn named<const N: usize>(variables: [(&str, String); N]) -> impl Iterator<Item = (String, String)> {
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
}

/// Felix's arguments: calico-node is many programs in one (node/cmd/calico-node/main.go), calico-felix is
/// only this one.
pub(super) fn felix_arguments(program: &Path) -> Vec<String> {
    if is_only_felix(program) {
        Vec::new()
    } else {
        vec!["-felix".to_owned()]
    }
}

/// What asks an agent's program for its version.
pub(super) fn version_flag(agent: AgentName, program: &Path) -> &'static str {
    let name = program.file_name().and_then(OsStr::to_str);
    agent.kind().version_flag(name.unwrap_or_default())
}

/// By its name, behind which there may be a machine's or a version (`calico-felix-amd64`).
fn is_only_felix(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with("calico-felix"))
}

/// Felix's environment, as Calico's manifest for Kubernetes' datastore has it (manifests/calico.yaml,
/// container calico-node), quiet towards files and the world outside. What the case says under `felix:` stays
/// in FelixConfiguration, over which the environment prevails, there as here; what it says under `env:` is over all of that.
pub(super) fn felix(spec: &CalicoSpec, context: &NodeContext) -> BTreeMap<String, String> {
    let mut environment = environment(context);
    let settings = [
        // libcalico-go/lib/apiconfig: which datastore, and where.
        ("DATASTORE_TYPE", "kubernetes"),
        ("FELIX_DATASTORETYPE", "kubernetes"),
        ("KUBECONFIG", &*context.kubeconfig),
        ("FELIX_TYPHAK8SSERVICENAME", "none"),
        ("CALICO_DISABLE_FILE_LOGGING", "true"),
        ("FELIX_LOGFILEPATH", "none"),
        ("FELIX_LOGSEVERITYFILE", "none"),
        ("FELIX_LOGSEVERITYSYS", "none"),
        // Else lines are dropped under load (felix/docs/config-params.md), and promises are about them.
        ("FELIX_DEBUGDISABLELOGDROPPING", "true"),
        ("FELIX_HEALTHENABLED", "true"),
        ("FELIX_USAGEREPORTINGENABLED", "false"),
    ];
    environment.extend(named(
        settings.map(|(name, value)| (name, value.to_owned())),
    ));
    environment.extend(model::manifest_environment());
    if !context.has_pools {
        // Nodes' own pod addresses, as without Calico's IPAM, and not its blocks: a node has those of one pool.
        environment.insert("USE_POD_CIDR".to_owned(), "true".to_owned());
    }
    environment.extend(interface_prefix(context.pod_owner));
    let has_v6 = context.pods.iter().any(|net| net.addr().is_ipv6());
    environment.extend(named([
        ("FELIX_IPV6SUPPORT", has_v6.to_string()),
        ("NODENAME", context.node.to_string()),
        ("FELIX_FELIXHOSTNAME", context.node.to_string()),
        // As every pod has them. With a kubeconfig Felix only logs them.
        ("KUBERNETES_SERVICE_HOST", context.api.ip().to_string()),
        ("KUBERNETES_SERVICE_PORT", context.api.port().to_string()),
    ]));
    environment.extend(spec.env.clone());
    environment
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::{AgentSource, IptablesVariant, ProxyMode};

    use super::*;

    fn context() -> NodeContext {
        NodeContext {
            node: "n2".into(),
            address: [10, 0, 1, 2].into(),
            api: ([10, 0, 0, 1], 6443).into(),
            pods: vec!["10.20.0.0/16".parse().expect("a network")],
            path: "/shims:/usr/sbin".to_owned(),
            kubeconfig: "/run/kubeconfig".to_owned(),
            pod_owner: PodOwner::Calico,
            has_pools: false,
        }
    }

    fn calico() -> CalicoSpec {
        CalicoSpec::new("v3.28.1", AgentSource::Model, PodOwner::Calico)
    }

    fn spec(mode: ProxyMode) -> KubeProxySpec {
        KubeProxySpec {
            mode,
            iptables: IptablesVariant::Legacy,
            version: "1.32".to_owned(),
            source: AgentSource::default(),
            min_sync_period: Duration::from_millis(100),
            sync_period: Duration::from_secs(5),
            full_sync_period: Duration::from_secs(3600),
            config: serde_json::Map::new(),
        }
    }

    #[test]
    fn nftables_mode_has_its_periods_by_the_flags_of_iptables_mode() {
        let flags = kube_proxy(&spec(ProxyMode::Nftables), &context());
        assert!(flags.contains(&"--proxy-mode=nftables".to_owned()));
        assert!(flags.contains(&"--iptables-sync-period=5000ms".to_owned()));
        assert!(flags.iter().all(|flag| !flag.starts_with("--nftables")));
    }

    #[test]
    fn kube_proxys_flags_carry_the_cases_periods_and_leave_the_machine_alone() {
        let spec = spec(ProxyMode::Iptables);
        insta::assert_snapshot!(kube_proxy(&spec, &context()).join("\n"), @r"
        --master=http://10.0.0.1:6443
        --hostname-override=n2
        --bind-address=10.0.1.2
        --proxy-mode=iptables
        --cluster-cidr=10.20.0.0/16
        --iptables-min-sync-period=100ms
        --iptables-sync-period=5000ms
        --conntrack-max-per-core=0
        --conntrack-tcp-timeout-established=0s
        --conntrack-tcp-timeout-close-wait=0s
        --oom-score-adj=0
        --kube-api-content-type=application/json
        -v=2
        ");
    }

    #[test]
    fn what_the_case_says_is_laid_over_the_file_that_takes_the_flags_place() {
        let mut spec = spec(ProxyMode::Iptables);
        let said = json!({ "clusterCIDR": "", "iptables": { "masqueradeAll": true } });
        spec.config = said.as_object().expect("an object").clone();
        let config: Value =
            serde_json::from_str(&kube_proxy_config(&spec, &context())).expect("it is JSON");
        assert_eq!(config["clusterCIDR"], "");
        assert_eq!(config["iptables"]["masqueradeAll"], true);
        assert_eq!(config["iptables"]["syncPeriod"], "5000ms");
        assert_eq!(config["conntrack"]["maxPerCore"], 0);
        let flags = flags_beside_a_file("/run/config", &context());
        assert!(flags.contains(&"--config=/run/config".to_owned()));
        assert!(flags.iter().all(|flag| !flag.starts_with("--iptables")));
    }

    #[test]
    fn felix_is_told_where_the_datastore_is_and_who_it_is() {
        let environment = felix(&calico(), &context());
        let lines = environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
        CALICO_DISABLE_FILE_LOGGING=true
        DATASTORE_TYPE=kubernetes
        FELIX_DATASTORETYPE=kubernetes
        FELIX_DEBUGDISABLELOGDROPPING=true
        FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT
        FELIX_FELIXHOSTNAME=n2
        FELIX_HEALTHENABLED=true
        FELIX_IPV6SUPPORT=false
        FELIX_LOGFILEPATH=none
        FELIX_LOGSEVERITYFILE=none
        FELIX_LOGSEVERITYSYS=none
        FELIX_TYPHAK8SSERVICENAME=none
        FELIX_USAGEREPORTINGENABLED=false
        HOME=/root
        KUBECONFIG=/run/kubeconfig
        KUBERNETES_SERVICE_HOST=10.0.0.1
        KUBERNETES_SERVICE_PORT=6443
        NODENAME=n2
        NODE_NAME=n2
        PATH=/shims:/usr/sbin
        USE_POD_CIDR=true
        ");
    }

    #[test]
    fn felix_knows_pods_of_another_cni_by_their_interfaces() {
        let prefix = |pod_owner| {
            let context = NodeContext {
                pod_owner,
                ..context()
            };
            felix(&calico(), &context).remove("FELIX_INTERFACEPREFIX")
        };
        assert_eq!(prefix(PodOwner::ThirdParty).as_deref(), Some("eni"));
        assert_eq!(prefix(PodOwner::Calico), None);
    }

    #[test]
    fn what_the_case_says_of_felixs_environment_is_over_the_manifests() {
        let mut spec = calico();
        let said = [("FELIX_INTERFACEPREFIX", "tap"), ("GODEBUG", "x=1")];
        spec.env = named(said.map(|(name, value)| (name, value.to_owned()))).collect();
        let context = NodeContext {
            pod_owner: PodOwner::ThirdParty,
            ..context()
        };
        let environment = felix(&spec, &context);
        assert_eq!(environment["FELIX_INTERFACEPREFIX"], "tap");
        assert_eq!(environment["GODEBUG"], "x=1");
        assert_eq!(environment["FELIX_LOGFILEPATH"], "none");
    }

    #[test]
    fn calico_node_is_told_to_be_felix_and_calico_felix_knows() {
        let arguments = |path| felix_arguments(Path::new(path));
        assert_eq!(arguments("/usr/bin/calico-node"), ["-felix"]);
        assert_eq!(arguments("/opt/calico-felix"), [""; 0]);
    }
}
