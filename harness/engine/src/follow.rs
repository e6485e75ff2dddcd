//! An agent's log, into the history, with what of it was read without a gap. A moment of the run waits until what was written before it
//! was read.

use std::sync::Arc;

use chainbreak_model::{
    event::{EventKind, LogEntry, WatchTarget, Watched},
    names::{AgentName, NodeName},
};
use futures::{FutureExt, StreamExt};
use tokio::task::unconstrained;

use crate::{
    cluster::{AgentDied, Cluster},
    infra_error::InfraError,
    log::{Barrier, EventLog},
    logbook::{AgentLog, LogItem},
};

/// Writes down what an agent logs until dropped; returns only when the agent will not live again.
pub(crate) async fn log(
    cluster: Arc<dyn Cluster>,
    agent: AgentName,
    node: NodeName,
    log: EventLog,
) -> InfraError {
    let items = cluster.agent_logs(agent, &node);
    let follower = Follower {
        cluster,
        agent,
        node,
        since_us: log.now_us(),
        log,
        broken: None,
    };
    follower.follow(items).await
}

struct Follower {
    cluster: Arc<dyn Cluster>,
    agent: AgentName,
    node: NodeName,
    log: EventLog,
    /// Since when without a gap.
    since_us: u64,
    /// Up to when it was read and why no further, until it is read again.
    broken: Option<(u64, String)>,
}

impl Follower {
    async fn follow(mut self, mut items: AgentLog) -> InfraError {
        let mut moments = self.log.moments();
        loop {
            let done = tokio::select! {
                // What is there already when a moment is told was written before it.
                biased;
                Ok(moment) = moments.recv() => self.pass(moment, &mut items).await,
                item = items.next() => self.take(item, None),
            };
            if let Err(trouble) = done {
                return trouble;
            }
        }
    }

    /// Reads what was written before the moment, and answers. What comes until then counts as that.
    async fn pass(&mut self, moment: Barrier, items: &mut AgentLog) -> Result<(), InfraError> {
        let moment_us = self.log.at(moment.at());
        let mut read = match self.cluster.late_logs() {
            Some(logs) => logs.log_read(self.agent, &self.node, moment.at()),
            None => std::future::ready(()).boxed(),
        };
        loop {
            tokio::select! {
                // What is there is taken before anybody says that it is all, or will not come.
                biased;
                item = unconstrained(items.next()) => {
                    self.take(item, Some(moment_us.saturating_sub(1)))?;
                }
                () = std::future::ready(()), if self.broken.is_some() => break,
                () = &mut read => break,
                // It is said with the next moment.
                () = moment.gone_by() => return Ok(()),
            }
        }
        let (to_us, ended) = match &self.broken {
            None => (moment_us, None),
            Some((broken_us, why)) => (*broken_us, Some(why.clone())),
        };
        moment.answer(Some(self.watched(to_us, ended)));
        Ok(())
    }

    fn take(
        &mut self,
        item: Option<Result<LogItem, AgentDied>>,
        at_us: Option<u64>,
    ) -> Result<(), InfraError> {
        let (agent, node) = (self.agent, self.node.clone());
        let at_us = at_us.unwrap_or_else(|| self.log.now_us());
        match item {
            Some(Ok(LogItem::Entry(text))) => {
                let other = agent.kind().is_another.is_some_and(|it| text.contains(it));
                let trouble = InfraError::new(
                    format!("have {agent} on {node} as the case asks"),
                    text.clone(),
                );
                let entry = LogEntry { agent, node, text };
                self.log.append_at(at_us, EventKind::Log(entry));
                if other {
                    return Err(trouble);
                }
            }
            Some(Ok(LogItem::Broken { since, why })) => {
                let text = format!("the log of {agent} on {node} cannot be read: {why}");
                self.log.append(EventKind::Step { text });
                let broken_us = self.log.at(since).max(self.since_us);
                self.broken.get_or_insert((broken_us, why));
            }
            Some(Ok(LogItem::Resumed { complete })) => self.resume(complete),
            Some(Err(died)) => {
                return Err(InfraError::new(
                    format!("keep {agent} on {node} running"),
                    died,
                ));
            }
            None => {
                return Err(InfraError::new(
                    format!("follow the log of {agent} on {node}"),
                    "it ended",
                ));
            }
        }
        Ok(())
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
        self.log.append(EventKind::Step { text });
        if !complete {
            let watched = self.watched(broken_us, Some(why));
            self.log.append(EventKind::Watched(watched));
            self.since_us = self.log.now_us().max(broken_us + 1);
        }
    }

