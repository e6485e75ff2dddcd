//! Promises about the kernel's state: rules, elements, counters.

use super::{
    super::{
        fields::{Fields, note, text, truth, word},
        traffic, words,
    },
    Reading,
};
use crate::{
    case::{Claim, Counter, ElementQuery, Family, Presence, Promise, RuleBackend, RuleQuery},
    yaml::Node,
};

const BACKENDS: [(&str, RuleBackend); 3] = [
    ("legacy", RuleBackend::Legacy),
    ("nft", RuleBackend::Nft),
    ("nftables", RuleBackend::Nftables),
];

/// What begins the names in `/proc/net/snmp`, `netstat` and `snmp6`.
const SNMP: [&str; 14] = [
    "Ip.",
    "Icmp.",
    "IcmpMsg.",
    "Tcp.",
    "Udp.",
    "UdpLite.",
    "TcpExt.",
    "IpExt.",
    "MPTcpExt.",
    "Ip6",
    "Icmp6",
    "Udp6",
    "UdpLite6",
    "IcmpMsg6",
];

impl Reading<'_> {
    pub(super) fn has_rule(&self, node: &Node) -> Option<Promise> {
        let fields = self.fields(node, "has-rule", words::HAS_RULE)?;
        let rule = self.rule(&fields);
        let presence = self.presence(&fields);
        let window = self.window(&fields);
        let claim = Claim::HasRule {
            rule: rule?,
            presence: presence?,
        };
        let window = window?;
        Some(Promise { claim, window })
    }

    /// A rule as `has-rule` and `counter` ask for it.
    fn rule(&self, fields: &Fields<'_>) -> Option<RuleQuery> {
        let gathered = self.gathered;
        let backend = fields.maybe("backend", |node| word(gathered, node, "backend", &BACKENDS));
        let native = backend == Some(Some(RuleBackend::Nftables));
        let family = self.family(fields, native);
        let chain = self.chain(fields, native);
        let jump = fields.maybe("jump", |node| self.chain_name(node, native));
        let matches = fields.maybe("matches", |node| self.pattern(node, "every rule"));
        let (table, chain) = chain?;
        Some(RuleQuery {
            table,
            chain,
            jump: jump?,
            matches: matches?,
            family: family?,
            backend: backend?,
        })
    }

    fn family(&self, fields: &Fields<'_>, native: bool) -> Option<Family> {
        let families = [Family::Ip, Family::Ip6, Family::Inet];
        let families: Vec<_> = words::RULE_FAMILIES.iter().copied().zip(families).collect();
        let family = fields.or("family", Family::Ip, |node| {
            word(self.gathered, node, "family", &families)
        });
        if family == Some(Family::Inet) && !native {
            let message = "iptables has no table for both families";
            let hint = "write `backend: nftables`".to_owned();
            note(self.gathered, &fields.key("family"), message, Some(hint));
        }
        family
    }

    fn presence(&self, fields: &Fields<'_>) -> Option<Presence> {
        let gathered = self.gathered;
        let always = fields.or("always", false, |node| truth(gathered, node, "always"));
        let absent = fields.or("absent", false, |node| truth(gathered, node, "absent"));
        let node = fields.maybe("node", |node| {
            let name = text(gathered, node, "node")?;
            traffic::cluster_node(gathered, node, self.known.world, name)
        });
        Some(Presence {
            always: always?,
            absent: absent?,
            node: node?,
        })
    }

    pub(super) fn has_element(&self, node: &Node) -> Option<Promise> {
        let fields = self.fields(node, "has-element", words::HAS_ELEMENT)?;
        let table = fields.need("table", |node| self.nft_name(node, "table"));
        let set = fields.need("set", |node| self.nft_name(node, "set"));
        let element = fields.need("element", |node| text(self.gathered, node, "element"));
        let family = self.family(&fields, true);
        let presence = self.presence(&fields);
        let window = self.window(&fields);
        let element = ElementQuery {
            table: table?,
            set: set?,
            element: element?.to_owned(),
            family: family?,
        };
        let presence = presence?;
        let claim = Claim::HasElement { element, presence };
        let window = window?;
        Some(Promise { claim, window })
    }

    pub(super) fn counter(&self, node: &Node) -> Option<Promise> {
        let fields = self.fields(node, "counter", words::COUNTER)?;
        let counter = self.which_counter(&fields);
        let at = fields.maybe("at", |node| self.at(node));
        let limits = self.limits(&fields);
        let window = self.window(&fields);
        let claim = Claim::Counter {
            counter: counter?,
            at: at?,
            limits: limits?,
        };
        let window = window?;
        Some(Promise { claim, window })
    }

    /// One of `conntrack`, `snmp` and `rule`.
    fn which_counter(&self, fields: &Fields<'_>) -> Option<Counter> {
        let kinds = ["conntrack", "snmp", "rule"];
        let given: Vec<&str> = kinds
            .into_iter()
            .filter(|kind| fields.get(kind).is_some())
            .collect();
        let [kind] = given.as_slice() else {
            let message = "a counter is exactly one of conntrack, snmp, rule";
            note(self.gathered, &fields.node.place, message, None);
            return None;
        };
        let node = fields.get(kind)?;
        match *kind {
            "conntrack" => self.conntrack(node).map(Counter::Conntrack),
            "snmp" => self.snmp(node).map(Counter::Snmp),
            _ => {
                let fields = self.fields(node, "a rule", words::RULE)?;
                self.rule(&fields).map(Counter::Rule)
            }
        }
    }

    fn conntrack(&self, node: &Node) -> Option<String> {
        let known: Vec<_> = words::CONNTRACK.iter().map(|name| (*name, *name)).collect();
        word(self.gathered, node, "a counter of conntrack -S", &known).map(str::to_owned)
    }

    fn snmp(&self, node: &Node) -> Option<String> {
        let written = text(self.gathered, node, "a counter")?;
        let of = SNMP.iter().find_map(|group| written.strip_prefix(group));
        if of.is_none_or(str::is_empty) {
            let message = format!("{written:?} is no counter of /proc/net");
            let hint = "write Tcp.OutRsts, TcpExt.TCPTimeouts, Ip6OutNoRoutes".to_owned();
            note(self.gathered, &node.place, message, Some(hint));
            return None;
        }
        Some(written.to_owned())
    }
}
