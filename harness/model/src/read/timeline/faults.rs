//! Steps that do something to the cluster.

use std::{net::IpAddr, time::Duration};

use chainbreak_probe::wire::{Protocol, craft::Segment};
use indexmap::IndexMap;

use super::{
    super::{
        fields::{Fields, duration, entries, note, number, percent, regex, text, texts, word},
        name,
        traffic::{World, cluster_node, place},
        words,
    },
    STEP,
};
use crate::{
    case::{
        AgentFault, AgentSource, ClusterSpec, Craft, Entries, Family, Fault, Origin, RuleBackend,
        Run, Step, TableRef, Traffic,
    },
    diagnostic::Gathered,
    names::{AgentName, NodeName, TrafficName},
    nearest::suggest,
    yaml::{Node, Value},
};

/// Distance of two turns of a crafter.
const CRAFT: Duration = Duration::from_millis(200);
/// No kernel has room for more.
const ENTRIES: (u64, u64) = (1, 100_000_000);
/// Who runs what a step does not say who runs.
const SOMEBODY: &str = "admin";

/// Reads the fault called `word`.
pub(super) fn read(
    gathered: &Gathered,
    word: &str,
    node: &Node,
    world: &World<'_>,
) -> Option<Step> {
    let of = |what: &'static str, known: &[&str]| {
        let fields = Fields::of(gathered, node, what, known)?;
        Some(Reading { fields, world })
    };
    match word {
        "slow" => of("slow", words::SLOW)?.slow(),
        "stop" => of("stop", words::AGENT_FAULT)?.agent(AgentFault::Stop),
        "pause" => of("pause", words::AGENT_FAULT)?.agent(AgentFault::Pause),
        "restart" => of("restart", words::RESTART)?.agent(AgentFault::Restart),
        "sysctl" => of("sysctl", words::SYSCTL)?.sysctl(),
        "fill-conntrack" => of("fill-conntrack", words::FILL_CONNTRACK)?.fill(),
        "link-down" => of("link-down", words::LINK_DOWN)?.link_down(),
        "craft" => of("craft", words::CRAFT)?.craft(),
        "loss" => of("loss", words::LOSS)?.loss(),
        "route" => of("route", words::ROUTE)?.route(),
        "lock" => of("lock", words::LOCK)?.lock(),
        "flush" => of("flush", words::FLUSH)?.flush(),
        "delete-rule" => of("delete-rule", words::DELETE_RULE)?.delete_rule(),
        _ => of("run", words::RUN)?.run(),
    }
}

/// A fault that is being read.
struct Reading<'a> {
    fields: Fields<'a>,
    world: &'a World<'a>,
}

