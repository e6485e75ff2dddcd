//! A node that begins anew.

use chainbreak_model::{
    case::REBOOT,
    names::{AgentName, NodeName},
};

use super::{Injection, agent::to_run};
use crate::{
    cluster::{Place, Signal, SignalError, agent_control},
    fnv::fnv64,
    infra_error::InfraError,
};

/// What is left of the tables of either iptables: their own chains.
const EMPTY: &str = "\
*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
";

/// Not every node has what makes such tables and sets.
const TABLES: [&str; 3] = ["sh", "-c", "! command -v nft >/dev/null || nft list tables"];
const NO_SETS: [&str; 3] = ["sh", "-c", "! command -v ipset >/dev/null || ipset destroy"];

impl Injection<'_> {
    /// Ends the agents of a node, or of every one, and what its kernel holds; undone, those begin again that are named, in that order, or all in one
    /// that is drawn.
    pub(super) async fn reboot(
        &mut self,
        node: Option<&NodeName>,
        begin: &[AgentName],
    ) -> Result<(), InfraError> {
        for node in self.nodes(node) {
            let text = format!("reboot {node}");
            let doing = text.clone();
            let failed = |error| InfraError::new(doing.clone(), error);
            let lacks = || failed(SignalError("the backend cannot".to_owned()));
            let reboots = self.cluster.reboots().ok_or_else(lacks)?;
            let control = agent_control(self.cluster).map_err(failed)?;
            let there = self.there(&node);
            let order = match begin {
                [] => drawn(self.seed, &node, &there),
                named => named.to_vec(),
            };
            // What is noted last is undone first.
            let again = order.iter().rev();
            self.undo
                .extend(again.map(|agent| to_run("start", *agent, &node)));
            for agent in there {
                let ended = control.signal(agent, &node, Signal::Stop).await;
                ended.map_err(failed)?;
            }
            let at = Place::Node(node.clone());
            self.lose_rules(&at).await?;
            reboots.forget_programs(&node).await.map_err(failed)?;
            // Last: what passes until then is learnt.
            self.run_as(REBOOT, &at, &["conntrack", "-F"], "").await?;
            reboots.begin(&node).await.map_err(failed)?;
            self.say(text);
        }
        Ok(())
    }

    /// The agents that a node has.
    fn there(&self, node: &NodeName) -> Vec<AgentName> {
        let all = AgentName::ALL.into_iter();
        let there = all.filter(|agent| self.versions.get(*agent, node).is_some());
        there.collect()
    }

    /// Deletes the rules of the node's iptables, nft's tables, and sets.
    async fn lose_rules(&self, at: &Place) -> Result<(), InfraError> {
        let programs = ["iptables-restore", "ip6tables-restore"];
        for program in &programs[..=usize::from(self.has_v6(at).await)] {
            let argv = [program, "-w", "10"];
            self.run_as(REBOOT, at, &argv, EMPTY).await?;
        }
        let deletions = deletions(&self.run(at, &TABLES).await?);
        if !deletions.is_empty() {
            let argv = ["nft", "-f", "-"];
            self.run_as(REBOOT, at, &argv, &deletions).await?;
        }
        self.run_as(REBOOT, at, &NO_SETS, "").await?;
        Ok(())
    }
}

/// The agents of a node in the order in which they begin.
fn drawn(seed: u64, node: &NodeName, agents: &[AgentName]) -> Vec<AgentName> {
    let mut order = agents.to_vec();
    order.sort_by_key(|agent| fnv64(format!("{seed} {node} {agent}").as_bytes()));
    order
}

/// What deletes what `nft list tables` says: `table ip kube-proxy`.
fn deletions(tables: &str) -> String {
    let tables = tables.lines().filter(|line| line.starts_with("table "));
    let deletions = tables.map(|table| format!("delete {table}\n"));
    deletions.collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chainbreak_model::case::{Fault, Versions};

    use super::{
        super::{Faults, tests::said},
        *,
    };
    use crate::{
        fake::{Commands, Fake},
        log::EventLog,
    };

    const BOTH: [AgentName; 2] = [AgentName::KubeProxy, AgentName::Felix];

    async fn rebooted(begin: &[AgentName]) -> (Vec<String>, Vec<String>, Vec<String>) {
        let tables = "echo table ip nat; echo table inet other";
        let commands = Commands::Shell(tables.to_owned(), Duration::ZERO);
        let fake = Fake {
            commands,
            ..Fake::default()
        };
        let (fake, cluster) = fake.cluster();
        let (log, mut events) = EventLog::new();
        let mut versions = Versions::default();
        for agent in BOTH {
            versions.set(agent, &"n1".into(), "1");
        }
        let mut faults = Faults::new(&cluster, 0, &log).with(versions);
        let reboot = Fault::Reboot {
            node: None,
            begin: begin.to_vec(),
        };
        faults.inject(&reboot, None).await.unwrap();
        faults.heal_all().await;
        (fake.signals(), fake.asked(), said(&mut events))
    }

    #[tokio::test]
    async fn all_agents_of_a_node_end_and_those_that_are_named_begin_in_their_order() {
        for begin in [
            &BOTH[..],
            &[AgentName::Felix, AgentName::KubeProxy],
            &[AgentName::Felix],
        ] {
            let (signals, asked, said) = rebooted(begin).await;
            let ended = [
                "Stop kube-proxy",
                "Stop felix",
                "forget programs on n1",
                "n1 begins",
            ];
            let ended = ended.map(str::to_owned).to_vec();
            let again = begin.iter().map(|agent| format!("Run {agent}"));
            assert_eq!(signals, ended.into_iter().chain(again).collect::<Vec<_>>());
            let begun = begin.iter().map(|agent| format!("start {agent} on n1"));
            let told = [String::from("reboot n1")].into_iter().chain(begun);
            assert_eq!(said, told.collect::<Vec<_>>());
            // The fake has no IPv6.
            let words = ["cat", "iptables-restore", "sh", "nft", "sh", "conntrack"];
            let firsts = asked.iter().filter_map(|it| it.split(' ').next());
            assert_eq!(firsts.collect::<Vec<_>>(), words);
        }
    }

    #[tokio::test]
    async fn where_no_order_is_said_all_begin() {
        let (mut signals, ..) = rebooted(&[]).await;
        let mut again = signals.split_off(4);
        again.sort();
        assert_eq!(again, ["Run felix", "Run kube-proxy"]);
    }

    #[test]
    fn an_order_that_nobody_says_is_drawn_the_same_each_time_and_not_the_same_for_all() {
        let of = |seed, node: &str| drawn(seed, &node.into(), &BOTH);
        assert_eq!(of(7, "n1"), of(7, "n1"));
        let first = (0..16).map(|seed| of(seed, "n1")[0]);
        let felix = first.filter(|agent| *agent == AgentName::Felix).count();
        assert!((1..16).contains(&felix), "{felix}");
    }

    #[test]
    fn every_table_that_is_listed_is_deleted() {
        let listed = "table ip nat\ntable inet other\n# a remark\n";
        assert_eq!(
            deletions(listed),
            "delete table ip nat\ndelete table inet other\n"
        );
    }
}
