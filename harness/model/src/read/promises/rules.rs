//! Promises about the kernel's state: rules, elements, counters.

use super::{
    super::{
        fields::{Fields, note, text, truth, word},
        traffic,
        words::{BACKENDS, FAMILIES, NODE},
    },
    LIMITS, Reading, Word, promise,
    window::WINDOW,
};
use crate::{
    case::{Claim, Counter, ElementQuery, Family, Presence, Promise, RuleBackend, RuleQuery},
    language::{Field, Kind, Mapping, default, needed, optional, words},
    yaml::Node,
};

pub(super) static PROMISES: [Word; 3] = [
    promise(
        "has-rule",
        &HAS_RULE,
        "A rule is there, with the target `jump` and with a text that `matches`; without both the chain itself.",
        |it, fields| it.has_rule(fields),
    ),
    promise(
        "has-element",
        &HAS_ELEMENT,
        "An element of a set or map of nftables is there.",
        |it, fields| it.has_element(fields),
    ),
    promise(
        "counter",
        &COUNTER,
        "A counter of the kernel rises by so much.",
        |it, fields| it.counter(fields),
    ),
];

static HAS_RULE: Mapping = Mapping {
    called: "has-rule",
    doc: "",
    fields: &[&QUERY, &PRESENCE, &WINDOW],
};

static RULE: Mapping = Mapping {
    called: "a rule",
    doc: "Rules, of which all that match count.",
    fields: &[&QUERY],
};

static HAS_ELEMENT: Mapping = Mapping {
    called: "has-element",
    doc: "",
    fields: &[
        &[
            needed("table", Kind::Text, "Which table, as `kube-proxy`."),
            needed("set", Kind::Text, "The set or map."),
            needed(
                "element",
                Kind::Text,
                "As nft list prints it; of a map its key alone will do.",
            ),
            FAMILY,
        ],
        &PRESENCE,
        &WINDOW,
    ],
};

static COUNTER: Mapping = Mapping {
    called: "counter",
    doc: "A counter, exactly one of `conntrack`, `snmp` and `rule`, and how much it rises over the promise's time.",
    fields: &[
        &[
            optional(
                "conntrack",
                Kind::Word(|| CONNTRACK.to_vec()),
                "A counter of conntrack -S.",
            ),
            optional(
                "snmp",
                Kind::Text,
                "A counter of /proc/net/snmp, netstat or snmp6, as Tcp.OutRsts or TcpExt.TCPTimeouts.",
            ),
            optional(
                "rule",
                Kind::Fields(&RULE),
                "Packets of the rules that match.",
            ),
            optional(
                "at",
                traffic::PLACE,
                "Whose: `node/n1`, `pod/NAME`, `pod/NAMESPACE/NAME`, `host/NAME`; every node's, added up, when not given.",
            ),
        ],
        &LIMITS,
        &WINDOW,
    ],
};

/// Which rule.
static QUERY: [Field; 7] = [
    optional(
        "service",
        Kind::Text,
        "Of which service: [NAMESPACE/]NAME[:PORT], with the port's name; `chain` is then `service`, `local`, `external` or `firewall`, and no table is needed.",
    ),
    optional(
        "table",
        Kind::Text,
        "Which table: nat, filter, mangle, raw; of nftables any. Needed without `service`.",
    ),
    needed("chain", Kind::Text, "The chain that holds it."),
    optional(
        "jump",
        Kind::Text,
        "Its target; without it and `matches` the chain itself is asked for.",
    ),
    optional(
        "matches",
        Kind::Text,
        "A regular expression for its text, as iptables-save prints it after `-A CHAIN`, or nft list.",
    ),
    FAMILY,
    optional(
        "backend",
        Kind::Word(|| words(&BACKENDS)),
        "Through which iptables backend; the node's own iptables when not given. `nftables` reads what nft list prints, of any table.",
    ),
];

const FAMILY: Field = default(
    "family",
    Kind::Word(|| words(&FAMILIES)),
    "ip",
    "Of which packets; `inet` of nftables alone.",
);

/// Where and when something is there.
static PRESENCE: [Field; 3] = [
    optional("node", NODE, "On which node; on every one when not given."),
    default(
        "always",
        Kind::Truth,
        "false",
        "At all times; else when its time is over.",
    ),
    default("absent", Kind::Truth, "false", "It is not to be there."),
];

/// Columns of `conntrack -S`.
const CONNTRACK: [&str; 10] = [
    "found",
    "invalid",
    "insert",
    "insert_failed",
    "drop",
    "early_drop",
    "error",
    "search_restart",
    "clash_resolve",
    "chaintoolong",
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
    fn has_rule(&self, fields: &Fields<'_>) -> Option<Promise> {
        let rule = self.rule(fields);
        let presence = self.presence(fields);
        let window = self.window(fields);
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
        let family = fields.or_default("family", |node| {
            word(self.gathered, node, "family", &FAMILIES)
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
        let always = fields.or_default("always", |node| truth(gathered, node, "always"));
        let absent = fields.or_default("absent", |node| truth(gathered, node, "absent"));
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

    fn has_element(&self, fields: &Fields<'_>) -> Option<Promise> {
        let table = fields.need("table", |node| self.nft_name(node, "table"));
        let set = fields.need("set", |node| self.nft_name(node, "set"));
        let element = fields.need("element", |node| text(self.gathered, node, "element"));
        let family = self.family(fields, true);
        let presence = self.presence(fields);
        let window = self.window(fields);
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

    fn counter(&self, fields: &Fields<'_>) -> Option<Promise> {
        let counter = self.which_counter(fields);
        let at = fields.maybe("at", |node| self.at(node));
        let limits = self.limits(fields);
        let window = self.window(fields);
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
                let fields = Fields::of(self.gathered, node, &RULE)?;
                self.rule(&fields).map(Counter::Rule)
            }
        }
    }

    fn conntrack(&self, node: &Node) -> Option<String> {
        let known = CONNTRACK.map(|name| (name, name));
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
