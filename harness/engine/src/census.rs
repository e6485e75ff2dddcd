//! The drop census: how many packets ended in each rule that drops or rejects, and in conntrack itself, on every
//! node, while the case was judged. A rule that is rewritten begins at nothing, so counters are read from time to time,
//! and a sum says *at least*. Best effort: what cannot be read is said as a fact and fails no case.

use std::{sync::Arc, time::Duration};

use chainbreak_model::{
    case::{Case, IpFamily, IptablesVariant},
    event::{Dropped, DropsSeen, EventKind},
    names::NodeName,
};
use chainbreak_netfilter::{
    NetfilterError, RuleCounters, Ruleset, Tally, bpf_counters, conntrack, nft::listing,
};
use futures::future::join_all;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    cluster::{Command, FelixProgram, Place},
    infra_error::InfraError,
    log::EventLog,
    looks::{self, KEPT_US, Looks},
};

/// Distance of two looks.
const LOOK: Duration = Duration::from_secs(3);
/// How long the first look at Felix's programs may take, on each node.
const FIRST: Duration = Duration::from_secs(5);
/// How long the last look may take; a machine that is busier than that has no last look.
const LAST: Duration = Duration::from_secs(2);
/// Whether anything is there that only nft, or iptables-nft, lists in full.
const TABLES: looks::Source = looks::Source::All("nft list tables");
/// Felix's eBPF programs.
const BPF: &str = "eBPF";
/// Tables of iptables-nft, which the `nft` tool lists as well.
const SHARED: [&str; 5] = ["filter", "mangle", "nat", "raw", "security"];

/// The census of a case.
pub(crate) struct Census {
    looks: Arc<Looks>,
    nodes: Vec<Node>,
}

struct Node {
    name: NodeName,
    sources: Vec<Source>,
}

/// Something that lists rules with their counters.
struct Source {
    front: &'static str,
    what: looks::Source,
    /// A line of [`TABLES`] without which there is nothing to read; nothing once there was one.
    only_if: Option<fn(&str) -> bool>,
    tally: Tally,
    /// Whether it lists a rule that drops; `None` before the first look.
    drops: Option<bool>,
    failed: bool,
}

impl Census {
    /// A census that has not looked yet.
    pub(crate) fn new(
        looks: Arc<Looks>,
        nodes: Vec<NodeName>,
        case: &Case,
        felix: Option<&FelixProgram>,
    ) -> Self {
        let node = |name| Node {
            name,
            sources: sources(case, felix),
        };
        Self {
            looks,
            nodes: nodes.into_iter().map(node).collect(),
        }
    }

    /// The first look at Felix's programs, of node after node: there is time for it before anything is judged.
    pub(crate) async fn begin(&mut self, log: &EventLog) {
        for node in &mut self.nodes {
            let place = Place::Node(node.name.clone());
            let of_programs = node.sources.iter_mut().filter(|it| it.front == BPF);
            for source in of_programs {
                // Where no Felix runs, or none has programs yet, nothing is counted yet.
                let read = source.read(&self.looks, &place, log.now_us());
                if let Ok(Ok(counted)) = tokio::time::timeout(FIRST, read).await {
                    source.tell(counted, &node.name, log);
                }
            }
        }
    }

    /// Looks again and again, until dropped. Counting begins at the first look.
    pub(crate) async fn watch(&mut self, log: &EventLog) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // What an observer has just read says enough.
            let since_us = log.now_us().saturating_sub(KEPT_US);
            self.look(log, since_us, Source::is_watched).await;
        }
    }

    /// The last look.
    pub(crate) async fn end(&mut self, log: &EventLog) {
        let last = self.look(log, log.now_us(), |_| true);
        let looked = tokio::time::timeout(LAST, last).await;
        if looked.is_err() {
            log.append(EventKind::Fact {
                name: "drop census".to_owned(),
                value: format!("the last look was not over in {LAST:?}"),
            });
        }
    }

    async fn look(&mut self, log: &EventLog, since_us: u64, wanted: impl Fn(&Source) -> bool) {
        let (looks, wanted) = (&self.looks, &wanted);
        join_all(self.nodes.iter_mut().map(|node| async move {
            let place = Place::Node(node.name.clone());
            let sources = node.sources.iter_mut();
            for source in sources.filter(|source| !source.failed && wanted(source)) {
                match source.read(looks, &place, since_us).await {
                    Ok(counted) => source.tell(counted, &node.name, log),
                    Err(trouble) => source.give_up(&trouble, log),
                }
            }
        }))
        .await;
    }
}

