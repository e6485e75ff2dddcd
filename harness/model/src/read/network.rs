//! The parts of `cluster:` that lie around the agents: hosts, kernel settings, a third party's CNI.

use std::{collections::BTreeMap, net::IpAddr};

use indexmap::IndexMap;
use ipnet::IpNet;

use super::{
    fields::{Fields, entries, items, note, number, text, truth, word},
    name,
};
use crate::{
    case::{CniSpec, HostSpec, RandomizeSnat, Route, Via},
    diagnostic::Gathered,
    language::{Kind, Mapping, default, needed, optional, words},
    names::NodeName,
    nearest::suggest,
    yaml::{Node, Value},
};

/// Names of kernel settings that a network namespace has.
pub(super) const SETTING: &str = "^net\\.[A-Za-z0-9._/-]+$";

/// Settings that a child network namespace reads and cannot write (Linux 6.18, `nf_conntrack_standalone.c`).
pub(super) static HOST_SYSCTLS: Mapping = Mapping {
    called: "host-sysctls",
    doc: "",
    fields: &[&[
        optional(
            "net.netfilter.nf_conntrack_max",
            SETTING_VALUE,
            "How many connections are remembered at most.",
        ),
        optional(
            "net.netfilter.nf_conntrack_buckets",
            SETTING_VALUE,
            "How many buckets the table has.",
        ),
    ]],
};

const SETTING_BOUNDS: (u64, u64) = (1, i32::MAX as u64);
const SETTING_VALUE: Kind = Kind::Whole(SETTING_BOUNDS.0, SETTING_BOUNDS.1);

/// A list of names, or a mapping.
pub(super) const HOSTS: Kind = Kind::Any(&[
    Kind::List(&Kind::Name),
    Kind::Named(&Kind::OrNothing(&Kind::Fields(&HOST))),
]);

static HOST: Mapping = Mapping {
    called: "a host",
    doc: "A host outside the cluster.",
    fields: &[&[
        optional(
            "addresses",
            Kind::List(&Kind::Text),
            "Addresses beside the one that the lab gives it; all nodes and hosts have a route to them. The first is what `host/NAME` means.",
        ),
        optional(
            "routes",
            Kind::List(&Kind::Fields(&ROUTE)),
            "Ways to networks; by itself a host has none to pods.",
        ),
        optional(
            "nginx",
            Kind::Whole(1, 65535),
            "The port at which nginx answers there, so that traffic can go to it.",
        ),
    ]],
};

static ROUTE: Mapping = Mapping {
    called: "a route",
    doc: "",
    fields: &[&[
        needed("to", NETWORK, "A network, or one address."),
        needed(
            "via",
            Kind::Text,
            "The next hop: `node/n1`, `host/NAME` or an address.",
        ),
    ]],
};

const NETWORK: Kind = Kind::Form("^[0-9a-fA-F.:]+(/[0-9]+)?$", "10.30.0.0/16");

pub(super) static CNI: Mapping = Mapping {
    called: "cni",
    doc: "",
    fields: &[&[
        needed(
            "profile",
            Kind::Word(|| words(&PROFILES)),
            "Whose rules are written, once on every node, before agents start.",
        ),
        default(
            "external-snat",
            Kind::Truth,
            "false",
            "AWS_VPC_K8S_CNI_EXTERNALSNAT: nodes translate no addresses.",
        ),
        default(
            "randomize-snat",
            Kind::Word(|| words(&RANDOMIZE)),
            "prng",
            "AWS_VPC_K8S_CNI_RANDOMIZESNAT.",
        ),
        optional(
            "vpc-cidrs",
            Kind::List(&NETWORK),
            "Networks to which pods go with their own address; those of nodes and pods when not given.",
        ),
    ]],
};

const PROFILES: [(&str, ()); 1] = [("aws-vpc", ())];
const RANDOMIZE: [(&str, RandomizeSnat); 3] = [
    ("prng", RandomizeSnat::Prng),
    ("hashrandom", RandomizeSnat::Hashrandom),
    ("none", RandomizeSnat::None),
];

