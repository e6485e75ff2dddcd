//! When an agent has begun its work in one of its lives, by what it logs: only then it has taken in what it was started for.

use std::time::Instant;

use chainbreak_model::names::{AgentName, NodeName};
use futures::{FutureExt, StreamExt};
use regex::Regex;
use tokio::task::unconstrained;

use crate::{
    cluster::{Cluster, SignalError},
    logbook::AgentLog,
};

/// An agent's log from now on, in which its first sync is to be seen.
pub(crate) struct FirstSync {
    agent: AgentName,
    log: AgentLog,
}

impl FirstSync {
    /// In all of `log`: of its first life.
    pub(crate) fn ever(agent: AgentName, log: AgentLog) -> Self {
        Self { agent, log }
    }

    /// What `log` has so far is passed over, however much it is: that was another life. tokio makes a task that reads a
    /// lot wait for its turn now and then, which looks like the end of what there is.
    pub(crate) fn skip_existing(agent: AgentName, mut log: AgentLog) -> Self {
        while let Some(Some(_earlier)) = unconstrained(log.next()).now_or_never() {}
        Self { agent, log }
    }

    /// In what an agent writes from now on. Where entries come late, what was written before is waited for: it is of another life.
    pub(crate) async fn from_now(cluster: &dyn Cluster, agent: AgentName, node: &NodeName) -> Self {
        if let Some(logs) = cluster.late_logs() {
            logs.log_read(agent, node, Instant::now()).await;
        }
        Self::skip_existing(agent, cluster.agent_logs(agent, node))
    }

    /// Returns when the agent has begun. Nobody but the caller sets a deadline.
    pub(crate) async fn seen(mut self) -> Result<(), SignalError> {
        let words = Regex::new(self.agent.kind().first_sync).expect("the pattern is valid");
        while let Some(item) = self.log.next().await {
            let item = item.map_err(|died| SignalError(died.to_string()))?;
            if item.entry().is_some_and(|text| words.is_match(&text)) {
                return Ok(());
            }
        }
        Err(SignalError("its log has ended".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fake::Fake, logbook::Logbook};

    #[tokio::test]
    async fn a_long_life_before_is_passed_over_whole() {
        let (logbook, node) = (Logbook::default(), "n1".into());
        let writer = logbook.writer(AgentName::KubeProxy, &node);
        let said = "proxier.go:841] syncProxyRules took 39ms";
        // More than tokio lets a task read at once (128).
        for _ in 0..200 {
            writer.write(said.to_owned());
        }
        let log = logbook.read(AgentName::KubeProxy, &node);
        let mut seen = FirstSync::skip_existing(AgentName::KubeProxy, log)
            .seen()
            .boxed();
        assert!((&mut seen).now_or_never().is_none());
        writer.write(said.to_owned());
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn what_the_life_before_said_is_passed_over_although_it_comes_late() {
        let (fake, cluster) = Fake::default().cluster();
        let (agent, node) = (AgentName::Felix, NodeName::from("n1"));
        let writer = fake.logbook.writer(agent, &node);
        let said = "felix/int_dataplane.go 2042: Completed first update to dataplane. secs=1.1";
        writer.read_until(Instant::now());
        let mut from_now = FirstSync::from_now(cluster.as_ref(), agent, &node).boxed();
        assert!((&mut from_now).now_or_never().is_none());
        writer.write(said.to_owned());
        writer.read_until(Instant::now());
        let mut seen = from_now.await.seen().boxed();
        assert!((&mut seen).now_or_never().is_none());
        writer.write(said.to_owned());
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn an_agent_has_begun_when_its_new_life_says_so_and_not_by_what_the_old_one_said() {
        for (agent, other, said) in [
            (
                AgentName::KubeProxy,
                "\"Syncing iptables rules\"",
                r#"I1121 18:00:00.000000       1 proxier.go:783] "SyncProxyRules complete" elapsed="39ms""#,
            ),
            (
                AgentName::KubeProxy,
                "Sync failed; retrying in 30s",
                "I1121 18:00:00.000000       1 proxier.go:841] syncProxyRules took 39ms",
            ),
            (
                AgentName::Felix,
                "[INFO][62] felix/int_dataplane.go 2042: Loading kubernetes config",
                "[INFO][62] felix/int_dataplane.go 2042: Completed first update to dataplane. secs=1.1",
            ),
        ] {
            let (logbook, node) = (Logbook::default(), "n1".into());
            let writer = logbook.writer(agent, &node);
            writer.write(said.to_owned());
            let mut seen = FirstSync::skip_existing(agent, logbook.read(agent, &node))
                .seen()
                .boxed();
            writer.write(other.to_owned());
            assert!((&mut seen).now_or_never().is_none(), "{said}");
            writer.write(said.to_owned());
            seen.await.unwrap();
        }
    }
}
