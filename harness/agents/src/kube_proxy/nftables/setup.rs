//! What every full sync makes before it comes to services: the table, its base chains and what they jump to,
//! the set and the maps, and the rules that look things up in them (`setupNFTables`).

use std::net::IpAddr;

use ipnet::IpNet;

use super::transaction::Transaction;
use crate::kube_proxy::{config::Config, logs::Logs};

/// The set of addresses at which node ports are open.
const NODE_PORT_IPS: &str = "nodeport-ips";

/// The chain that marks packets to be masqueraded, until 1.35.
pub(super) const MARK_MASQ: &str = "mark-for-masquerade";

/// The set of connections from an endpoint to itself, from 1.36.
pub(super) const HAIRPIN: &str = "hairpin-connections";

/// What rejects packets to services that have no endpoints.
pub(super) const REJECT: &str = "reject-chain";

/// A chain that the kernel calls: name, type, hook and priority.
type Base = (&'static str, &'static str, &'static str, i32);

/// Before DNAT, so that rules see the service's address.
const PRE_DNAT: i32 = -110;
const DNAT: i32 = -100;
const POST_DNAT: i32 = -90;
const FILTER: i32 = 0;
const SNAT: i32 = 100;

const NAT: [Base; 3] = [
    ("nat-prerouting", "nat", "prerouting", DNAT),
    ("nat-output", "nat", "output", DNAT),
    ("nat-postrouting", "nat", "postrouting", SNAT),
];

/// Until 1.33.5.
const EARLY: [Base; 5] = [
    ("filter-prerouting", "filter", "prerouting", PRE_DNAT),
    ("filter-input", "filter", "input", PRE_DNAT),
    ("filter-forward", "filter", "forward", PRE_DNAT),
    ("filter-output", "filter", "output", PRE_DNAT),
    ("filter-output-post-dnat", "filter", "output", POST_DNAT),
];

/// From 1.33.6: what the node itself sends to an external address is short-circuited before it could be dropped (pull
/// request 132456).
const LATE: [Base; 5] = [
    (
        "filter-prerouting-pre-dnat",
        "filter",
        "prerouting",
        PRE_DNAT,
    ),
    ("filter-output-pre-dnat", "filter", "output", PRE_DNAT),
    ("filter-input", "filter", "input", FILTER),
    ("filter-forward", "filter", "forward", FILTER),
    ("filter-output", "filter", "output", FILTER),
];

/// Jumps of new connections from base chains: from where, to where, from 1.33.6 on from where.
const JUMPS: [(&str, &str, &str); 8] = [
    ("filter-input", "nodeport-endpoints-check", "filter-input"),
    ("filter-input", "service-endpoints-check", "filter-input"),
    (
        "filter-forward",
        "service-endpoints-check",
        "filter-forward",
    ),
    ("filter-output", "service-endpoints-check", "filter-output"),
    (
        "filter-prerouting",
        "firewall-check",
        "filter-prerouting-pre-dnat",
    ),
    ("filter-output", "firewall-check", "filter-output-pre-dnat"),
    ("filter-forward", "cluster-ips-check", "filter-forward"),
    (
        "filter-output-post-dnat",
        "cluster-ips-check",
        "filter-output",
    ),
];

/// Jumps of everything.
const NAT_JUMPS: [(&str, &str); 3] = [
    ("nat-output", "services"),
    ("nat-prerouting", "services"),
    ("nat-postrouting", "masquerading"),
];

const CHAINS: [&str; 6] = [
    "nodeport-endpoints-check",
    "service-endpoints-check",
    "firewall-check",
    "services",
    "masquerading",
    "cluster-ips-check",
];

/// What marks a packet to be masqueraded.
pub(super) fn mark(config: &Config) -> String {
    format!("mark set mark or {}", config.mark())
}

/// What decides it.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) config: &'a Config,
    pub(super) logs: &'a Logs,
    /// The node's own address, the loopback's while it is not known.
    pub(super) node_ip: IpAddr,
    /// Networks of cluster IPs, of both families.
    pub(super) service_cidrs: &'a [IpNet],
    /// Whether base chains of an earlier process may be there, with other priorities.
    pub(super) rebase: bool,
}

