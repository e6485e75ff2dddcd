//! Lines of logs of which it is known what they mean.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{case::Symptom, names::AgentName};

use super::{Context, logged::shown};
use crate::{Finding, logs::Log};

/// A line that is known.
struct Known {
    /// Whose; of any agent where none is named.
    agent: Option<AgentName>,
    /// What the entry has, each of it.
    all: &'static [&'static str],
    /// And of these one, where there are some.
    any: &'static [&'static str],
    kind: Symptom,
    what: &'static str,
    mends: &'static str,
}

const KUBE_PROXY: Option<AgentName> = Some(AgentName::KubeProxy);
const FELIX: Option<AgentName> = Some(AgentName::Felix);
const ANY: Option<AgentName> = None;

/// What comes before tells more.
const KNOWN: [Known; 11] = [
    // iptables 1.8: kubernetes#142068 (xt_nfacct), k3s#6184.
    Known {
        agent: ANY,
        all: &[],
        any: &[
            "Couldn't load match `",
            "Couldn't find match `",
            ", missing kernel module?",
        ],
        kind: Symptom::KernelLacks,
        what: "iptables or the kernel lacks a match that the rules need: of a restore with it nothing is written, and after a restart no Service has rules",
        mends: "the module of that name (`modprobe xt_NAME`), or an iptables that knows it; where neither can be had, a release that does not write it",
    },
    // nft 1.0: siderolabs/pkgs#951 (NFT_FIB).
    Known {
        agent: ANY,
        all: &["Could not process rule: No such file or directory", " fib "],
        any: &[],
        kind: Symptom::KernelLacks,
        what: "the kernel lacks `fib` (CONFIG_NFT_FIB_IPV4 and _IPV6), which kube-proxy's rules of nftables need: nothing of its transaction is written",
        mends: "a kernel with these modules (`modprobe nft_fib_ipv4`), or iptables mode",
    },
    // kube-proxy, `conntrack.go`: kops#17915.
    Known {
        agent: KUBE_PROXY,
        all: &["nf_conntrack_max: no such file or directory"],
        any: &[],
        kind: Symptom::KernelLacks,
        what: "conntrack is not there when kube-proxy starts, and it ends for that: nobody writes rules",
        mends: "`modprobe nf_conntrack` before it starts, or conntrack: { maxPerCore: 0, min: 0 } in its configuration",
    },
    // kube-proxy up to 1.28, `server_others.go`: calico#8767.
    Known {
        agent: KUBE_PROXY,
        all: &["IPVS proxier"],
        any: &["Can't use", "will not be used", "can't use"],
        kind: Symptom::ModeRefused,
        what: "kube-proxy cannot use ipvs mode here: it goes on in iptables mode, or ends",
        mends: "the kernel's modules that the line names (`modprobe ip_vs ip_vs_rr ip_vs_wrr ip_vs_sh`), or another --proxy-mode",
    },
    // Felix v3.16 to v3.32, `daemon.go`.
    Known {
        agent: FELIX,
        all: &["BPF dataplane mode enabled but not supported by the kernel"],
        any: &[],
        kind: Symptom::EbpfRefused,
        what: "Felix was told to use eBPF and does not: it programs iptables instead, and without a kube-proxy nobody leads to Services",
        mends: "a kernel from 5.3 on with what eBPF mode needs and a calico-node that may load programs; until then a kube-proxy, or bpfEnabled: false",
    },
    // Felix v3.28, `int_dataplane.go`.
    Known {
        agent: FELIX,
        all: &["failed to attach connect-time load balancer"],
        any: &[],
        kind: Symptom::EbpfRefused,
        what: "Felix cannot attach its connect-time load balancer, and ends for that again and again",
        mends: "bpfConnectTimeLoadBalancing: Disabled with bpfHostNetworkedNATWithoutCTLB: Enabled, or a kernel that takes its programs",
    },
    // Felix v3.30.4 and from v3.31 on, beside kube-proxy: calico#10748. kube-proxy, `proxier_health.go`, likewise.
    Known {
        agent: ANY,
        all: &["address already in use"],
        any: &["ealthz", "10256", "10249", "9099"],
        kind: Symptom::PortTaken,
        what: "its port for health checks is taken by another: from v3.31 on Felix in eBPF mode has kube-proxy's, 10256; requests are not affected, but who asks for health hears the other",
        mends: "one of the two; or bpfKubeProxyHealthzPort of FelixConfiguration, or --healthz-bind-address of kube-proxy, with another port",
    },
    // iptables 1.6 to 1.8, exit status 4.
    Known {
        agent: ANY,
        all: &["holding the xtables lock"],
        any: &[],
        kind: Symptom::LockHeld,
        what: "another program held the lock of the legacy iptables for longer than it waited: what it wanted to write was not written then",
        mends: "whoever holds it so long (`lsof /run/xtables.lock`), or the nft front end, which has no lock",
    },
    // client-go and Calico's clients: calico#4361.
    Known {
        agent: ANY,
        all: &["dial tcp "],
        any: &[
            "i/o timeout",
            "connection refused",
            "no route to host",
            "network is unreachable",
        ],
        kind: Symptom::ApiUnreachable,
        what: "it did not reach the API (or Typha, :5473), and hears of no change until it does: rules and maps stay as they were",
        mends: "where it asks by the Service kubernetes (its cluster IP, :443), what leads there is part of the trouble: for Calico in eBPF mode the ConfigMap kubernetes-services-endpoint names the API's own address",
    },
    // iptables 1.8: calico#10538, kubernetes#121362.
    Known {
        agent: KUBE_PROXY,
        all: &[],
        any: &["Couldn't load target `KUBE-", "Chain 'KUBE-"],
        kind: Symptom::RestoreFails,
        what: "kube-proxy's restore names chains that are not there, and nothing of it is written: another program deletes them, as Felix in eBPF mode does",
        mends: "who deletes them (bpfKubeProxyIptablesCleanupEnabled: false); the next full sync writes all. By itself it does not say that requests are lost: jumps and rules that stand still lead",
    },
    Known {
        agent: KUBE_PROXY,
        all: &[],
        any: &["Failed to execute iptables-restore", "nftables sync failed"],
        kind: Symptom::RestoreFails,
        what: "kube-proxy's rules are not written: what changed since is not in them",
        mends: "what the entry names; kube-proxy tries again, from 1.27 on with a full sync",
    },
];

