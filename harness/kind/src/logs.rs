//! The logs of agents that are pods: followed through the API, from one container of an agent to the next.

mod continuity;

use std::time::Duration;

use chainbreak_engine::{
    entries::{Entries, Format},
    evidence,
    logbook::Writer,
};
use chainbreak_model::names::AgentName;
use futures::{AsyncBufReadExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::error::KindError;
use continuity::{Container, Continuity};

/// Distance of two attempts to find an agent's container.
const AGAIN: Duration = Duration::from_millis(500);
/// After so long without a line an entry is complete: klog writes one at once.
const PAUSE: Duration = Duration::from_millis(100);

/// An agent that is a DaemonSet's pod on every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DaemonPod {
    /// Of the DaemonSet and of its pods.
    pub(crate) namespace: &'static str,
    /// The DaemonSet's name, and the value of its pods' label `k8s-app`.
    pub(crate) name: &'static str,
    format: Format,
}

impl DaemonPod {
    /// Where kubeadm and Calico's manifest make them, or Calico's operator if that has made one.
    pub(crate) async fn of(client: &Client, agent: AgentName) -> Result<Self, KindError> {
        let usual = Self::by_manifest(agent);
        if agent == AgentName::KubeProxy {
            return Ok(usual);
        }
        let operators = Self::by_operator();
        let sets = Api::<DaemonSet>::namespaced(client.clone(), operators.namespace);
        let found = sets.get_opt(operators.name).await;
        let found = found.map_err(KindError::api(format!("look for daemonset {}", usual.name)))?;
        Ok(found.map_or(usual, |_there| operators))
    }

    /// As kubeadm and Calico's manifest make them.
    pub(crate) fn by_manifest(agent: AgentName) -> Self {
        let (name, format) = match agent {
            AgentName::KubeProxy => ("kube-proxy", Format::Klog),
            AgentName::Felix => ("calico-node", Format::Lines),
        };
        Self {
            namespace: "kube-system",
            name,
            format,
        }
    }

    /// calico-node as Calico's operator makes it.
    pub(crate) fn by_operator() -> Self {
        Self {
            namespace: "calico-system",
            ..Self::by_manifest(AgentName::Felix)
        }
    }

    /// What the API says of its pods that are not ready.
    pub(crate) async fn evidence(self, client: &Client) -> String {
        let mut text = evidence::of_labelled(client, self.namespace, self.name).await;
        evidence::of_events(client, self.namespace, self.name, &mut text).await;
        text
    }

    /// The agent's pod on a node, by Kubernetes' name of it; of several, one that stays.
    pub(crate) async fn on(self, client: &Client, node: &str) -> Result<Option<Pod>, KindError> {
        let params = ListParams::default()
            .labels(&format!("k8s-app={}", self.name))
            .fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::namespaced(client.clone(), self.namespace);
        let listed = pods.list(&params).await;
        let doing = format!("look for {} on {node}", self.name);
        let mut pods = listed.map_err(KindError::api(doing))?.items;
        pods.sort_by_key(|pod| pod.metadata.deletion_timestamp.is_some());
        Ok(pods.into_iter().next())
    }
}

/// Writes down what the agent logs from then on. Never ends.
pub(crate) async fn follow(
    client: Client,
    agent: AgentName,
    node: String,
    since: Timestamp,
    writer: Writer,
) {
    let mut log = Log {
        last: since,
        entries: Entries::new(DaemonPod::by_manifest(agent).format),
        writer,
        continuity: Continuity::default(),
    };
    let mut ticks = interval(AGAIN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let read = log.read(&client, agent, &node).await;
        log.continuity.ended(read, &log.writer);
    }
}

/// A log that is read in parts.
struct Log {
    /// When what was read last was written.
    last: Timestamp,
    entries: Entries,
    writer: Writer,
    continuity: Continuity,
}

impl Log {
    /// Reads until the container ends. Without one there is nothing to read.
    async fn read(&mut self, client: &Client, agent: AgentName, node: &str) -> Result<(), String> {
        let daemon = DaemonPod::of(client, agent)
            .await
            .map_err(|error| error.to_string())?;
        let found = daemon.on(client, node).await;
        let found = found.map_err(|error| error.to_string())?;
        let Some((pod, container)) = found.and_then(|pod| {
            let container = Container::of(&pod, daemon.name)?;
            Some((pod, container))
        }) else {
            self.continuity.absent(&self.writer);
            return Ok(());
        };
        let params = LogParams {
            container: Some(daemon.name.to_owned()),
            follow: true,
            since_time: Some(self.last),
            timestamps: true,
            ..LogParams::default()
        };
        let pods = Api::<Pod>::namespaced(client.clone(), daemon.namespace);
        let stream = pods.log_stream(&pod.name_any(), &params).await;
        let mut lines = stream.map_err(|error| error.to_string())?.lines();
        self.continuity.opened(container, &self.writer);
        loop {
            let line = match timeout(PAUSE, lines.try_next()).await {
                Ok(line) => line.map_err(|error| error.to_string())?,
                Err(_nothing_more) => {
                    let complete = self.entries.pause();
                    self.write(complete);
                    // Whatever comes next may take its time.
                    lines.try_next().await.map_err(|error| error.to_string())?
                }
            };
            let Some(line) = line else { break };
            self.line(&line);
        }
        let rest = self.entries.end();
        self.write(rest);
        Ok(())
    }

    /// A line begins with its time. Times that are read once more, because the log was reopened, are known.
    fn line(&mut self, line: &str) {
        let (time, text) = line.split_once(' ').unwrap_or((line, ""));
        let Ok(time) = time.parse::<Timestamp>() else {
            return;
        };
        if time > self.last {
            self.last = time;
            let complete = self.entries.line(text);
            self.write(complete);
        }
    }

    fn write(&self, entry: Option<String>) {
        if let Some(entry) = entry {
            self.writer.write(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_engine::logbook::{LogItem, Logbook};
    use chainbreak_model::names::NodeName;
    use futures::{FutureExt, StreamExt};

    use super::*;

    #[tokio::test]
    async fn what_is_read_again_is_written_once_and_what_is_older_not_at_all() {
        let (logbook, node) = (Logbook::default(), NodeName::from("n1"));
        let mut log = Log {
            last: "2026-01-01T00:00:01Z".parse().unwrap(),
            entries: Entries::new(Format::Lines),
            writer: logbook.writer(AgentName::Felix, &node),
            continuity: Continuity::default(),
        };
        for line in [
            "2026-01-01T00:00:00.5Z older than the case",
            "2026-01-01T00:00:01.5Z one",
            "2026-01-01T00:00:01.500000001Z two",
            "2026-01-01T00:00:01.5Z one",
            "unable to retrieve container logs",
            "2026-01-01T00:00:02Z three",
        ] {
            log.line(line);
        }
        let read = logbook.read(AgentName::Felix, &node).take(3);
        let read: Vec<_> = read.map(Result::unwrap).collect().await;
        let entry = |text: &str| LogItem::Entry(text.to_owned());
        assert_eq!(read, ["one", "two", "three"].map(entry));
        let more = logbook.read(AgentName::Felix, &node).skip(3).into_future();
        assert!(more.now_or_never().is_none());
    }
}