impl Setup<'_> {
    pub(super) fn write(&self, tx: &mut Transaction) {
        tx.table("rules for kube-proxy");
        self.base_chains(tx);
        for chain in CHAINS {
            tx.empty_chain(chain, "");
        }
        self.jumps(tx);
        if self.config.version.has_endpoint_chains() {
            masquerading_by_mark(tx, &self.config.mark());
        } else {
            masquerading(tx, &self.config.mark());
        }
        self.cluster_ips(tx);
        let open = self.config.node_ports_at(self.node_ip);
        self.node_port_ips(tx, open.as_deref());
        self.lookups(tx, open.is_none());
    }

    fn base_chains(&self, tx: &mut Transaction) {
        let filter = if self.config.version.filters_after_dnat() {
            LATE
        } else {
            EARLY
        };
        let chains = filter.iter().chain(&NAT);
        if self.rebase {
            for (name, ..) in chains.clone() {
                tx.add("chain", name, "");
                tx.delete("chain", name);
            }
        }
        for (name, type_, hook, priority) in chains {
            tx.empty_chain(
                name,
                &format!("type {type_} hook {hook} priority {priority}"),
            );
        }
    }

    fn jumps(&self, tx: &mut Transaction) {
        for (early, to, late) in JUMPS {
            let from = if self.config.version.filters_after_dnat() {
                late
            } else {
                early
            };
            tx.rule(from, format_args!("ct state new jump {to}"));
        }
        for (from, to) in NAT_JUMPS {
            tx.rule(from, format_args!("jump {to}"));
        }
    }

    /// Other ports of cluster IPs are rejected, other addresses of their networks dropped.
    fn cluster_ips(&self, tx: &mut Transaction) {
        let (ip, address) = (tx.words.ip, tx.words.address);
        tx.add(
            "set",
            "cluster-ips",
            &format!("type {address} ; comment \"Active ClusterIPs\""),
        );
        tx.commented_rule(
            "cluster-ips-check",
            format_args!("{ip} daddr @cluster-ips reject"),
            "Reject traffic to invalid ports of ClusterIPs",
        );
        let family = self.config.family;
        let cidrs = self.service_cidrs.iter().filter(|it| family.has(it.addr()));
        let cidrs: Vec<String> = cidrs.map(ToString::to_string).collect();
        if !cidrs.is_empty() {
            tx.commented_rule(
                "cluster-ips-check",
                format_args!("{ip} daddr {{ {} }} drop", cidrs.join(",")),
                "Drop traffic to unallocated ClusterIPs",
            );
        }
    }

    /// From 1.36 on one rule for all services, and for all ports of their addresses; before, each service's
    /// own chain had one.
    fn masquerade_foreign(&self, tx: &mut Transaction) {
        let config = self.config;
        if config.version.has_endpoint_chains() {
            return;
        }
        let ip = tx.words.ip;
        let (foreign, comment) = match config.nft_from_pods(ip, false) {
            _ if config.masquerade_all => (String::new(), "masquerade all clusterIP traffic"),
            Some(foreign) => (
                format!("{foreign} "),
                "masquerade clusterIP traffic from outside cluster",
            ),
            None => return,
        };
        let rule = format!("{ip} daddr @cluster-ips {foreign}{}", mark(config));
        tx.commented_rule("services", rule, comment);
    }

    fn node_port_ips(&self, tx: &mut Transaction, open: Option<&[IpAddr]>) {
        let address = tx.words.address;
        let comment = "IPs that accept NodePort traffic";
        tx.add(
            "set",
            NODE_PORT_IPS,
            &format!("type {address} ; comment {comment:?}"),
        );
        let Some(open) = open else {
            return tx.delete("set", NODE_PORT_IPS);
        };
        tx.flush("set", NODE_PORT_IPS);
        for ip in open {
            if ip.is_loopback() {
                self.logs.no_localhost_node_ports(*ip);
            } else {
                tx.element(NODE_PORT_IPS, &ip.to_string(), "", None);
            }
        }
    }

    /// The maps and the rules that look up in them.
    fn lookups(&self, tx: &mut Transaction, everywhere: bool) {
        let (ip, address) = (tx.words.ip, tx.words.address);
        let by_ip = format!("type {address} . inet_proto . inet_service : verdict");
        let by_port = "type inet_proto . inet_service : verdict";
        let maps = [
            (
                "no-endpoint-services",
                by_ip.as_str(),
                "vmap to drop or reject packets to services with no endpoints",
            ),
            (
                "no-endpoint-nodeports",
                by_port,
                "vmap to drop or reject packets to service nodeports with no endpoints",
            ),
            (
                "firewall-ips",
                &by_ip,
                "destinations that are subject to LoadBalancerSourceRanges",
            ),
            (
                "service-ips",
                &by_ip,
                "ClusterIP, ExternalIP and LoadBalancer IP traffic",
            ),
            ("service-nodeports", by_port, "NodePort traffic"),
        ];
        for (name, type_, comment) in maps {
            tx.add("map", name, &format!("{type_} ; comment {comment:?}"));
        }
        let helper = "helper for @no-endpoint-services / @no-endpoint-nodeports";
        tx.empty_chain(REJECT, &format!("comment {helper:?}"));
        tx.rule(REJECT, "reject");
        let to = format!("{ip} daddr . meta l4proto . th dport vmap");
        tx.rule(
            "service-endpoints-check",
            format_args!("{to} @no-endpoint-services"),
        );
        tx.rule("firewall-check", format_args!("{to} @firewall-ips"));
        self.masquerade_foreign(tx);
        tx.rule("services", format_args!("{to} @service-ips"));
        let not_localhost = tx.words.not_localhost;
        let (input, prerouting) = if everywhere {
            (
                not_localhost.to_owned(),
                format!("fib daddr type local {not_localhost}"),
            )
        } else {
            let ours = format!("{ip} daddr @{NODE_PORT_IPS}");
            (ours.clone(), ours)
        };
        let to = "meta l4proto . th dport vmap";
        tx.rule(
            "nodeport-endpoints-check",
            format_args!("{input} {to} @no-endpoint-nodeports"),
        );
        tx.rule(
            "services",
            format_args!("{prerouting} {to} @service-nodeports"),
        );
    }
}

