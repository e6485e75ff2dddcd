//! What a case left beside a real Felix: rules, and connections that are tracked.

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

/// Forgets what is tracked but for connections to the API, which a mark tells meanwhile. One to the Service `kubernetes` is translated: without its
/// entry what the API sends is nobody's, and Felix, which only listens there, hears of no pod any more (Calico v3.32.1 for as long as a case was
/// watched, 14 s: its new pods were dropped as unknown). Of none at all conntrack 1.4 says so by the exit status of a failure, too; and
/// it goes through all entries at a time, which can be more than its socket holds, or loses count of its own questions while entries change (libmnl says
/// `Protocol error` of an answer to another one): those that are left are gone through again.
pub(super) const FORGET: &str = "\
    mark=0x40000000; \
    entries() { for look in $(seq 20); do \
        said=$(conntrack \"$@\" 2>&1 >/dev/null) && return; \
        case $said in *' 0 flow entries'*) return 0;; *'No buffer space'* | *'Protocol error'*) ;; *) break;; esac; \
      done; echo \"$said\" >&2; exit 1; }; \
    for f in ipv4 ipv6; do \
      api=\"-f $f -U -p tcp --reply-port-src 6443 -m\"; \
      entries $api $mark/$mark; entries -f $f -D -m 0/$mark; entries $api 0/$mark; \
    done";

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;
    use crate::fake_programs;

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
                    fake_programs::put(folder.path(), name, &script);
                }
            }
        }
        let script = SWEEP.replace("/kind/", &format!("{}/", folder.path().display()));
        let path = fake_programs::path(folder.path());
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

    /// conntrack's own way with marks, over entries of a file: family, port that answers, mark.
    const CONNTRACK: &str = r#"#!/bin/sh
        cd "${0%/*}"
        if [ -e full ]; then
            echo "conntrack v1.4.7 (conntrack-tools): Operation failed: $(cat full)" >&2
            rm full
            exit 1
        fi
        family=$2 what=$3
        for last; do :; done
        value=$((${last%/*})) mask=$((${last#*/}))
        while read -r f port mark; do
            if [ $f = $family ]; then
                case $what in
                -U) [ $port != 6443 ] || mark=$(((mark & ~mask) ^ value));;
                -D) [ $((mark & mask)) -ne $value ] || continue;;
                esac
            fi
            echo "$f $port $mark"
        done < entries > left
        mv left entries
        echo "${SAYS:-conntrack v1.4.7 (conntrack-tools): 0 flow entries have been updated.}" >&2
        exit 1
    "#;

    #[test]
    fn connections_are_forgotten_but_for_those_to_the_api_which_keep_their_marks() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fake_programs::put(folder.path(), "conntrack", CONNTRACK);
        let entries = "ipv4 80 0\nipv4 6443 9\nipv4 8080 9\nipv6 6443 0\nipv6 53 0\n";
        let path = fake_programs::path(folder.path());
        let mut forget = Command::new("sh");
        forget.args(["-c", FORGET]).env("PATH", path);
        for again in ["No buffer space available", "Protocol error"] {
            fs::write(at("entries"), entries).unwrap();
            fs::write(at("full"), again).unwrap();
            assert!(forget.status().unwrap().success(), "{again}");
            let left = fs::read_to_string(at("entries")).unwrap();
            assert_eq!(left, "ipv4 6443 9\nipv6 6443 0\n");
        }
        let trouble = "conntrack v1.4.7: Operation failed: such conntrack doesn't exist";
        let failed = forget.env("SAYS", trouble).output().unwrap();
        assert!(!failed.status.success());
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert_eq!(said.trim(), trouble);
    }
}
