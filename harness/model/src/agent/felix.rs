//! Felix, Calico's agent: alone (calico-felix), or as one of the programs of calico-node.

use super::{AgentKind, AgentSpec, AgentSpecMut, DaemonSet, LogFormat, Program, Ready};
use crate::{case::ClusterSpec, version};

pub(super) static AGENT: AgentKind = AgentKind {
    word: "felix",
    product: "calico",
    check_version: version::calico,
    has_v: true,
    programs: &[
        Program {
            name: "calico-node",
            // The only one that it knows.
            version_flag: "-v",
        },
        Program {
            name: "calico-felix",
            version_flag: "--version",
        },
    ],
    // `v3.28.1` of calico-node, `Version:            v3.28.1` of calico-felix.
    version_in: |said| Some(said.strip_prefix("Version:").unwrap_or(said)),
    is_built: false,
    log_format: LogFormat::Lines,
    // v3.25 to v3.32, `int_dataplane.go`.
    first_sync: r"Completed first update to dataplane\.",
    // v3.28.1, v3.32.1, `felix/daemon/daemon.go`: it carries on with rules.
    is_another: Some("BPF dataplane mode enabled but not supported by the kernel"),
    // It writes this jump in every mode.
    ready: Ready::Jump("cali-POSTROUTING"),
    drops_in: &["raw"],
    // Its configuration changed (felix/daemon/daemon.go, `configChangedRC`).
    restart_status: Some(129),
    daemon_set: DaemonSet {
        name: "calico-node",
        operators_namespace: Some("calico-system"),
    },
    spec,
    spec_mut,
    unplayable: |_, _| None,
};

fn spec(cluster: &ClusterSpec) -> Option<AgentSpec<'_>> {
    let spec = cluster.calico.as_ref()?;
    Some(AgentSpec {
        version: &spec.version,
        source: &spec.source,
    })
}

fn spec_mut(cluster: &mut ClusterSpec) -> Option<AgentSpecMut<'_>> {
    let spec = cluster.calico.as_mut()?;
    Some(AgentSpecMut {
        version: &mut spec.version,
        source: &mut spec.source,
    })
}
