//! Whether the root of the cgroups that a node sees is its own.
//!
//! Felix attaches its connect-time load balancing to that root (felix/bpf/nat/connecttime.go, v3.28.1): where it is the machine's, the
//! connections of every process of the machine would be rewritten.

use chainbreak_model::{
    case::{Case, Step},
    names::NodeName,
};
use serde_json::{Map, Value};

use crate::{error::KindError, shared::nodes::Nodes};

/// The setting by which Felix leaves sockets alone.
const CONNECT_TIME: &str = "bpfConnectTimeLoadBalancing";
/// Prints the number of each process below the root. One that has no number on the node, since it is of another container or the machine's,
/// the kernel shows as 0 (`Documentation/admin-guide/cgroup-v2.rst` on `cgroup.procs` and namespaces).
const SCRIPT: &str = "mkdir -p /run/chainbreak-cgroup && mount -t cgroup2 none /run/chainbreak-cgroup || exit 1; \
    find /run/chainbreak-cgroup -name cgroup.procs -exec cat {} +; \
    umount /run/chainbreak-cgroup && rmdir /run/chainbreak-cgroup";

/// Whether Felix attaches something to the root of cgroups at one time or another: in eBPF mode it does unless it is told not to.
pub(crate) fn is_attached_to(case: &Case) -> bool {
    let off = |felix: &Map<String, Value>| {
        felix.get(CONNECT_TIME).and_then(Value::as_str) == Some("Disabled")
    };
    let changes = case.timeline.iter().any(|step| match step {
        Step::Felix(change) => change.contains_key(CONNECT_TIME) && !off(change),
        _ => false,
    });
    case.wants_programs() && (changes || !off(&case.cluster.felix))
}

/// An error where a process that is not the node's would be meant, too.
pub(crate) async fn prove(nodes: &Nodes) -> Result<(), KindError> {
    for node in &nodes.0 {
        let below = node
            .run(&["unshare", "--mount", "sh", "-c", SCRIPT])
            .await?;
        is_own(&node.name, &below)?;
    }
    Ok(())
}

fn is_own(node: &NodeName, below: &str) -> Result<(), KindError> {
    let mut numbers = below.lines().peekable();
    if numbers.peek().is_some() && numbers.all(|number| number != "0") {
        return Ok(());
    }
    Err(KindError::Unable(format!(
        "the root of the cgroups that {node} sees is not its own: Felix's connect-time load balancing would rewrite connections of other processes\n\
         felix: {{ {CONNECT_TIME}: Disabled, bpfHostNetworkedNATWithoutCTLB: Enabled }}, or a machine that has version 2 of cgroups alone"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_with_a_process_of_somebody_else_or_with_none_at_all_is_not_the_nodes() {
        let node = NodeName::from("n1");
        assert!(is_own(&node, "1\n204\n").is_ok());
        for below in ["1\n0\n204\n", ""] {
            let said = is_own(&node, below).unwrap_err().to_string();
            assert!(said.contains("n1 sees is not its own"), "{said}");
        }
    }
}