    fn watched(&self, to_us: u64, ended: Option<String>) -> Watched {
        Watched {
            target: self.target(),
            from_us: self.since_us,
            to_us,
            ended,
        }
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
    use std::time::{Duration, Instant};

    use chainbreak_model::{event::Phase, verdict::PromiseVerdict};
    use tokio::{task::yield_now, time::sleep_until};

    use super::*;
    use crate::{
        fake::{Fake, case, judged},
        logbook::Writer,
        observe::watching,
    };

    /// What comes of a promise about kube-proxy's log when that happens while it is judged.
    async fn verdict(promise: &str, happens: impl AsyncFnOnce(&Writer)) -> PromiseVerdict {
        verdict_with_end(promise, happens, async |_: &Writer| {}).await
    }

    /// The same when that happens while the end of the judged time is waited for.
    async fn verdict_with_end(
        promise: &str,
        happens: impl AsyncFnOnce(&Writer),
        at_the_end: impl AsyncFnOnce(&Writer),
    ) -> PromiseVerdict {
        let case = case(promise);
        let (fake, cluster) = Fake::default().cluster();
        let (events, mut history) = EventLog::new();
        events.append(watching(cluster.as_ref()));
        let node = NodeName::from("n1");
        let writer = fake.logbook.writer(AgentName::KubeProxy, &node);
        writer.write("it lives".to_owned());
        let following = log(cluster, AgentName::KubeProxy, node, events.clone());
        let run = async {
            // It follows before anything happens.
            yield_now().await;
            events.barrier(EventKind::Phase(Phase::Judging)).await;
            happens(&writer).await;
            let judged = events.barrier(EventKind::Phase(Phase::Judged));
            tokio::join!(judged, at_the_end(&writer));
        };
        tokio::select! {
            trouble = following => panic!("{trouble}"),
            () = run => {}
        }
        judged(&case, &mut history)
    }

    const SILENT: &str = "{ no-log: { agent: kube-proxy, matches: lost } }";
    const SAID: &str = "{ has-log: { agent: kube-proxy, matches: lost } }";

    async fn moment() {
        sleep_until(tokio::time::Instant::now() + Duration::from_millis(2)).await;
    }

    fn broken(log: &Writer) {
        log.broken(Instant::now(), "reset by peer".to_owned());
    }

    fn unknown(verdict: PromiseVerdict) -> String {
        match verdict {
            PromiseVerdict::Unknown { cause } => cause,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_log_that_was_read_all_the_time_was_silent() {
        let read = verdict(SILENT, async |log| log.write("anything else".to_owned())).await;
        assert!(matches!(read, PromiseVerdict::Kept(_)), "{read:?}");
        let whole = verdict(SILENT, async |log| {
            broken(log);
            moment().await;
            log.resumed(true);
        });
        let whole = whole.await;
        assert!(matches!(whole, PromiseVerdict::Kept(_)), "{whole:?}");
    }

    #[tokio::test]
    async fn a_felix_that_gives_up_its_programs_is_not_what_the_case_asks_for() {
        let (fake, cluster) = Fake::default().cluster();
        let (events, _history) = EventLog::new();
        let node = NodeName::from("n1");
        let said = "[ERROR][7] felix/daemon.go 372: BPF dataplane mode enabled but not supported by the kernel.  Disabling BPF mode.";
        let writer = fake.logbook.writer(AgentName::Felix, &node);
        let following = tokio::spawn(log(cluster, AgentName::Felix, node, events));
        writer.write("BPF dataplane mode enabled".to_owned());
        writer.write(said.to_owned());
        let trouble = following.await.expect("it does not panic").to_string();
        assert!(
            trouble.contains("as the case asks") && trouble.contains(said),
            "{trouble}"
        );
    }

    #[tokio::test]
    async fn silence_of_a_log_that_broke_says_nothing_and_what_was_found_in_it_still_does() {
        let gone = verdict(SILENT, async |log| {
            broken(log);
            moment().await;
        });
        let back = verdict(SILENT, async |log| {
            broken(log);
            moment().await;
            log.resumed(false);
        });
        for cause in [unknown(gone.await), unknown(back.await)] {
            assert!(
                cause.starts_with("log of kube-proxy on n1 not watched for")
                    && cause.ends_with(": reset by peer"),
                "{cause}"
            );
        }
        let found = verdict(SAID, async |log| {
            log.write("lost".to_owned());
            broken(log);
        });
        let found = found.await;
        assert!(matches!(found, PromiseVerdict::Kept(_)), "{found:?}");
    }

    #[tokio::test]
    async fn what_broke_was_read_up_to_its_last_good_reading() {
        let hung = verdict(SILENT, async |log| {
            let good = Instant::now();
            sleep_until(tokio::time::Instant::now() + Duration::from_millis(60)).await;
            log.broken(good, "it hung".to_owned());
            log.resumed(false);
        });
        let cause = unknown(hung.await);
        let (_, length) = cause.split_once("not watched for ").unwrap();
        let (seconds, _) = length.split_once(" s").unwrap();
        let seconds: f64 = seconds.parse().unwrap();
        assert!(seconds >= 0.06, "{cause}");
    }

    /// When a line is fetched that was written before the end.
    async fn fetched_late(promise: &str) -> PromiseVerdict {
        let read = async |log: &Writer| log.read_until(Instant::now());
        let late = async |log: &Writer| {
            moment().await;
            log.write("lost".to_owned());
            log.read_until(Instant::now());
        };
        verdict_with_end(promise, read, late).await
    }

    #[tokio::test]
    async fn what_is_fetched_while_the_end_waits_for_it_was_written_before() {
        let found = fetched_late(SAID).await;
        assert!(matches!(found, PromiseVerdict::Kept(_)), "{found:?}");
        let found = fetched_late(SILENT).await;
        assert!(matches!(found, PromiseVerdict::Broken(_)), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_is_not_read_to_the_end_in_time_was_not_watched() {
        let read = verdict(SILENT, async |log| log.read_until(Instant::now()));
        let cause = unknown(read.await);
        assert!(
            cause.starts_with("log of kube-proxy on n1 not watched"),
            "{cause}"
        );
    }
}