/// Kernel settings by name. Which ones a kernel has is seen when they are set.
pub(super) fn sysctls(gathered: &Gathered, node: &Node) -> Option<BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    for (name, entry) in entries(gathered, node, "sysctls")? {
        let inner = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if !name.starts_with("net.") || !name.chars().all(inner) || name.contains("..") {
            let message = format!("{name:?} is not a setting of a network namespace");
            let hint = "these begin with net., as net.ipv4.ip_forward";
            note(gathered, &entry.key, message, Some(hint.to_owned()));
            continue;
        }
        if HOST_SYSCTLS.field(name).is_some() {
            let message = format!("{name} is the whole machine's, not a node's");
            let hint = "write it under host-sysctls, for runs with --allow-host-changes";
            note(gathered, &entry.key, message, Some(hint.to_owned()));
            continue;
        }
        // Whatever stands between its parts, it is the same file.
        let parts = name.split(['.', '/']).filter(|part| !part.is_empty());
        if parts.eq(ONCE.split('.')) {
            let message = format!("{name} is the whole machine's, and cannot be set back");
            note(gathered, &entry.key, message, None);
            continue;
        }
        let value = text(gathered, &entry.node, "a setting's value")?;
        settings.insert(name.clone(), value.to_owned());
    }
    Some(settings)
}

/// The one setting below `net.` that a namespace writes for the whole machine; the kernel takes no 0 after a 1
/// (`nf_hooks_lwtunnel.c`).
const ONCE: &str = "net.netfilter.nf_hooks_lwtunnel";

/// Settings of the machine by name: those that no namespace has of its own, each a number.
pub(super) fn host_sysctls(gathered: &Gathered, node: &Node) -> Option<BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    for (name, entry) in entries(gathered, node, "host-sysctls")? {
        if HOST_SYSCTLS.field(name).is_none() {
            let message = format!("{name:?} is no setting that all network namespaces share");
            let hint = suggest(name, HOST_SYSCTLS.fields().map(|field| field.word));
            note(gathered, &entry.key, message, hint);
            continue;
        }
        let value: u64 = number(gathered, &entry.node, "a setting's value", SETTING_BOUNDS)?;
        settings.insert(name.clone(), value.to_string());
    }
    Some(settings)
}

/// Hosts outside the cluster: a list of names, or a mapping with what each has. `nodes` is `None` when
/// it could not be read.
pub(super) fn hosts(
    gathered: &Gathered,
    node: &Node,
    nodes: Option<u16>,
) -> Option<IndexMap<String, HostSpec>> {
    let mut hosts: IndexMap<String, HostSpec> = IndexMap::new();
    if let Value::Map(entries) = &node.value {
        let names: Vec<&str> = entries.keys().map(String::as_str).collect();
        for (host, entry) in entries {
            if !is_free(host) || !super::is_name(host) {
                note(gathered, &entry.key, taken(host), None);
            }
            let spec = host_spec(gathered, &entry.node, &names, nodes)?;
            hosts.insert(host.clone(), spec);
        }
        return Some(hosts);
    }
    for item in items(gathered, node, "hosts")? {
        let host = name(gathered, item, "a host's name")?;
        if !is_free(host) || hosts.contains_key(host) {
            note(gathered, &item.place, taken(host), None);
            continue;
        }
        hosts.insert(host.to_owned(), HostSpec::default());
    }
    Some(hosts)
}

fn taken(name: &str) -> String {
    format!("the name {name:?} is taken")
}

/// Nodes are called so.
fn is_free(name: &str) -> bool {
    let number = name.strip_prefix('n');
    number.is_none_or(|number| number.parse::<u16>().is_err())
}

fn host_spec(
    gathered: &Gathered,
    node: &Node,
    hosts: &[&str],
    nodes: Option<u16>,
) -> Option<HostSpec> {
    if node.is_null() {
        return Some(HostSpec::default());
    }
    let fields = Fields::of(gathered, node, &HOST)?;
    let addresses = fields.or_empty("addresses", |node| {
        each(items(gathered, node, "addresses")?, |item| {
            address(gathered, item)
        })
    });
    let routes = fields.or_empty("routes", |node| {
        each(items(gathered, node, "routes")?, |item| {
            route(gathered, item, hosts, nodes)
        })
    });
    let nginx = fields.maybe("nginx", |node| number(gathered, node, "nginx", (1, 65535)));
    Some(HostSpec {
        addresses: addresses?,
        routes: routes?,
        nginx: nginx?,
    })
}

