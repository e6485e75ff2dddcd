//! What third parties do to rules.
//!
//! Scripts are the same in both places and find the same there: before a harm the rules are equal, and
//! whatever they choose among kube-proxy's chains they choose by name.

use chainbreak_model::case::ProxyMode;

use crate::sequence::Harm;

/// Those of a mode.
pub(crate) fn of(mode: ProxyMode) -> &'static [Harm] {
    match mode {
        ProxyMode::Iptables => &HARMS,
        ProxyMode::Nftables => &NFT_HARMS,
        ProxyMode::Ipvs => unreachable!("no model plays it"),
    }
}

/// Harms that the next sync of a kube-proxy without partial syncs heals.
pub(crate) static HARMS: [Harm; 16] = [
    harm("nat is flushed", "iptables -t nat -F"),
    harm("nat is emptied", "iptables -t nat -F; iptables -t nat -X"),
    harm("filter is emptied", "iptables -F; iptables -X"),
    harm(
        "the jumps from nat's chains are deleted",
        "for c in PREROUTING OUTPUT; do iptables -t nat -D $c -m comment \
         --comment 'kubernetes service portals' -j KUBE-SERVICES; done",
    ),
    harm("filter's FORWARD is flushed", "iptables -F FORWARD"),
    harm(
        "some services' chains are flushed",
        "for c in $(iptables -t nat -S | sed -n 's/^-N \\(KUBE-S[VE][CP]-.*\\)/\\1/p' | sort | head -3); \
         do iptables -t nat -F $c; done",
    ),
    harm(
        "the common chains are flushed",
        "for c in SERVICES NODEPORTS POSTROUTING MARK-MASQ; do iptables -t nat -F KUBE-$c; done; \
         iptables -F KUBE-SERVICES; iptables -F KUBE-FORWARD",
    ),
    harm(
        "a stranger's rules come first",
        "iptables -t nat -I PREROUTING -p tcp --dport 9999 -j ACCEPT; \
         iptables -I FORWARD -s 192.0.2.77 -j DROP; iptables -t nat -I KUBE-SERVICES -j RETURN",
    ),
    harm(
        "a stranger's rules come last",
        "iptables -t nat -A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE; iptables -A INPUT -j ACCEPT; \
         iptables -t nat -A KUBE-POSTROUTING -j RETURN; iptables -A KUBE-FORWARD -j ACCEPT",
    ),
    harm(
        "a stranger's chains are named like kube-proxy's",
        "for c in SVC-AAAAAAAAAAAAAAAA SEP-AAAAAAAAAAAAAAAA FW-AAAAAAAAAAAAAAAA XLB-AAAAAAAAAAAAAAAA \
         EXT-AAAAAAAAAAAAAAAA OTHER; do iptables -t nat -N KUBE-$c; done; \
         iptables -t nat -A KUBE-XLB-AAAAAAAAAAAAAAAA -j KUBE-SVC-AAAAAAAAAAAAAAAA; \
         iptables -N KUBE-SVC-AAAAAAAAAAAAAAAA",
    ),
    harm(
        "the jumps stand twice",
        "iptables -t nat -A PREROUTING -m comment --comment 'kubernetes service portals' \
         -j KUBE-SERVICES; iptables -A FORWARD -m comment --comment 'kubernetes forwarding rules' \
         -j KUBE-FORWARD",
    ),
    harm(
        "a jump goes to the end",
        "iptables -t nat -A POSTROUTING -s 192.0.2.0/24 -j ACCEPT; \
         iptables -t nat -D POSTROUTING -m comment --comment 'kubernetes postrouting rules' \
         -j KUBE-POSTROUTING; iptables -t nat -A POSTROUTING -m comment \
         --comment 'kubernetes postrouting rules' -j KUBE-POSTROUTING",
    ),
    harm(
        "a jump loses its comment",
        "iptables -t nat -D OUTPUT -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES; \
         iptables -t nat -A OUTPUT -j KUBE-SERVICES",
    ),
    harm("nothing is forwarded", "iptables -P FORWARD DROP"),
    harm(
        "a kubelet fills the chains for drops",
        "iptables -t nat -N KUBE-MARK-DROP 2>&-; iptables -t nat -A KUBE-MARK-DROP -j MARK \
         --or-mark 0x8000; iptables -N KUBE-FIREWALL; iptables -A KUBE-FIREWALL -m mark \
         --mark 0x8000/0x8000 -j DROP; iptables -I INPUT -j KUBE-FIREWALL; iptables -I OUTPUT \
         -j KUBE-FIREWALL; true",
    ),
    harm(
        "all canaries but mangle's die",
        "for t in nat filter; do iptables -t $t -X KUBE-PROXY-CANARY; done; true",
    ),
];

/// What may befall the table of nftables mode. Only what a transaction needs is missed.
pub(crate) static NFT_HARMS: [Harm; 10] = [
    harm("the table is deleted", "nft delete table ip kube-proxy"),
    harm("the table is flushed", "nft flush table ip kube-proxy"),
    harm(
        "elements are flushed",
        "for m in service-ips no-endpoint-services; do nft flush map ip kube-proxy $m; done",
    ),
    harm(
        "the sets are flushed",
        "nft flush set ip kube-proxy cluster-ips; nft flush set ip kube-proxy nodeport-ips; \
         nft flush set ip kube-proxy hairpin-connections 2>&-; true",
    ),
    harm(
        "node ports are flushed",
        "nft flush map ip kube-proxy service-nodeports",
    ),
    // Of those that have rules: when the empty ones of services and endpoints that are gone are deleted is chance.
    harm(
        "the chains of some services are flushed",
        "for c in $(nft list table ip kube-proxy | \
         sed -n '/^\\tchain [a-z]*-.*\\/[^ ]* {$/{h;n;/^\\t}$/!{x;s/^\\tchain \\(.*\\) {$/\\1/p}}' | \
         sort | head -3); do nft flush chain ip kube-proxy $c; done",
    ),
    harm(
        "the common chains are flushed",
        "for c in services masquerading nat-prerouting filter-forward; do \
         nft flush chain ip kube-proxy $c; done",
    ),
    harm(
        "a base chain is deleted",
        "nft delete chain ip kube-proxy nat-output",
    ),
    harm(
        "a stranger's rules come first",
        "for c in services nat-prerouting masquerading; do nft insert rule ip kube-proxy $c \
         ip saddr 192.0.2.77 accept; done",
    ),
    harm(
        "a stranger's chains and elements are in the table",
        "nft add chain ip kube-proxy stranger; nft add chain ip kube-proxy a/stranger; \
         nft add element ip kube-proxy cluster-ips { 192.0.2.77 }",
    ),
];

/// Harms that the monitor notices. They cost its period, and the half-done one five seconds more.
pub(crate) static CANARIES: [Harm; 3] = [
    Harm {
        what: "everything is emptied",
        script: "for t in filter nat mangle; do iptables -t $t -F; iptables -t $t -X; done",
        noticed_by: Some("Reloading after iptables flush"),
    },
    Harm {
        what: "all canaries die",
        script: "for t in filter nat mangle; do iptables -t $t -X KUBE-PROXY-CANARY; done; true",
        noticed_by: Some("Reloading after iptables flush"),
    },
    Harm {
        what: "mangle's canary dies alone",
        script: "iptables -t mangle -X KUBE-PROXY-CANARY",
        noticed_by: Some("Reloading after iptables flush"),
    },
];

const fn harm(what: &'static str, script: &'static str) -> Harm {
    Harm {
        what,
        script,
        noticed_by: None,
    }
}
