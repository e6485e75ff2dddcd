//! The drop census: how many packets ended in each rule that drops or rejects, and in conntrack itself, on every
//! node, while the case was judged. A rule that is rewritten begins at nothing, so counters are read from time to time,
//! and a sum says *at least*. Best effort: what cannot be read is said as a fact and fails no case.

use std::time::Duration;

use chainbreak_model::{
    case::{Case, IpFamily, IptablesVariant},
    event::{Dropped, DropsSeen, EventKind},
    names::NodeName,
};
use chainbreak_netfilter::{NetfilterError, RuleCounters, Ruleset, Tally, conntrack, nft::listing};
use futures::future::join_all;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    cluster::{Cluster, Command, Place},
    infra_error::InfraError,
    log::EventLog,
    output::output,
    tables,
};

/// Distance of two looks.
const LOOK: Duration = Duration::from_secs(3);
/// How long the last look may take; a machine that is busier than that has no last look.
const LAST: Duration = Duration::from_secs(2);
/// Tables of iptables-nft, which the `nft` tool lists as well.
const SHARED: [&str; 5] = ["filter", "mangle", "nat", "raw", "security"];

/// The census of a case.
pub(crate) struct Census<'a> {
    cluster: &'a dyn Cluster,
    nodes: Vec<Node>,
}

struct Node {
    name: NodeName,
    sources: Vec<Source>,
}

/// Something that lists rules with their counters.
struct Source {
    front: &'static str,
    argv: Vec<String>,
    /// What is asked once something was there.
    when_there: Option<Vec<String>>,
    tally: Tally,
    /// Whether it lists a rule that drops; `None` before the first look.
    drops: Option<bool>,
    failed: bool,
}

impl<'a> Census<'a> {
    /// A census that has not looked yet.
    pub(crate) fn new(cluster: &'a dyn Cluster, nodes: Vec<NodeName>, case: &Case) -> Self {
        let node = |name| Node {
            name,
            sources: sources(case),
        };
        Self {
            cluster,
            nodes: nodes.into_iter().map(node).collect(),
        }
    }

    /// Looks again and again, until dropped. Counting begins at the first look.
    pub(crate) async fn watch(&mut self, log: &EventLog) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look(log, |source| source.drops != Some(false)).await;
        }
    }

    /// The last look.
    pub(crate) async fn end(&mut self, log: &EventLog) {
        let looked = tokio::time::timeout(LAST, self.look(log, |_| true)).await;
        if looked.is_err() {
            log.append(EventKind::Fact {
                name: "drop census".to_owned(),
                value: format!("the last look was not over in {LAST:?}"),
            });
        }
    }

    async fn look(&mut self, log: &EventLog, wanted: impl Fn(&Source) -> bool) {
        let (cluster, wanted) = (self.cluster, &wanted);
        join_all(self.nodes.iter_mut().map(|node| async move {
            let place = Place::Node(node.name.clone());
            let sources = node.sources.iter_mut();
            for source in sources.filter(|source| !source.failed && wanted(source)) {
                match source.read(cluster, &place).await {
                    Ok(counted) => source.tell(counted, &node.name, log),
                    Err(trouble) => source.give_up(&trouble, log),
                }
            }
        }))
        .await;
    }
}

impl Source {
    fn new(front: &'static str, command: &str) -> Self {
        Self::of(front, words(command))
    }

    /// A table of the node's own iptables backend. Asking iptables-nft makes none.
    fn own(front: &'static str, variant: IptablesVariant, table: &str) -> Self {
        let program = format!("{front}-save");
        let save = tables::save(&program, table);
        match variant {
            IptablesVariant::Legacy => Self {
                when_there: Some(save),
                ..Self::of(front, tables::save_if_there(&program, table))
            },
            IptablesVariant::Nft => Self::of(front, save),
        }
    }

    /// Tables that only the nft tool knows. To list iptables-nft's rules with it takes several times what it takes to see
    /// that there are no others.
    fn nft() -> Self {
        Self {
            when_there: Some(words("nft list ruleset")),
            ..Self::of("nft", words("nft list tables"))
        }
    }