impl Source {
    fn new(front: &'static str, what: looks::Source) -> Self {
        Self {
            front,
            what,
            only_if: None,
            tally: Tally::default(),
            drops: None,
            failed: false,
        }
    }

    /// A table of the node's own iptables backend.
    fn own(front: &'static str, program: &'static str, table: &str) -> Self {
        let table = table.to_owned();
        Self::new(front, looks::Source::Save { program, table })
    }

    /// What these words list, where nft lists such a table: to see that there is none takes a fraction of the time.
    fn all_if(front: &'static str, words: &'static str, there: fn(&str) -> bool) -> Self {
        Self {
            only_if: Some(there),
            ..Self::new(front, looks::Source::All(words))
        }
    }

    /// Whether it is looked at while the case is judged. A look at Felix's programs takes half a second of a processor: one before and one after are
    /// enough. What they counted at interfaces that are gone by then is not told.
    fn is_watched(&self) -> bool {
        self.drops != Some(false) && self.front != BPF
    }

    /// What it counts, and when that was.
    async fn read(
        &mut self,
        looks: &Looks,
        place: &Place,
        since_us: u64,
    ) -> Result<(u64, RuleCounters), InfraError> {
        if let Some(there) = self.only_if {
            // Where nft cannot tell, it is asked for and says itself what is wrong.
            if let Ok(tables) = looks.read(place, &TABLES, since_us).await
                && !tables.text.lines().any(there)
            {
                return Ok((tables.ended_us, RuleCounters::new()));
            }
            self.only_if = None;
        }
        let reading = looks.read(place, &self.what, since_us).await?;
        let counted = match self.front {
            "nft" => tables(&reading.text),
            "conntrack" => Ok(conntrack::dropping(&reading.text)),
            BPF => Ok(bpf_counters::dropping(&reading.text)),
            _ => Ruleset::parse(&reading.text).map(|rules| rules.dropping()),
        };
        let counted = counted
            .map_err(|error| InfraError::new(format!("read the rules of {place}"), error))?;
        Ok((reading.ended_us, counted))
    }