impl Reading<'_> {
    /// The step of a fault that lasts.
    fn lasting(&self, fault: Option<Fault>) -> Option<Step> {
        let length = self.fields.maybe("for", |node| {
            duration(self.fields.gathered, node, "for", STEP)
        });
        Some(Step::Fault {
            fault: fault?,
            duration: length?,
        })
    }

    fn slow(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let agent = self.agent_name();
        let commands: Vec<_> = words::COMMANDS.iter().map(|name| (*name, *name)).collect();
        let command = self.fields.need("command", |node| {
            let command = word(gathered, node, "command", &commands)?;
            if command == words::TAKING_CHANGES && !self.has_the_point(agent) {
                let message = "taking-changes is a point in kube-proxy's model, and nowhere else";
                note(gathered, &node.place, message, None);
            }
            Some(command)
        });
        let by = self
            .fields
            .need("by", |node| duration(gathered, node, "by", STEP));
        let slow = || {
            Some(Fault::Slow {
                agent: agent?,
                command: command?.to_owned(),
                by: by?,
            })
        };
        self.lasting(slow())
    }

    /// Whether the agent is the model in which changes are taken over in two steps.
    fn has_the_point(&self, agent: Option<AgentName>) -> bool {
        let modelled = |cluster: &ClusterSpec| {
            let kube_proxy = cluster.kube_proxy.as_ref();
            kube_proxy.is_none_or(|spec| spec.source == AgentSource::Model)
        };
        agent.is_none_or(|agent| agent == AgentName::KubeProxy)
            && self.world.cluster.is_none_or(modelled)
    }

    fn agent(&self, what: AgentFault) -> Option<Step> {
        let (agent, node) = (self.agent_name(), self.node());
        let fault = || {
            Some(Fault::Agent {
                agent: agent?,
                node: node?,
                what,
            })
        };
        self.lasting(fault())
    }

    /// An agent that the cluster has.
    fn agent_name(&self) -> Option<AgentName> {
        let gathered = self.fields.gathered;
        let agents = AgentName::ALL.map(|agent| (agent.as_str(), agent));
        self.fields.need("agent", |node| {
            let agent = word(gathered, node, "agent", &agents)?;
            let absent = |cluster: &ClusterSpec| cluster.version(agent).is_none();
            if self.world.cluster.is_some_and(absent) {
                let message = format!("the cluster has no {agent}");
                note(gathered, &node.place, message, None);
            }
            Some(agent)
        })
    }

    /// `node:`; the inner `None` is every node.
    #[expect(
        clippy::option_option,
        reason = "every node and a mistake are different"
    )]
    fn node(&self) -> Option<Option<NodeName>> {
        let gathered = self.fields.gathered;
        self.fields.maybe("node", |node| {
            let name = text(gathered, node, "node")?;
            cluster_node(gathered, node, self.world, name)
        })
    }

    fn place(&self, node: &Node) -> Option<Origin> {
        place(
            self.fields.gathered,
            node,
            self.world,
            "nothing can happen at",
        )
    }

    fn sysctl(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.maybe("at", |node| self.place(node));
        let set = self.fields.need("set", |node| settings(gathered, node));
        let fault = || Some(Fault::Sysctl { at: at?, set: set? });
        self.lasting(fault())
    }

    fn fill(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let node = self.node();
        let entries = self.fields.need("entries", |node| match node.text() {
            Some("full") => Some(Entries::Full),
            _ => number(gathered, node, "entries", ENTRIES).map(Entries::Number),
        });
        let fault = || {
            Some(Fault::FillConntrack {
                node: node?,
                entries: entries?,
            })
        };
        self.lasting(fault())
    }

    fn link_down(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.need("at", |node| self.place(node));
        let interface = self.fields.or("interface", "eth0".to_owned(), |node| {
            interface(gathered, node)
        });
        let fault = || {
            Some(Fault::LinkDown {
                at: at?,
                interface: interface?,
            })
        };
        self.lasting(fault())
    }

    fn loss(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.need("at", |node| self.place(node));
        let share = self.fields.need("share", |node| {
            let share = percent(gathered, node, "share")?;
            if share == 0.0 {
                note(gathered, &node.place, "that loses nothing", None);
            }
            Some(share)
        });
        let fault = || {
            Some(Fault::Loss {
                at: at?,
                share: share?,
            })
        };
        self.lasting(fault())
    }

    fn craft(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let traffic = self.fields.need("traffic", |node| {
            let known = self.traffic(node)?;
            if known.1.protocol == Protocol::Udp {
                let message = "segments are TCP's, and this traffic goes over UDP";
                let hint = "craft into traffic with `protocol: tcp`".to_owned();
                note(gathered, &node.place, message, Some(hint));
            }
            Some(known)
        });
        let segment = self.fields.need("segment", |node| {
            let segments = Segment::ALL.map(|segment| (segment.as_str(), segment));
            word(gathered, node, "segment", &segments)
        });
        let from = self.fields.maybe("from", |node| {
            let from = self.place(node)?;
            if segment == Some(Segment::StrayHandshake) && !matches!(from, Origin::Node(_)) {
                let message =
                    "a stray handshake is sent by a node: its SYN has the client's address";
                note(gathered, &node.place, message, Some("as node/n1".into()));
            }
            Some(from)
        });
        let every = self.fields.or("every", CRAFT, |node| {
            duration(gathered, node, "every", STEP)
        });
        let fault = || {
            let (name, traffic) = traffic?;
            Some(Fault::Craft(Craft {
                traffic: name,
                to: traffic.to.clone(),
                port: traffic.port,
                segment: segment?,
                from: from?,
                every: every?,
            }))
        };
        self.lasting(fault())
    }

    /// A traffic of the scenario.
    fn traffic(&self, node: &Node) -> Option<(TrafficName, &Traffic)> {
        let gathered = self.fields.gathered;
        let written = text(gathered, node, "traffic")?;
        let known = self.world.traffic?;
        let found = known.get_key_value(&TrafficName::from(written));
        if found.is_none() {
            let hint = suggest(written, known.keys().map(TrafficName::as_str));
            let message = format!("unknown traffic {written:?}");
            note(gathered, &node.place, message, hint);
        }
        found.map(|(name, traffic)| (name.clone(), traffic))
    }

    fn route(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.need("at", |node| self.place(node));
        let to = self.fields.need("to", |node| destination(gathered, node));
        let via = self.fields.maybe("via", |node| {
            let written = text(gathered, node, "via")?;
            let address: Option<IpAddr> = written.parse().ok();
            if address.is_none() {
                let message = format!("via is an address, not {written:?}");
                note(gathered, &node.place, message, None);
            }
            address
        });
        let dev = self.fields.maybe("dev", |node| interface(gathered, node));
        if via == Some(None) && dev == Some(None) {
            let message = "a route needs \"via\", \"dev\" or both";
            note(gathered, &self.fields.key("to"), message, None);
            return None;
        }
        let fault = || {
            Some(Fault::Route {
                at: at?,
                to: to?,
                via: via?,
                dev: dev?,
            })
        };
        self.lasting(fault())
    }

    fn lock(&self) -> Option<Step> {
        let node = self.node();
        self.lasting(node.map(|node| Fault::Lock { node }))
    }

    fn flush(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let (node, rules) = (self.node(), self.table());
        let chain = self.fields.maybe("chain", |node| {
            text(gathered, node, "chain").map(str::to_owned)
        });
        self.lasting(Some(Fault::Flush {
            node: node?,
            rules: rules?,
            chain: chain?,
        }))
    }

    fn delete_rule(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let (node, rules) = (self.node(), self.table());
        let chain = self
            .fields
            .need("chain", |node| text(gathered, node, "chain"));
        let matches = self
            .fields
            .need("matches", |node| regex(gathered, node, "matches"));
        self.lasting(Some(Fault::DeleteRule {
            node: node?,
            rules: rules?,
            chain: chain?.to_owned(),
            matches: matches?,
        }))
    }

    /// `backend:`, `family:` and `table:`.
    fn table(&self) -> Option<TableRef> {
        let gathered = self.fields.gathered;
        let backends = [
            ("legacy", RuleBackend::Legacy),
            ("nft", RuleBackend::Nft),
            ("nftables", RuleBackend::Nftables),
        ];
        let backend = self
            .fields
            .maybe("backend", |node| word(gathered, node, "backend", &backends));
        let families = [Family::Ip, Family::Ip6, Family::Inet];
        let families = words::RULE_FAMILIES.iter().copied().zip(families);
        let families: Vec<_> = families.collect();
        let family = self.fields.or("family", Family::Ip, |node| {
            word(gathered, node, "family", &families)
        });
        let native = backend == Some(Some(RuleBackend::Nftables));
        let table = self.fields.need("table", |node| {
            let known: Vec<_> = words::TABLES.iter().map(|name| (*name, *name)).collect();
            if native {
                text(gathered, node, "table")
            } else {
                word(gathered, node, "table", &known)
            }
        });
        if family == Some(Family::Inet) && !native {
            let message = "iptables has no table for both families";
            let hint = "write `backend: nftables`".to_owned();
            note(gathered, &self.fields.key("family"), message, Some(hint));
        }
        Some(TableRef {
            backend: backend?,
            family: family?,
            table: table?.to_owned(),
        })
    }

    fn run(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.maybe("at", |node| self.place(node));
        let who = self
            .fields
            .or("as", SOMEBODY, |node| name(gathered, node, "as"));
        let argv = self.fields.need("command", |node| {
            let argv = if let Value::Seq(_) = &node.value {
                texts(gathered, node, "command")?
            } else {
                let script = text(gathered, node, "command")?.to_owned();
                vec!["sh".to_owned(), "-c".to_owned(), script]
            };
            if argv.is_empty() {
                note(gathered, &node.place, "the command is empty", None);
            }
            Some(argv)
        });
        let fault = || {
            Some(Fault::Run(Run {
                at: at?,
                who: who?.to_owned(),
                argv: argv?,
            }))
        };
        self.lasting(fault())
    }
}

