//! kube-proxy, Kubernetes' own, which programs Services.

use super::{AgentKind, AgentSpec, AgentSpecMut, DaemonSet, LogFormat, Program, Ready};
use crate::{
    case::{ClusterSpec, KubeProxySpec},
    version,
};

pub(super) static AGENT: AgentKind = AgentKind {
    word: "kube-proxy",
    product: "kube-proxy",
    check_version: version::kube_proxy,
    has_v: false,
    programs: &[Program {
        name: "kube-proxy",
        version_flag: "--version",
    }],
    // `Kubernetes v1.20.2`
    version_in: |said| said.strip_prefix("Kubernetes "),
    is_built: true,
    log_format: LogFormat::Klog,
    // 1.20 to 1.34, proxier.go, at verbosity 2.
    first_sync: r"(?i)\bSyncProxyRules (complete|took)\b",
    is_another: None,
    ready: Ready::Services,
    drops_in: &[],
    restart_status: None,
    daemon_set: DaemonSet {
        name: "kube-proxy",
        operators_namespace: None,
    },
    spec,
    spec_mut,
    unplayable,
};

fn spec(cluster: &ClusterSpec) -> Option<AgentSpec<'_>> {
    let spec = cluster.kube_proxy.as_ref()?;
    Some(AgentSpec {
        version: &spec.version,
        source: &spec.source,
    })
}

fn spec_mut(cluster: &mut ClusterSpec) -> Option<AgentSpecMut<'_>> {
    let spec = cluster.kube_proxy.as_mut()?;
    Some(AgentSpecMut {
        version: &mut spec.version,
        source: &mut spec.source,
    })
}

fn unplayable(cluster: &ClusterSpec, version: &str) -> Option<String> {
    let spec = cluster.kube_proxy.as_ref()?;
    KubeProxySpec::unknown_mode(&spec.at(version))
}