/// Until 1.35 a chain marks, and a rule for each other packet returns.
fn masquerading_by_mark(tx: &mut Transaction, mark: &str) {
    tx.empty_chain(MARK_MASQ, "");
    tx.rule(MARK_MASQ, format_args!("mark set mark or {mark}"));
    for rule in [
        format!("mark and {mark} == 0 return"),
        format!("mark set mark xor {mark}"),
        "masquerade fully-random".to_owned(),
    ] {
        tx.rule("masquerading", rule);
    }
}

/// From 1.36 on what an endpoint sends to itself needs no mark: its addresses after DNAT tell.
fn masquerading(tx: &mut Transaction, mark: &str) {
    let (ip, address) = (tx.words.ip, tx.words.address);
    let type_ = format!("type {address} . {address} . inet_proto . inet_service");
    let comment = "service hairpin connections";
    tx.add("set", HAIRPIN, &format!("{type_} ; comment {comment:?}"));
    tx.rule(
        "masquerading",
        format_args!("mark and {mark} != 0 mark set mark xor {mark} masquerade fully-random"),
    );
    tx.rule(
        "masquerading",
        format_args!(
            "ct status dnat {ip} saddr . {ip} daddr . meta l4proto . th dport @{HAIRPIN} \
             masquerade fully-random"
        ),
    );
}
