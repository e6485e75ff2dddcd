//! An agent's log, into the history, with what of it was read without a gap.

use chainbreak_model::{
    event::{LogEntry, WatchTarget, What},
    names::{AgentName, NodeName},
};
use futures::StreamExt;

use crate::{
    cluster::Cluster,
    log::{Barrier, EventLog},
    logbook::{AgentLog, LogItem},
    trouble::Trouble,
};

/// Writes down what an agent logs until dropped; returns only when the agent will not live again.
pub(crate) fn log(
    cluster: &dyn Cluster,
    agent: AgentName,
    node: &NodeName,
    log: &EventLog,
) -> impl Future<Output = Trouble> + Send + use<> {
    let follower = Follower {
        agent,
        node: node.clone(),
        log: log.clone(),
        since_us: log.now_us(),
        broken: None,
    };
    follower.follow(cluster.agent_logs(agent, node))
}

struct Follower {
    agent: AgentName,
    node: NodeName,
    log: EventLog,
    /// Since when without a gap.
    since_us: u64,
    /// When and why it broke, until it is read again.
    broken: Option<(u64, String)>,
}

impl Follower {
    async fn follow(mut self, mut items: AgentLog) -> Trouble {
        let mut barriers = self.log.barriers();
        loop {
            let item = tokio::select! {
                // What is there already comes before the barrier.
                biased;
                item = items.next() => item,
                Ok(barrier) = barriers.recv() => {
                    self.answer(barrier);
                    continue;
                }
            };
            let (agent, node) = (self.agent, &self.node);
            match item {
                Some(Ok(item)) => self.take(item),
                Some(Err(died)) => {
                    return Trouble::new(format!("keep {agent} on {node} running"), died);
                }
                None => {
                    return Trouble::new(
                        format!("follow the log of {agent} on {node}"),
                        "it ended",
                    );
                }
            }
        }
    }

    fn answer(&self, barrier: Barrier) {
        let watching = match &self.broken {
            None => Some((self.target(), self.since_us)),
            Some((broken_us, why)) => {
                self.watched_until(*broken_us, why);
                None
            }
        };
        barrier.answer(watching);
    }

    fn take(&mut self, item: LogItem) {
        let (agent, node) = (self.agent, self.node.clone());
        match item {
            LogItem::Entry(text) => self.log.append(What::Log(LogEntry { agent, node, text })),
            LogItem::Broken(why) => {
                let text = format!("the log of {agent} on {node} cannot be read: {why}");
                self.log.append(What::Step { text });
                self.broken.get_or_insert((self.log.now_us(), why));
            }
            LogItem::Resumed { complete } => self.resume(complete),
        }
    }

    /// What was written meanwhile is there, or is not: then the time before is a stretch of its own.
    fn resume(&mut self, complete: bool) {
        let Some((broken_us, why)) = self.broken.take() else {
            return;
        };
        let (agent, node) = (self.agent, &self.node);
        let lost = if complete {
            "with what was written meanwhile"
        } else {
            "without what was written meanwhile"
        };
        let text = format!("the log of {agent} on {node} is read again, {lost}");
        self.log.append(What::Step { text });
        if !complete {
            self.watched_until(broken_us, &why);
            self.since_us = self.log.now_us().max(broken_us + 1);
        }
    }

    fn watched_until(&self, broken_us: u64, why: &str) {
        let why = Some(why.to_owned());
        self.log
            .watched(self.target(), self.since_us, broken_us, why);
    }

    fn target(&self) -> WatchTarget {
        WatchTarget::Log {
            agent: self.agent,
            node: self.node.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chainbreak_model::{event::Phase, verdict::PromiseVerdict};
    use tokio::{
        task::yield_now,
        time::{Instant, sleep_until},
    };

    use super::*;
    use crate::{
        fake::{Fake, case, judged},
        logbook::Writer,
    };

    /// What comes of a promise about kube-proxy's log when that happens while it is judged.
    async fn verdict(promise: &str, happens: impl AsyncFnOnce(&Writer)) -> PromiseVerdict {
        let case = case(promise);
        let (fake, cluster) = Fake::default().cluster();
        let (events, mut history) = EventLog::new();
        events.append(What::Watching {
            within_us: 1_000_000,
        });
        let node = NodeName::from("n1");
        let writer = fake.logbook.writer(AgentName::KubeProxy, &node);
        writer.write("it lives".to_owned());
        let following = log(cluster.as_ref(), AgentName::KubeProxy, &node, &events);
        let run = async {
            // It follows before anything happens.
            yield_now().await;
            events.barrier(What::Phase(Phase::Judging)).await;
            happens(&writer).await;
            events.barrier(What::Phase(Phase::Judged)).await;
        };
        tokio::select! {
            trouble = following => panic!("{trouble}"),
            () = run => {}
        }
        judged(&case, &mut history)
    }

    const SILENT: &str = "{ no-log: { agent: kube-proxy, matches: lost } }";

    async fn moment() {
        sleep_until(Instant::now() + Duration::from_millis(2)).await;
    }

    #[tokio::test]
    async fn a_log_that_was_read_all_the_time_was_silent() {
        let read = verdict(SILENT, async |log| log.write("anything else".to_owned())).await;
        assert!(matches!(read, PromiseVerdict::Kept(_)), "{read:?}");
        let whole = verdict(SILENT, async |log| {
            log.broken("reset by peer".to_owned());
            moment().await;
            log.resumed(true);
        });
        let whole = whole.await;
        assert!(matches!(whole, PromiseVerdict::Kept(_)), "{whole:?}");
    }

    #[tokio::test]
    async fn silence_of_a_log_that_broke_says_nothing_and_what_was_found_in_it_still_does() {
        let gone = verdict(SILENT, async |log| {
            log.broken("reset by peer".to_owned());
            moment().await;
        });
        let back = verdict(SILENT, async |log| {
            log.broken("reset by peer".to_owned());
            moment().await;
            log.resumed(false);
        });
        for verdict in [gone.await, back.await] {
            let PromiseVerdict::Unknown { cause } = verdict else {
                panic!("{verdict:?}")
            };
            assert!(
                cause.starts_with("log of kube-proxy on n1 not watched for")
                    && cause.ends_with(": reset by peer"),
                "{cause}"
            );
        }
        let wanted = "{ has-log: { agent: kube-proxy, matches: lost } }";
        let found = verdict(wanted, async |log| {
            log.write("lost".to_owned());
            log.broken("reset by peer".to_owned());
        });
        let found = found.await;
        assert!(matches!(found, PromiseVerdict::Kept(_)), "{found:?}");
    }
}