    fn of(front: &'static str, argv: Vec<String>) -> Self {
        Self {
            front,
            argv,
            when_there: None,
            tally: Tally::default(),
            drops: None,
            failed: false,
        }
    }

    async fn read(
        &mut self,
        cluster: &dyn Cluster,
        place: &Place,
    ) -> Result<RuleCounters, InfraError> {
        let mut text = output(cluster, place, &Command::Argv(self.argv.clone())).await?;
        let is_there = match self.front {
            "nft" => text.lines().any(is_of_nft),
            _ => !text.is_empty(),
        };
        if let Some(argv) = self.when_there.take_if(|_| is_there) {
            self.argv = argv;
            if self.front == "nft" {
                text = output(cluster, place, &Command::Argv(self.argv.clone())).await?;
            }
        }
        let counted = match self.front {
            "nft" if self.when_there.is_some() => Ok(RuleCounters::new()),
            "nft" => tables(&text),
            "conntrack" => Ok(conntrack::dropping(&text)),
            _ => Ruleset::parse(&text).map(|rules| rules.dropping()),
        };
        counted.map_err(|error| InfraError::new(format!("read the rules of {place}"), error))
    }

    fn tell(&mut self, counted: RuleCounters, node: &NodeName, log: &EventLog) {
        self.drops = Some(!counted.is_empty());
        let grown = self.tally.see(counted).into_iter();
        let grown = grown.map(|(site, counters)| Dropped {
            owner: site.owner().to_string(),
            table: site.table,
            chain: site.chain,
            rule: site.rule,
            packets: counters.packets,
            bytes: counters.bytes,
        });
        let grown: Vec<Dropped> = grown.collect();
        if !grown.is_empty() {
            log.append(EventKind::Drops(DropsSeen {
                node: node.clone(),
                front: self.front.to_owned(),
                grown,
            }));
        }
    }

    /// A second iptables backend that is not installed, or that an ordinary user may not ask, counts nothing.
    fn give_up(&mut self, trouble: &InfraError, log: &EventLog) {
        self.failed = true;
        log.append(EventKind::Fact {
            name: "drop census".to_owned(),
            value: format!("without {}: {trouble}", self.front),
        });
    }
}

/// What lists the rules of a node: its own iptables backend, table by table, since an ordinary user's legacy does
/// not know which there are; then the other iptables backend and nft, for what somebody else wrote there. Asked
/// without a table, neither makes one. Last conntrack, which drops without a rule.
fn sources(case: &Case) -> Vec<Source> {
    let variant = case.cluster.iptables;
    let mut sources = vec![Source::own("iptables", variant, "filter")];
    let drops = case
        .cluster
        .agents()
        .flat_map(|agent| agent.kind().drops_in);
    sources.extend(drops.map(|table| Source::own("iptables", variant, table)));
    if case.cluster.ip_families.contains(&IpFamily::V6) {
        sources.push(Source::own("ip6tables", variant, "filter"));
    }
    sources.push(match variant {
        IptablesVariant::Legacy => Source::new("iptables-nft", "iptables-nft-save -c"),
        IptablesVariant::Nft => Source::new("iptables-legacy", "iptables-legacy-save -c"),
    });
    sources.push(Source::nft());
    sources.push(Source::new("conntrack", "conntrack -S"));
    sources
}

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

/// The tables that only the nft tool knows.
fn tables(text: &str) -> Result<RuleCounters, NetfilterError> {
    let mut counted = RuleCounters::new();
    for table in listing(text)? {
        if !is_shared(&table.family, &table.name) {
            counted.extend(table.dropping());
        }
    }
    Ok(counted)
}

/// Whether this line of `nft list tables`, `table ip kube-proxy`, is not one of iptables-nft's.
fn is_of_nft(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    matches!(words[..], ["table", family, name] if !is_shared(family, name))
}

fn is_shared(family: &str, name: &str) -> bool {
    ["ip", "ip6"].contains(&family) && SHARED.contains(&name)
}