    fn tell(&mut self, (at_us, counted): (u64, RuleCounters), node: &NodeName, log: &EventLog) {
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
            let drops = DropsSeen {
                node: node.clone(),
                front: self.front.to_owned(),
                grown,
            };
            log.append_at(at_us, EventKind::Drops(drops));
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
/// without a table, neither makes one, and `nft list tables` tells both whether there is anything to list. Last
/// conntrack, which drops without a rule, and Felix's eBPF programs.
fn sources(case: &Case, felix: Option<&FelixProgram>) -> Vec<Source> {
    let mut sources = vec![Source::own("iptables", "iptables-save", "filter")];
    let drops = case
        .cluster
        .agents()
        .flat_map(|agent| agent.kind().drops_in);
    sources.extend(drops.map(|table| Source::own("iptables", "iptables-save", table)));
    if case.cluster.ip_families.contains(&IpFamily::V6) {
        sources.push(Source::own("ip6tables", "ip6tables-save", "filter"));
    }
    sources.push(match case.cluster.iptables {
        IptablesVariant::Legacy => {
            Source::all_if("iptables-nft", "iptables-nft-save -c", is_of_iptables_nft)
        }
        IptablesVariant::Nft => Source::new(
            "iptables-legacy",
            looks::Source::All("iptables-legacy-save -c"),
        ),
    });
    sources.push(Source::all_if("nft", "nft list ruleset", is_of_nft));
    sources.push(Source::new("conntrack", looks::Source::Conntrack));
    let felix = felix.filter(|_| case.wants_programs());
    sources.extend(felix.map(|felix| Source::new(BPF, looks::Source::BpfCounters(felix.clone()))));
    sources
}

/// What counts on a node, as far as there is anything to count.
pub(crate) fn commands(case: &Case, felix: Option<&FelixProgram>) -> Vec<Command> {
    let sources = sources(case, felix);
    let all = sources.iter().flat_map(|source| {
        let first = source.only_if.map(|_| TABLES.listing());
        first.into_iter().chain([source.what.listing()])
    });
    all.map(Command::Argv).collect()
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

/// Whether this line of `nft list tables`, `table ip filter`, is one that iptables-nft lists.
fn is_of_iptables_nft(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    matches!(words[..], ["table", "ip", name] if SHARED.contains(&name))
}

/// Whether this line, `table ip kube-proxy`, is not one of iptables-nft's.
fn is_of_nft(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    matches!(words[..], ["table", family, name] if !is_shared(family, name))
}

fn is_shared(family: &str, name: &str) -> bool {
    ["ip", "ip6"].contains(&family) && SHARED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Commands, Fake, case, switch_to_ebpf};

    fn census(log: &EventLog) -> (Arc<Fake>, Census) {
        let nothing = Commands::Shell("true".to_owned(), Duration::ZERO);
        let (fake, cluster) = Fake {
            commands: nothing,
            ..Fake::default()
        }
        .cluster();
        let case = case("{ has-rule: { table: nat, chain: CHAIN, absent: true, always: true } }");
        let looks = Arc::new(Looks::new(cluster, log.clone()));
        (fake, Census::new(looks, vec!["n1".into()], &case, None))
    }

    #[tokio::test]
    async fn nft_is_asked_once_whether_it_or_iptables_nft_has_anything_to_list() {
        let (log, _events) = EventLog::new();
        let (fake, mut census) = census(&log);
        census.end(&log).await;
        let mut asked = fake.asked();
        asked.retain(|words| words.starts_with("nft") || words.starts_with("iptables-nft"));
        assert_eq!(asked, ["nft list tables"]);
    }

    #[tokio::test]
    async fn felixs_programs_are_looked_at_before_and_after_what_is_judged_and_at_no_other_time() {
        let (log, mut events) = EventLog::new();
        let folder = tempfile::tempdir().unwrap();
        let counted = folder.path().join("counted");
        // Each look finds three more.
        let script = format!(
            "n=$(($(cat {0} 2>/dev/null) + 3)); echo $n > {0}; echo \"| Dropped | by policy | $n | 0 | N/A |\"; echo dumped eth0 counters.",
            counted.display()
        );
        let commands = Commands::Shell(script, Duration::ZERO);
        let (_fake, cluster) = Fake {
            commands,
            ..Fake::default()
        }
        .cluster();
        let mut case =
            case("{ has-rule: { table: nat, chain: CHAIN, absent: true, always: true } }");
        switch_to_ebpf(&mut case);
        let looks = Arc::new(Looks::new(cluster, log.clone()));
        let felix = FelixProgram::at("/calico-node".as_ref());
        let mut census = Census::new(looks, vec!["n1".into()], &case, Some(&felix));
        census.begin(&log).await;
        census.nodes[0].sources.retain(|it| it.front == BPF);
        let mut told = || {
            let events = std::iter::from_fn(|| events.try_recv().ok());
            let drops = events.filter_map(|event| match event.what {
                EventKind::Drops(seen) => Some(seen.grown),
                _ => None,
            });
            drops.flatten().collect::<Vec<Dropped>>()
        };
        let watched = tokio::time::timeout(Duration::from_millis(50), census.watch(&log)).await;
        assert!(watched.is_err() && told().is_empty());
        census.end(&log).await;
        let told = told();
        let [dropped] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert_eq!(
            (dropped.packets, dropped.chain.as_str()),
            (3, "eth0 ingress")
        );
    }

    #[tokio::test]
    async fn what_an_observer_has_just_read_is_not_read_again_for_the_census() {
        let (log, _events) = EventLog::new();
        let (fake, mut census) = census(&log);
        let own = looks::Source::Save {
            program: "iptables-save",
            table: "filter".to_owned(),
        };
        let read = census.looks.look(&Place::Node("n1".into()), &own, 0).await;
        let began_us = read.unwrap().began_us;
        let is_own = |source: &Source| source.front == "iptables";
        census.look(&log, began_us, is_own).await;
        assert_eq!(fake.asked().len(), 1);
        census.look(&log, log.now_us(), is_own).await;
        assert_eq!(fake.asked().len(), 2);
    }

    #[test]
    fn iptables_nft_lists_its_own_tables_of_ipv4_and_nft_all_others() {
        for (line, of_iptables, of_nft) in [
            ("table ip filter", true, false),
            ("table ip6 filter", false, false),
            ("table ip kube-proxy", false, true),
            ("table inet filter", false, true),
        ] {
            assert_eq!(is_of_iptables_nft(line), of_iptables, "{line}");
            assert_eq!(is_of_nft(line), of_nft, "{line}");
        }
    }
}
