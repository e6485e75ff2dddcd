//! kube-proxy's rules beside a real Felix: whether they are as they were kept.

use futures::future::join_all;

use crate::shared::nodes::Nodes;

/// Whether kube-proxy's chains and rules of iptables are those that were kept, in whatever order; and whether there were any.
const STAND: &str = "\
    of() { awk '/^\\*/ { table = $0 } /KUBE-/ { sub(/ \\[[0-9]+:[0-9]+\\]$/, \"\"); print table, $0 }' | sort; }; \
    for f in iptables ip6tables; do for b in legacy nft; do \
      kept=/kind/chainbreak-$f-$b.rules; [ -e $kept ] || continue; \
      was=$(of < $kept); \
      case $was in *':KUBE-SERVICES '*) any=1;; esac; \
      [ \"$was\" = \"$($f-$b-save 2>/dev/null | of)\" ] || exit 1; \
    done; done; [ \"$any\" ]";

/// Whether kube-proxy has nothing to write on any node. Not where that cannot be known.
pub(in super::super) async fn rules_stand(nodes: &Nodes) -> bool {
    let stand = nodes.0.iter().map(async |node| {
        let looked = node.run(&["sh", "-c", STAND]).await;
        if let Err(error) = &looked {
            tracing::debug!(%error, node = %node.name, "kube-proxy's rules are not as they were kept");
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

    const KEPT: &str = "*nat\n:OUTPUT ACCEPT [1:60]\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
                        -A OUTPUT -j KUBE-SERVICES\n-A KUBE-MARK-MASQ -j MARK\nCOMMIT\n";

    /// Whether they stand on a node that had these and has those.
    fn stand(kept: &str, now: &str) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let save = format!("#!/bin/sh\nprintf '%s' '{now}'\n");
        fake_programs::put(folder.path(), "iptables-nft-save", &save);
        fs::write(folder.path().join("chainbreak-iptables-nft.rules"), kept).unwrap();
        let script = STAND.replace("/kind/", &format!("{}/", folder.path().display()));
        let path = fake_programs::path(folder.path());
        let ran = Command::new("sh")
            .args(["-c", &script])
            .env("PATH", path)
            .status();
        ran.unwrap().success()
    }

    #[test]
    fn kube_proxy_has_nothing_to_write_where_all_of_its_rules_are_as_they_were_kept() {
        let counted = KEPT.replace("[0:0]", "[7:420]");
        let others = counted.replace(
            "COMMIT",
            ":cali-OUTPUT - [0:0]\n-A OUTPUT -j cali-OUTPUT\nCOMMIT",
        );
        assert!(stand(KEPT, &others));
        for (what, now) in [
            (
                "a rule is gone",
                KEPT.replace("-A OUTPUT -j KUBE-SERVICES\n", ""),
            ),
            (
                "a rule is more",
                KEPT.replace("COMMIT", "-A KUBE-MARK-MASQ -j DROP\nCOMMIT"),
            ),
            ("in another table", KEPT.replace("*nat", "*mangle")),
            ("all are gone", String::new()),
        ] {
            assert!(!stand(KEPT, &now), "{what}");
        }
        let without = "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
        assert!(!stand(without, without), "it has never written any");
    }
}
