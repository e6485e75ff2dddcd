//! Whether the root of the cgroups that a node sees is its own.
//!
//! Felix attaches its connect-time load balancing to that root (felix/bpf/nat/connecttime.go, v3.28.1): where it is the machine's, the
//! connections of every process of the machine would be rewritten.

use serde_json::{Map, Value};

use crate::{
    error::KindError,
    shared::nodes::{Node, Nodes},
};

/// The setting by which Felix leaves sockets alone.
const CONNECT_TIME: &str = "bpfConnectTimeLoadBalancing";
/// Prints a line for each process that is below the root and has no number on the node: it is of another container, or the machine's.
/// The kernel shows such a one as 0 (`Documentation/admin-guide/cgroup-v2.rst` on `cgroup.procs` and namespaces).
const SCRIPT: &str = "mkdir -p /run/chainbreak-cgroup && mount -t cgroup2 none /run/chainbreak-cgroup \
    && find /run/chainbreak-cgroup -name cgroup.procs -exec cat {} + | grep -x 0 | sort -u; \
    umount /run/chainbreak-cgroup && rmdir /run/chainbreak-cgroup";

/// Whether Felix would attach something to the root of cgroups: it does unless it is told not to.
pub(crate) fn attaches(felix: &Map<String, Value>) -> bool {
    felix.get(CONNECT_TIME).and_then(Value::as_str) != Some("Disabled")
}

/// An error where a process that is not the node's would be meant, too.
pub(crate) async fn prove(nodes: &Nodes) -> Result<(), KindError> {
    for node in &nodes.0 {
        let others = node
            .run(&["unshare", "--mount", "sh", "-c", SCRIPT])
            .await?;
        is_own(node, &others)?;
    }
    Ok(())
}

fn is_own(node: &Node, others: &str) -> Result<(), KindError> {
    if others.trim().is_empty() {
        return Ok(());
    }
    Err(KindError::Unable(format!(
        "the root of the cgroups that {} sees is not its own: Felix's connect-time load balancing would rewrite connections of other processes\n\
         felix: {{ {CONNECT_TIME}: Disabled, bpfHostNetworkedNATWithoutCTLB: Enabled }}, or a Docker with --default-cgroupns-mode private",
        node.name
    )))
}
