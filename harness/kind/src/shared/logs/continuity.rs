//! Whether a log that is read from one container of an agent to the next has gaps.

use std::time::Instant;

use chainbreak_engine::logbook::Writer;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// One life of an agent's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    /// Of its pod.
    uid: Option<String>,
    /// How many there were before it in the pod.
    restarts: i32,
}

impl Container {
    /// The container of that name; `None` while the pod has none that was started.
    pub(super) fn of(pod: &Pod, name: &str) -> Option<Self> {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        let status = statuses.iter().find(|status| status.name == name)?;
        status.container_id.as_ref()?;
        Some(Self {
            uid: pod.uid(),
            restarts: status.restart_count,
        })
    }

    #[cfg(test)]
    pub(super) fn numbered(uid: &str, restarts: i32) -> Self {
        Self {
            uid: Some(uid.to_owned()),
            restarts,
        }
    }

    /// Whether there can have been no other between them.
    fn follows(&self, last: &Self) -> bool {
        if self.uid == last.uid {
            self.restarts <= last.restarts + 1
        } else {
            self.restarts == 0
        }
    }
}

/// What has been read of a log so far.
#[derive(Debug)]
pub(super) struct Continuity {
    /// What was written before that has been read.
    read: Instant,
    last: Option<Container>,
    /// Whether the last one's log is being read.
    open: bool,
    /// Whether the last one's log, or that of those before the first, was not read to its end.
    torn: bool,
    /// Whether the logbook says that entries may be missing.
    broken: bool,
}

impl Continuity {
    /// Nothing that was written before that is wanted.
    pub(super) fn new(begun: Instant) -> Self {
        Self {
            read: begun,
            last: None,
            open: false,
            torn: false,
            broken: false,
        }
    }

    /// The log of a container is read from where the last reading ended.
    pub(super) fn opened(&mut self, container: Container, writer: &Writer) {
        let complete = match &self.last {
            Some(last) if *last == container => true,
            Some(last) => !self.torn && container.follows(last),
            None => !self.torn,
        };
        if !complete {
            self.fail("a container of it came and went unread".to_owned(), writer);
        }
        self.resume(complete, writer);
        self.last = Some(container);
        self.open = true;
        self.torn = false;
    }

    /// No container runs, so that nothing is written.
    pub(super) fn absent(&mut self, writer: &Writer) {
        self.resume(!self.torn, writer);
        self.torn = false;
    }

    /// What was written before that has been read.
    pub(super) fn read_until(&mut self, until: Instant, writer: &Writer) {
        self.read = self.read.max(until);
        writer.read_until(self.read);
    }

    /// Reading ended: with the container, or for that reason. Of what could not be opened at all nothing is lost yet, unless it may be the
    /// first: nobody knows what was before it.
    pub(super) fn ended(&mut self, read: Result<(), String>, writer: &Writer) {
        let open = std::mem::take(&mut self.open);
        if let Err(why) = read {
            self.torn |= open || self.last.is_none();
            self.fail(why, writer);
        }
    }

    fn fail(&mut self, why: String, writer: &Writer) {
        if !self.broken {
            writer.broken(self.read, why);
            self.broken = true;
        }
    }

    fn resume(&mut self, complete: bool, writer: &Writer) {
        if self.broken {
            writer.resumed(complete);
            self.broken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_engine::logbook::{LogItem, Logbook};
    use chainbreak_model::names::{AgentName, NodeName};
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn container(uid: &str, restarts: i32) -> Container {
        Container::numbered(uid, restarts)
    }

    /// What the logbook says after these.
    fn told(happened: impl FnOnce(&mut Continuity, &Writer)) -> Vec<String> {
        let (logbook, node) = (Logbook::default(), NodeName::from("n1"));
        let writer = logbook.writer(AgentName::KubeProxy, &node);
        happened(&mut Continuity::new(Instant::now()), &writer);
        let mut items = logbook.read(AgentName::KubeProxy, &node);
        let item = || items.next().now_or_never()??.ok();
        let text = |item| match item {
            LogItem::Entry(text) => text,
            LogItem::Broken { why, .. } => format!("broken: {why}"),
            LogItem::Resumed { complete: true } => "resumed".to_owned(),
            LogItem::Resumed { complete: false } => "resumed with a gap".to_owned(),
        };
        std::iter::from_fn(item).map(text).collect()
    }

    #[test]
    fn a_log_that_is_read_from_container_to_container_has_no_gap() {
        let told = told(|log, writer| {
            log.absent(writer);
            for container in [container("a", 0), container("a", 1), container("b", 0)] {
                log.opened(container, writer);
                log.ended(Ok(()), writer);
                log.absent(writer);
            }
        });
        assert!(told.is_empty(), "{told:?}");
    }

    #[test]
    fn what_is_opened_again_in_the_same_container_lacks_nothing() {
        let told = told(|log, writer| {
            log.opened(container("a", 0), writer);
            log.ended(Err("reset by peer".to_owned()), writer);
            log.ended(Err("connection refused".to_owned()), writer);
            log.opened(container("a", 0), writer);
        });
        assert_eq!(told, ["broken: reset by peer", "resumed"]);
    }

    #[test]
    fn the_rest_of_a_container_that_is_gone_is_missing_and_so_is_one_that_nobody_read() {
        let torn = told(|log, writer| {
            log.opened(container("a", 0), writer);
            log.ended(Err("reset by peer".to_owned()), writer);
            log.opened(container("b", 0), writer);
        });
        assert_eq!(torn, ["broken: reset by peer", "resumed with a gap"]);
        for unread in [container("a", 2), container("b", 1)] {
            let told = told(|log, writer| {
                log.opened(container("a", 0), writer);
                log.ended(Ok(()), writer);
                log.opened(unread, writer);
            });
            let lost = "broken: a container of it came and went unread";
            assert_eq!(told, [lost, "resumed with a gap"]);
        }
    }

    #[test]
    fn before_the_first_one_that_could_be_opened_there_may_have_been_others() {
        let told = told(|log, writer| {
            log.ended(Err("connection refused".to_owned()), writer);
            log.opened(container("a", 0), writer);
        });
        assert_eq!(told, ["broken: connection refused", "resumed with a gap"]);
    }

    #[test]
    fn one_that_was_opened_late_lacks_nothing_after_one_that_was_read_to_its_end() {
        let told = told(|log, writer| {
            log.opened(container("a", 0), writer);
            log.ended(Ok(()), writer);
            log.ended(Err("it is not there yet".to_owned()), writer);
            log.opened(container("a", 1), writer);
        });
        assert_eq!(told, ["broken: it is not there yet", "resumed"]);
    }

    #[test]
    fn what_is_torn_and_gone_is_missing_once() {
        let told = told(|log, writer| {
            log.opened(container("a", 0), writer);
            log.ended(Err("reset by peer".to_owned()), writer);
            log.absent(writer);
            log.opened(container("b", 0), writer);
        });
        assert_eq!(told, ["broken: reset by peer", "resumed with a gap"]);
    }
}
