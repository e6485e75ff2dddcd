//! Where packets end: every rule and policy that drops or rejects, whose it is, and what it means that
//! packets end there.

use crate::{
    bpf_counters, conntrack,
    counters::{RuleCounters, Site},
    nft::NftTable,
    owner::Owner,
    rule::Rule,
    save::Ruleset,
};

/// The text of a site that is a chain's policy.
const POLICY: &str = "policy DROP";

impl Ruleset {
    /// The counters of every rule and policy that drops or rejects (`iptables-save -c`).
    pub fn dropping(&self) -> RuleCounters {
        let mut counted = RuleCounters::new();
        for drop in self.drops() {
            let rule = drop.rule.map_or(POLICY, |rule| &rule.text);
            let site = Site {
                table: drop.table.to_owned(),
                chain: drop.chain.to_owned(),
                rule: rule.to_owned(),
            };
            counted.entry(site).or_default().add(drop.counters);
        }
        counted
    }
}

impl NftTable {
    /// The counters of every rule that drops or rejects and counts. Rules without `counter` (kube-proxy's are)
    /// and policies cannot be counted. The table is named with its family: `ip kube-proxy`.
    pub fn dropping(&self) -> RuleCounters {
        let name = format!("{} {}", self.family, self.name);
        let mut counted = self.table.counted(&name);
        counted.retain(|site, _| ends(&site.rule));
        counted
    }
}

/// Whether an nft rule ends packets: its verdict stands after its matches, before its comment.
fn ends(rule: &str) -> bool {
    let statement = rule.split(" comment \"").next().unwrap_or(rule);
    let mut words = statement.split_whitespace();
    words.any(|word| word == "drop" || word == "reject")
}

impl Site {
    /// Whose it is. An nft table belongs to whom it is named for.
    pub fn owner(&self) -> Owner {
        if self.table == conntrack::TABLE {
            return Owner::Kernel;
        }
        if self.table == bpf_counters::TABLE {
            return Owner::Felix;
        }
        let nft = self.table.split_once(' ');
        let of_table = nft.and_then(|(_family, name)| Owner::of_table(name));
        of_table.unwrap_or_else(|| Owner::of_rule(&self.chain, &Rule::new(&self.rule)))
    }

    /// What it means that packets end here, where that is known.
    pub fn meaning(&self) -> Option<&'static str> {
        let known = MEANINGS
            .iter()
            .find(|(chain, part, _)| self.chain.contains(chain) && self.rule.contains(part));
        known.map(|(_, _, meaning)| *meaning)
    }
}

