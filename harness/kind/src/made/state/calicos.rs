//! What a real Calico keeps on nodes and in the API as it goes, and the kube-proxy whose rules its Felix may delete: none of it says that a case
//! left something (calico-node v3.28.1 and v3.32.1, by its manifest).

/// Words of the lines of iptables' rules and chains.
const RULES: [&str; 3] = ["cali-", "cali:", "KUBE-"];
/// Tables of nft beside Calico's own: kube-proxy's, and those of iptables' front end, of which the save tells.
const TABLES: [&str; 6] = [
    " kube-proxy",
    " raw",
    " mangle",
    " nat",
    " filter",
    " security",
];
/// Words of routes: to pods, to other nodes' and own blocks of addresses, and by interfaces of Felix's.
const ROUTES: [&str; 7] = [
    " dev cali",
    " dev bpf",
    " dev vxlan.calico",
    " dev vxlan-v6.calico",
    " dev tunl0",
    " proto 80",
    " proto bird",
];
/// Settings of interfaces that Felix makes fit for its programs, and leaves so.
const SETTINGS: [&str; 2] = [".rp_filter ", ".accept_local "];
/// Its records of the addresses that pods have, and what its pods make a while after they have begun.
const OBJECTS: [&str; 8] = [
    "IPAMBlock ",
    "IPAMHandle ",
    "IPAMConfig default",
    "BlockAffinity ",
    "ClusterInformation default",
    "FelixConfiguration default",
    "KubeControllersConfiguration default",
    "Tier ",
];

/// Whether a line of a state is of that kind.
pub(super) fn is_its(line: &str) -> bool {
    let (of, rest) = line.split_once(": ").unwrap_or(("", line));
    let has = |words: &[&str]| words.iter().any(|word| rest.contains(word));
    match of.split(' ').next().unwrap_or_default() {
        "" => OBJECTS.iter().any(|kind| rest.starts_with(kind)),
        "nft" => {
            let name = rest.rfind(' ').and_then(|at| rest.get(at..));
            name.is_some_and(|name| name.starts_with(" calico") || TABLES.contains(&name))
        }
        "ipset" => rest.starts_with("cali"),
        "ip" if of.ends_with("route") => has(&ROUTES),
        // By the marks of its programs.
        "ip" => has(&["fwmark"]),
        "qdisc" => has(&["clsact"]),
        "sysctl" => has(&SETTINGS),
        _ => of.contains("tables-") && has(&RULES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calico_and_kube_proxy_write_is_told_from_what_a_case_leaves() {
        for line in [
            "iptables-legacy nat: :cali-PREROUTING - [0:0]",
            "iptables-nft filter: -A FORWARD -m comment --comment \"cali:wUHhoiAYhphO9Mso\" -j cali-FORWARD",
            "ip6tables-legacy nat: -A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-NPX46M4PTMTKRN6Y",
            "nft: table ip kube-proxy",
            "nft: table arp calico-arp",
            "nft: table ip6 nat",
            "ipset: cali40this-host",
            "ip -4 route: 10.20.40.131 dev cali1234 scope link",
            "ip -4 route: blackhole 10.30.217.0/26 proto 80",
            "ip -4 route: 10.20.40.128/26 via 172.18.0.5 dev eth0 proto bird metric 1024",
            "ip -4 rule: 100: from all fwmark 0x10000000/0x10000000 lookup 10",
            "qdisc: qdisc clsact ffff: parent ffff:fff1",
            "sysctl: net.ipv4.conf.eth0.rp_filter = 0",
            "IPAMBlock 10-20-40-128-26",
            "KubeControllersConfiguration default",
        ] {
            assert!(is_its(line), "{line}");
        }
        for line in [
            "iptables-legacy nat: -A OUTPUT -d 192.0.2.1/32 -j RETURN",
            "nft: table ip mine",
            "ipset: mine",
            "ip -4 route: 192.0.2.0/24 via 172.18.0.9 dev eth0",
            "ip -4 rule: 99: from 10.20.0.0/16 lookup 99",
            "qdisc: qdisc netem 8001: root refcnt 2 limit 1000 delay 100ms",
            "sysctl: net.ipv4.ip_forward = 0",
            "conntrack: tcp src=10.20.1.2 dst=10.20.1.3",
            "IPPool mine",
            "NetworkPolicy default/deny",
            "Namespace test",
        ] {
            assert!(!is_its(line), "{line}");
        }
    }
}
