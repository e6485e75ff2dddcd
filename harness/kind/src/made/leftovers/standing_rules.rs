//! An agent's rules in a cluster with a real Calico: whether they are as they were kept.

use chainbreak_model::names::AgentName;
use futures::future::join_all;

use crate::shared::nodes::Nodes;

/// Whether all chains and rules of iptables that have `$1` in their lines are those that were kept, each chain's rules in their order; and whether
/// `$2`, a chain, was among them.
const STAND: &str = "\
    of() { awk -v its=\"$1\" '/^\\*/ { table = $0 } $0 ~ its { sub(/ \\[[0-9]+:[0-9]+\\]$/, \"\"); print table, $0 }' | sort -s -k 1,3; }; \
    for f in iptables ip6tables; do for b in legacy nft; do \
      kept=/kind/chainbreak-$f-$b.rules; [ -e $kept ] || continue; \
      was=$(of \"$1\" < $kept); \
      case $was in *\":$2 \"*) any=1;; esac; \
      [ \"$was\" = \"$($f-$b-save 2>/dev/null | of \"$1\")\" ] || exit 1; \
    done; done; [ \"$any\" ]";

/// By what an agent's lines are known, and a chain that it always has. Felix's jumps stand before kube-proxy's or behind them, as it was.
fn its(agent: AgentName) -> [&'static str; 2] {
    match agent {
        AgentName::KubeProxy => ["KUBE-", "KUBE-SERVICES"],
        AgentName::Felix => ["cali[-:]|^-A [A-Z]+ .*-j KUBE-", "cali-FORWARD"],
    }
}

/// Whether the agent has nothing to write on any node. Not where that cannot be known.
pub(crate) async fn stand(nodes: &Nodes, agent: AgentName) -> bool {
    let [lines, chain] = its(agent);
    let stand = nodes.0.iter().map(async |node| {
        let looked = node.run(&["sh", "-c", STAND, "sh", lines, chain]).await;
        if let Err(error) = &looked {
            tracing::debug!(%error, node = %node.name, %agent, "its rules are not as they were kept");
        }
        looked.is_ok()
    });
    join_all(stand).await.into_iter().all(|stands| stands)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;
    use crate::fake_programs;

    const KEPT: &str = "*nat\n:OUTPUT ACCEPT [1:60]\n:KUBE-SERVICES - [0:0]\n:cali-FORWARD - [0:0]\n\
                        -A OUTPUT -j KUBE-SERVICES\n-A OUTPUT -j cali-FORWARD\nCOMMIT\n";

    /// Whether an agent's stand on a node that had these and has those.
    fn stand(agent: AgentName, kept: &str, now: &str) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let save = format!("#!/bin/sh\nprintf '%s' '{now}'\n");
        fake_programs::put(folder.path(), "iptables-nft-save", &save);
        fs::write(folder.path().join("chainbreak-iptables-nft.rules"), kept).unwrap();
        let script = STAND.replace("/kind/", &format!("{}/", folder.path().display()));
        let path = fake_programs::path(folder.path());
        let ran = Command::new("sh")
            .args(["-c", &script, "sh"])
            .args(its(agent))
            .env("PATH", path)
            .status();
        ran.unwrap().success()
    }

    #[test]
    fn an_agent_has_nothing_to_write_where_all_of_its_rules_are_as_they_were_kept() {
        let counted = KEPT.replace("[0:0]", "[7:420]");
        for (agent, other) in [
            (
                AgentName::KubeProxy,
                "-A OUTPUT -m comment --comment \"cali:x\" -j cali-OUTPUT\n",
            ),
            (AgentName::Felix, "-A KUBE-SERVICES -j DROP\n"),
        ] {
            let [_, chain] = its(agent);
            let more = |line: &str| counted.replace("COMMIT", &format!("{line}COMMIT"));
            assert!(
                stand(agent, KEPT, &more(other)),
                "{agent}: another's is more"
            );
            for (what, now) in [
                (
                    "a rule is gone",
                    counted.replace(&format!("-A OUTPUT -j {chain}\n"), ""),
                ),
                ("a rule is more", more(&format!("-A {chain} -j DROP\n"))),
                ("in another table", counted.replace("*nat", "*mangle")),
                ("all are gone", String::new()),
            ] {
                assert!(!stand(agent, KEPT, &now), "{agent}: {what}");
            }
            let jumps = ["KUBE-SERVICES", "cali-FORWARD"].map(|to| format!("-A OUTPUT -j {to}\n"));
            let [first, second] = &jumps;
            let swapped = counted.replace(&jumps.concat(), &[&**second, first].concat());
            let before_kube_proxys = agent == AgentName::KubeProxy;
            assert_eq!(stand(agent, KEPT, &swapped), before_kube_proxys, "{agent}");
            let without = "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
            assert!(
                !stand(agent, without, without),
                "{agent} has never written any"
            );
        }
    }
}