impl Known {
    fn is(&self, agent: AgentName, entry: &str) -> bool {
        let is_its = self.agent.is_none_or(|it| it == agent);
        let has_one = || self.any.is_empty() || self.any.iter().any(|it| entry.contains(it));
        is_its && self.all.iter().all(|it| entry.contains(it)) && has_one()
    }
}

/// Which of them an entry is.
fn known(agent: AgentName, entry: &str) -> Option<usize> {
    KNOWN.iter().position(|it| it.is(agent, entry))
}

/// Whether it is known what an entry means.
pub(super) fn is_known(agent: AgentName, entry: &str) -> bool {
    known(agent, entry).is_some()
}

/// Of which families restores failed, as whether it is IPv6; none where nothing was logged after the last one.
pub(super) fn failed_restores(log: &Log) -> Option<BTreeSet<bool>> {
    let failed = |entry: &String| {
        known(log.agent, entry).is_some_and(|it| KNOWN[it].kind == Symptom::RestoreFails)
    };
    let goes_on = log.entries.last().is_some_and(|last| !failed(last));
    let entries = log.entries.iter().filter(|entry| failed(entry));
    let is_v6 = |entry: &String| entry.contains("ip6tables") || entry.contains("\"IPv6\"");
    let families: BTreeSet<bool> = entries.map(is_v6).collect();
    (goes_on && !families.is_empty()).then_some(families)
}

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    context.evidence.logs.iter().flat_map(of).collect()
}