/// A part of the chain's name, a part of the rule, and what both together mean: texts of kube-proxy 1.20 to
/// 1.34 (`proxier.go`), kubelet 1.20 (`kubelet_network_linux.go`) and Felix v3.28 (`rules/static.go`,
/// `rules/endpoints.go`, `rules/dispatch.go`); of conntrack's own, Linux 6.1 (`nf_conntrack_core.c`).
const MEANINGS: [(&str, &str, &str); 25] = [
    (
        "KUBE-FORWARD",
        "INVALID",
        "conntrack cannot place the packet: out of its connection's window, or this node sees half of it (asymmetric routing)",
    ),
    (
        "cali-",
        "INVALID",
        "conntrack cannot place a workload's packet: out of its connection's window, or this node sees half of it; \
         disableConntrackInvalidCheck leaves the rule out",
    ),
    (
        "cali-",
        "rpfilter",
        "a workload sent from an address that is not reached through its interface",
    ),
    (
        "cali-",
        "Unknown interface",
        "a workload's interface that Felix does not know, or not yet",
    ),
    (
        "cali-",
        "no profiles matched",
        "no policy and no profile of the workload allows it",
    ),
    (
        "cali-",
        "no policies passed",
        "the policies of the endpoint do not allow it",
    ),
    (
        "cali-",
        "encapped packets originating in workloads",
        "a workload sent an encapsulated packet",
    ),
    (
        "cali-",
        "packets from non-allowed hosts",
        "an encapsulated packet from a host that is none of the cluster's",
    ),
    (
        "",
        "packets from unknown TCP flows",
        "eBPF does not know the connection: it is older than the programs, and its node is told to start over",
    ),
    (
        "",
        "without BPF seen mark",
        "a workload's packet that no eBPF program has seen",
    ),
    (
        "",
        "To workload, drop IPv6",
        "IPv6 to a workload while eBPF serves IPv4 only",
    ),
    (
        "KUBE-",
        "has no local endpoints",
        "a traffic policy is Local, and this node has none of the service's endpoints",
    ),
    (
        "KUBE-",
        "has no endpoints",
        "the service has no ready endpoint",
    ),
    (
        "KUBE-",
        "traffic not accepted by KUBE-FW",
        "the source is outside loadBalancerSourceRanges",
    ),
    (
        "KUBE-FIREWALL",
        "block incoming localnet connections",
        "another host sends to this one's 127.0.0.0/8, which route_localnet lets in",
    ),
    (
        "KUBE-FIREWALL",
        "0x8000/0x8000",
        "marked by KUBE-MARK-DROP: outside loadBalancerSourceRanges, or policy Local without a local endpoint",
    ),
    (
        "",
        "Reject traffic to invalid ports of ClusterIPs",
        "a port that the service does not have",
    ),
    (
        "",
        "Drop traffic to unallocated ClusterIPs",
        "an address of the service network that no service has",
    ),
    (
        "",
        "ctstate INVALID",
        "conntrack cannot place the packet in a connection",
    ),
    (
        conntrack::DROP,
        conntrack::FULL,
        "no room for a new connection among assured ones: nf_conntrack_max, and how long connections are remembered",
    ),
    (
        conntrack::INSERT_FAILED,
        conntrack::TAKEN,
        "another connection has these addresses and ports: no source port is left for SNAT to one destination, or two packets raced",
    ),
    (
        "",
        bpf_counters::UNKNOWN_ROUTE,
        "Felix knows no route to the endpoint that it chose for a Service: on a node that it does not know, or not yet",
    ),
    (
        "",
        bpf_counters::UNKNOWN_SOURCE,
        "in a tunnel, and from or to nobody who is a node to Felix; or the source is outside loadBalancerSourceRanges",
    ),
    (
        "gress",
        bpf_counters::POLICY,
        "a policy, or a profile, that Felix has programmed for that interface",
    ),
    ("", POLICY, "no rule of the chain accepted it"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::listing;

    const SAVE: &str = "*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [3:120]
:KUBE-FORWARD - [0:0]
:KUBE-SERVICES - [0:0]
:cali-fw-cali1 - [0:0]
[7:280] -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
[9:900] -A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
[2:120] -A KUBE-SERVICES -d 10.96.0.9/32 -p tcp -m comment --comment \"test/web has no endpoints\" -j REJECT
[1:40] -A cali-fw-cali1 -m comment --comment \"cali:ktm9EUsNPPlYxgc0\" -m conntrack --ctstate INVALID -j DROP
[0:0] -A INPUT -s 192.0.2.1/32 -j DROP
COMMIT
";

    fn told(counted: &RuleCounters) -> Vec<(&str, u64, String, &str)> {
        let told = |(site, counters): (&'_ Site, &crate::Counters)| {
            let meaning = site.meaning().unwrap_or("?");
            (counters.packets, site.owner().to_string(), meaning)
        };
        let mut all = Vec::new();
        for (site, counters) in counted {
            let (packets, owner, meaning) = told((site, counters));
            all.push((site.chain.as_str(), packets, owner, meaning));
        }
        all
    }

    #[test]
    fn what_drops_or_rejects_is_counted_with_its_owner_and_meaning_and_nothing_else_is() {
        let counted = Ruleset::parse(SAVE).unwrap().dropping();
        let told = told(&counted);
        let short: Vec<(&str, u64, &str)> = told
            .iter()
            .map(|(chain, packets, owner, _)| (*chain, *packets, owner.as_str()))
            .collect();
        let expected = [
            ("FORWARD", 3, "other"),
            ("INPUT", 0, "other"),
            ("KUBE-FORWARD", 7, "kube-proxy"),
            ("KUBE-SERVICES", 2, "kube-proxy"),
            ("cali-fw-cali1", 1, "felix"),
        ];
        assert_eq!(short, expected);
        let meant = |at: usize| told[at].3;
        assert_eq!(meant(0), "no rule of the chain accepted it");
        assert_eq!(meant(1), "?");
        assert!(meant(2).contains("asymmetric routing"));
        assert_eq!(meant(3), "the service has no ready endpoint");
        assert!(meant(4).contains("disableConntrackInvalidCheck"));
    }

    #[test]
    fn of_an_nft_table_the_rules_that_count_are_told() {
        let text = "table inet mine {
	chain in {
		type filter hook input priority filter; policy drop;
		ct state invalid counter packets 3 bytes 120 drop comment \"x\"
		tcp dport 80 counter packets 8 bytes 320 accept comment \"no drop\"
		ip saddr 10.0.0.1 counter packets 1 bytes 40 reject with icmp port-unreachable
		ip saddr 10.0.0.2 drop
	}
}
";
        let counted = listing(text).unwrap()[0].dropping();
        let packets: Vec<u64> = counted.values().map(|counters| counters.packets).collect();
        assert_eq!(packets, [3, 1]);
        assert!(counted.keys().all(|site| site.table == "inet mine"));
    }
}