/// Reads all, also behind a wrong one: every mistake is said.
fn each<T>(items: &[Node], read: impl Fn(&Node) -> Option<T>) -> Option<Vec<T>> {
    let all: Vec<Option<T>> = items.iter().map(read).collect();
    all.into_iter().collect()
}

fn route(gathered: &Gathered, node: &Node, hosts: &[&str], nodes: Option<u16>) -> Option<Route> {
    let fields = Fields::of(gathered, node, &ROUTE)?;
    let to = fields.need("to", |node| network(gathered, node));
    let via = fields.need("via", |node| via(gathered, node, hosts, nodes));
    let (to, via) = (to?, via?);
    if let Via::Address(hop) = via
        && hop.is_ipv4() != to.addr().is_ipv4()
    {
        let message = format!("a route to {to} cannot lead via {hop}");
        note(gathered, &fields.key("via"), message, None);
    }
    Some(Route { to, via })
}

fn via(gathered: &Gathered, node: &Node, hosts: &[&str], nodes: Option<u16>) -> Option<Via> {
    let written = text(gathered, node, "via")?;
    if let Some(host) = written.strip_prefix("host/") {
        if !hosts.contains(&host) {
            let hint = suggest(host, hosts.iter().copied());
            note(
                gathered,
                &node.place,
                format!("unknown host {host:?}"),
                hint,
            );
        }
        return Some(Via::Host(host.to_owned()));
    }
    if let Some(name) = written.strip_prefix("node/") {
        let number = name.strip_prefix('n').and_then(|n| n.parse::<u16>().ok());
        let most = nodes.unwrap_or(u16::MAX);
        if !number.is_some_and(|n| (1..=most).contains(&n) && format!("n{n}") == name) {
            let hint = format!("there are n1 to n{most}");
            let message = format!("unknown node {name:?}");
            note(gathered, &node.place, message, Some(hint));
        }
        return Some(Via::Node(NodeName::from(name)));
    }
    if let Ok(address) = written.parse() {
        return Some(Via::Address(address));
    }
    let hint = "write node/n1, host/NAME or an address";
    let message = format!("a route cannot lead via {written:?}");
    note(gathered, &node.place, message, Some(hint.to_owned()));
    None
}

fn address(gathered: &Gathered, node: &Node) -> Option<IpAddr> {
    let written = text(gathered, node, "an address")?;
    let address = written.parse().ok();
    if address.is_none() {
        let message = format!("{written:?} is not an address");
        note(gathered, &node.place, message, None);
    }
    address
}

/// A network, `10.30.0.0/16`, or one address.
pub(super) fn network(gathered: &Gathered, node: &Node) -> Option<IpNet> {
    let written = text(gathered, node, "a network")?;
    let network = written.parse::<IpNet>().ok();
    let network = network.or_else(|| written.parse::<IpAddr>().ok().map(IpNet::from));
    let Some(network) = network else {
        let message = format!("{written:?} is not a network");
        let hint = "write it as 10.30.0.0/16".to_owned();
        note(gathered, &node.place, message, Some(hint));
        return None;
    };
    if network.trunc() != network {
        let message = format!("{written} is an address within a network");
        let hint = format!("the network is {}", network.trunc());
        note(gathered, &node.place, message, Some(hint));
    }
    Some(network.trunc())
}

/// The CNI that owns the pods' interfaces.
pub(super) fn cni(gathered: &Gathered, node: &Node) -> Option<CniSpec> {
    let fields = Fields::of(gathered, node, &CNI)?;
    let profile = fields.need("profile", |node| word(gathered, node, "profile", &PROFILES));
    let external = fields.or_default("external-snat", |node| {
        truth(gathered, node, "external-snat")
    });
    let randomize = fields.or_default("randomize-snat", |node| {
        word(gathered, node, "randomize-snat", &RANDOMIZE)
    });
    let cidrs = fields.or_empty("vpc-cidrs", |node| {
        each(items(gathered, node, "vpc-cidrs")?, |item| {
            network(gathered, item)
        })
    });
    profile?;
    Some(CniSpec {
        external_snat: external?,
        randomize_snat: randomize?,
        vpc_cidrs: cidrs?,
    })
}
