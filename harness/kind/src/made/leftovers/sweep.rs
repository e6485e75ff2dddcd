//! Rules that a case left beside those of a real Felix.

/// Takes out rules and chains of iptables that are more than were kept, but for those of Felix and of kube-proxy, which write meanwhile.
pub(super) const SWEEP: &str = "\
    for f in iptables ip6tables; do for b in legacy nft; do \
      kept=/kind/chainbreak-$f-$b.rules; [ -e $kept ] || continue; \
      $f-$b-save 2>/dev/null | awk ' \
        function table() { if (rules flush) printf \"%s\\n%s%s%sCOMMIT\\n\", name, rules, flush, gone; rules = flush = gone = \"\" } \
        /^#/ { next } \
        /^\\*/ { if (FNR != NR) table(); name = $0; next } \
        { sub(/ \\[[0-9]+:[0-9]+\\]$/, \"\") } \
        FNR == NR { kept[name $0]++; next } \
        /cali-|cali:|KUBE-/ || kept[name $0]-- > 0 { next } \
        /^-A / { sub(/^-A/, \"-D\"); rules = rules $0 \"\\n\" } \
        /^:[^ ]* -/ { chain = substr($1, 2); flush = flush \"-F \" chain \"\\n\"; gone = gone \"-X \" chain \"\\n\" } \
        END { table() }' $kept - | $f-$b-restore --noflush || exit 1; \
    done; done; ";

#[cfg(test)]
mod tests {
    use std::{
        env,
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
        process::Command,
    };

    use super::*;

    /// As a node's programs print and take them.
    const KEPT: &str = "*nat\n:OUTPUT ACCEPT [1:60]\n:DOCKER_OUTPUT - [0:0]\n:KUBE-SERVICES - [0:0]\n\
                        -A OUTPUT -d 172.18.0.1/32 -j DOCKER_OUTPUT\nCOMMIT\n";
    const NOW: &str = "*filter\n:FORWARD ACCEPT [7:420]\n:MINE - [0:0]\n:cali-FORWARD - [0:0]\n\
                       -A FORWARD -m conntrack --ctstate INVALID -m comment --comment \"of a case\" -j ACCEPT\n\
                       -A FORWARD -m comment --comment \"cali:x\" -j cali-FORWARD\n-A FORWARD -j MINE\n-A MINE -j DROP\nCOMMIT\n\
                       *nat\n:OUTPUT ACCEPT [9:540]\n:DOCKER_OUTPUT - [0:0]\n:KUBE-SVC-A - [0:0]\n\
                       -A OUTPUT -d 172.18.0.1/32 -j DOCKER_OUTPUT\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n";

    #[test]
    fn rules_that_are_more_than_were_kept_are_taken_out_and_felixs_and_kube_proxys_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for program in ["iptables", "ip6tables"] {
            for front in ["legacy", "nft"] {
                let (save, restore) = (
                    format!("{program}-{front}-save"),
                    format!("{program}-{front}-restore"),
                );
                let is_it = restore == "iptables-nft-restore";
                let now = if is_it { NOW } else { KEPT };
                let kept = format!("chainbreak-{program}-{front}.rules");
                fs::write(at(&kept), KEPT).unwrap();
                let taken = at(&restore).with_extension("taken");
                for (name, script) in [
                    (&save, format!("#!/bin/sh\nprintf '%s' '{now}'\n")),
                    (
                        &restore,
                        format!(
                            "#!/bin/sh\necho \"$@\" > {0}; cat >> {0}\n",
                            taken.display()
                        ),
                    ),
                ] {
                    fs::write(at(name), script).unwrap();
                    fs::set_permissions(at(name), Permissions::from_mode(0o755)).unwrap();
                }
            }
        }
        let script = SWEEP.replace("/kind/", &format!("{}/", folder.path().display()));
        let path = format!("{}:{}", folder.path().display(), env::var("PATH").unwrap());
        let swept = Command::new("sh")
            .args(["-c", &script])
            .env("PATH", path)
            .status();
        assert!(swept.unwrap().success());
        let taken =
            |program: &str| fs::read_to_string(at(&format!("{program}-restore.taken"))).unwrap();
        assert_eq!(
            taken("iptables-nft"),
            "--noflush\n*filter\n\
             -D FORWARD -m conntrack --ctstate INVALID -m comment --comment \"of a case\" -j ACCEPT\n\
             -D FORWARD -j MINE\n-D MINE -j DROP\n-F MINE\n-X MINE\nCOMMIT\n"
        );
        assert_eq!(taken("ip6tables-legacy"), "--noflush\n");
    }
}