/// Kernel settings that a network namespace has of its own. Others are the whole machine's.
fn settings(gathered: &Gathered, node: &Node) -> Option<IndexMap<String, String>> {
    let mut set = IndexMap::new();
    for (name, entry) in entries(gathered, node, "set")? {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
        if !name.starts_with("net.") || !name.bytes().all(allowed) || name.contains("..") {
            let message = format!("{name:?} is no setting of a network namespace");
            let hint = "they begin with net., as net.ipv4.ip_forward".to_owned();
            note(gathered, &entry.key, message, Some(hint));
        }
        let value = text(gathered, &entry.node, "a setting's value")?;
        set.insert(name.clone(), value.to_owned());
    }
    if set.is_empty() {
        note(gathered, &node.place, "nothing is set", None);
    }
    Some(set)
}

/// As the kernel takes it, which has 15 letters for it.
fn interface(gathered: &Gathered, node: &Node) -> Option<String> {
    let name = text(gathered, node, "an interface")?;
    let odd = |c: char| c.is_whitespace() || c == '/' || c == ':';
    if name.is_empty() || name.len() > 15 || name.contains(odd) {
        let message = format!("no interface can be called {name:?}");
        note(gathered, &node.place, message, None);
    }
    Some(name.to_owned())
}

/// `default`, an address or a CIDR.
fn destination(gathered: &Gathered, node: &Node) -> Option<String> {
    let written = text(gathered, node, "to")?;
    let (address, length) = written.split_once('/').unwrap_or((written, "0"));
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => Some(32),
        Ok(IpAddr::V6(_)) => Some(128),
        Err(_) => None,
    };
    let fits = |most: u8| length.parse::<u8>().is_ok_and(|length| length <= most);
    if written != "default" && !most.is_some_and(fits) {
        let message = format!("no route goes to {written:?}");
        let hint = "write default, an address or a CIDR, as 10.20.0.0/16".to_owned();
        note(gathered, &node.place, message, Some(hint));
    }
    Some(written.to_owned())
}