fn of(log: &Log) -> Vec<Finding> {
    // How often each came, first and last.
    let mut seen: BTreeMap<usize, (usize, &str, &str)> = BTreeMap::new();
    for entry in log.complaints() {
        if let Some(number) = known(log.agent, entry) {
            let seen = seen.entry(number).or_insert((0, entry, entry));
            (seen.0, seen.2) = (seen.0 + 1, entry);
        }
    }
    let findings = seen.into_iter().map(|(number, (times, first, last))| {
        let known = &KNOWN[number];
        let last = (times > 1).then(|| format!("the last: {}", shown(last)));
        let what = match known.agent {
            Some(_) => known.what.to_owned(),
            None => format!("{}: {}", log.agent, known.what),
        };
        Finding::odd(known.kind, what)
            .on([format!("{times} × {}", shown(first))])
            .on(last)
            .mended_by(known.mends)
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use crate::checks::tests::{HEALTHY, complaints, found, kinds, service};

    /// As people attached them to public issues: see docs/diagnose.md.
    const LINES: [(&str, &str); 11] = [
        (
            "restore-fails",
            "E0610 07:32:16.910840       1 proxier.go:1564] \"Failed to execute iptables-restore\" err=<\n\texit status 2: Ignoring deprecated --wait-interval option.\n\t\
             iptables-restore v1.8.8 (legacy): Couldn't load target `KUBE-SVC-UOLAULR5MHUYULMB':No such file or directory\n\tError occurred at line: 177\n >\n",
        ),
        (
            "restore-fails",
            "E0907 07:32:16.910840       1 proxier.go:1484] \"Failed to execute iptables-restore\" err=\"exit status 1 (iptables-restore: line 1193 failed\\n)\"\n",
        ),
        (
            "port-taken",
            "2025-09-19 07:25:19.184 [ERROR][55] felix/int_dataplane.go 2689: BPF Proxy Healthz server failed, restarting error=failed to start proxier healthz on :10256: listen tcp :10256: bind: address already in use\n",
        ),
        (
            "mode-refused",
            "E0211 03:12:26.001289       1 server_others.go:107] \"Can't use the IPVS proxier\" err=\"IPVS proxier will not be used because the following required kernel modules are not loaded: [ip_vs_wrr ip_vs_sh ip_vs ip_vs_rr]\"\n",
        ),
        (
            "ebpf-refused",
            "2020-11-04 12:00:27.044 [ERROR][74] felix/daemon.go 337: BPF dataplane mode enabled but not supported by the kernel.  Disabling BPF mode.\n",
        ),
        (
            "kernel-lacks",
            "E0913 07:32:16.910840       1 proxier.go:1564] \"Failed to execute iptables-restore\" err=<\n\texit status 2: iptables-restore v1.8.9 (legacy): Couldn't load match `nfacct':No such file or directory\n >\n",
        ),
        (
            "kernel-lacks",
            "E0928 23:55:44.961265    4424 proxier.go:874] \"Failed to ensure chain jumps\" err=<\n\terror checking rule: exit status 2: ip6tables v1.8.6 (nf_tables): Couldn't find match `conntrack'\n > table=filter srcChain=INPUT dstChain=KUBE-EXTERNAL-SERVICES\n",
        ),
        (
            "kernel-lacks",
            "E0504 16:35:49.547707       1 proxier.go:1851] \"nftables sync failed\" err=<\n\t/dev/stdin:892:87-100: Error: Could not process rule: No such file or directory\n\t\
             add rule ip kube-proxy external-3BXM2ZZ4-a/b/tcp/http fib saddr type local jump mark-for-masquerade comment \"masquerade local traffic\"\n >\n",
        ),
        (
            "kernel-lacks",
            "I0126 16:58:13.292816      12 conntrack.go:115] \"Set sysctl\" entry=\"net/netfilter/nf_conntrack_max\" value=262144\n\
             E0126 16:58:13.292840      12 server.go:134] \"Error running ProxyServer\" err=\"open /proc/sys/net/netfilter/nf_conntrack_max: no such file or directory\"\n",
        ),
        (
            "api-unreachable",
            "2024-04-26 19:49:21.632 [ERROR][1] felix/daemon.go 290: Failed to get config from datastore error=Get \"https://10.96.0.1:443/apis/x\": dial tcp 10.96.0.1:443: i/o timeout\n",
        ),
        (
            "lock-held",
            "E0407 07:08:13.007655       1 proxier.go:253] Failed to execute iptables-restore: exit status 4 (Another app is currently holding the xtables lock. Perhaps you want to use the -w option?\n)\n",
        ),
    ];

    #[test]
    fn what_a_known_line_means_is_found_and_not_complained_of_again() {
        for (kind, line) in LINES {
            assert_eq!(kinds(&[line]), [kind], "{line}");
        }
    }

    #[test]
    fn a_known_line_is_told_with_how_often_it_came_and_when_last() {
        let (_, line) = LINES[2];
        let later = line.replace("07:25:19.184", "09:00:00.000");
        let [(_, text)] = found(&[line, &later]).try_into().unwrap();
        assert!(text.contains("2 × 2025-09-19 07:25:19.184"), "{text}");
        assert!(text.contains("the last: 2025-09-19 09:00:00.000"), "{text}");
    }

    #[test]
    fn what_another_agent_says_is_not_taken_for_it() {
        let felix = "2025-09-19 07:25:19.184 [ERROR][55] felix/x.go 1: nftables sync failed\n";
        assert_eq!(kinds(&[felix]), [""; 0]);
        let [complaint] = complaints(&[felix]).try_into().unwrap();
        assert_eq!(complaint.what, "felix complains");
    }

    #[test]
    fn a_restore_that_failed_before_the_rules_were_whole_is_no_finding_and_is_told() {
        let (_, line) = LINES[0];
        let slices = |endpoints: &[&str]| {
            let items = service(("test", "nginx"), "10.96.1.0", ("http", 80, 80), endpoints);
            serde_json::json!({ "kind": "List", "items": items }).to_string()
        };
        let whole = slices(&["10.20.1.2", "10.20.1.3"]);
        let next = "I0610 07:40:18.449102       1 proxier.go:828] \"Syncing iptables rules\" ipFamily=\"IPv4\"\n";
        let log = [line, next].concat();
        assert_eq!(kinds(&[HEALTHY[3], &whole, &log]), [""; 0]);
        let [complaint] = complaints(&[HEALTHY[3], &whole, &log]).try_into().unwrap();
        assert!(complaint.lines[0].starts_with("1 × E0610"), "{complaint:?}");
        assert!(complaint.mends.is_some());
        let behind = slices(&["10.20.1.2", "10.20.1.99"]);
        let found = kinds(&[HEALTHY[3], &behind, &log]);
        assert_eq!(found, ["endpoints-differ", "restore-fails"]);
        let of_another = whole
            .replace("10.96.1.0", "10.96.77.77")
            .replace("nginx", "other");
        let of_both = [
            &log,
            &line.replace("iptables-restore", "ip6tables-restore"),
            next,
        ]
        .concat();
        let is_found =
            |attached: &[&str]| kinds(attached).iter().any(|kind| kind == "restore-fails");
        assert!(is_found(&[HEALTHY[3], &log]), "there are no slices");
        assert!(
            is_found(&[HEALTHY[3], &of_another, &log]),
            "none of these Services"
        );
        assert!(is_found(&[HEALTHY[3], &whole, &of_both]), "none of IPv6");
        assert!(
            is_found(&[HEALTHY[3], &whole, line]),
            "nothing was logged after it"
        );
    }
}
