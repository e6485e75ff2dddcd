//! The logs of agents that are pods: followed through the API, from one container of an agent to the next.

mod continuity;
mod reading;

use std::time::Duration;

use chainbreak_engine::{evidence, logbook::Writer};
use chainbreak_model::{agent::LogFormat, names::AgentName};
use futures::{AsyncBufReadExt, FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::error::KindError;
use continuity::Container;
use reading::{GIVE_UP, Lines, Log, Newest, unanswered};

/// Distance of two attempts to find an agent's container.
const AGAIN: Duration = Duration::from_millis(500);

/// An agent that is a DaemonSet's pod on every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DaemonPod {
    /// Of the DaemonSet and of its pods.
    pub(crate) namespace: &'static str,
    /// The DaemonSet's name, and the value of its pods' label `k8s-app`.
    pub(crate) name: &'static str,
    format: LogFormat,
}

impl DaemonPod {
    /// Where kubeadm and Calico's manifest make them, or Calico's operator if that has made one.
    pub(crate) async fn of(client: &Client, agent: AgentName) -> Result<Self, KindError> {
        let usual = Self::by_manifest(agent);
        let Some(operators) = Self::by_operator_of(agent) else {
            return Ok(usual);
        };
        let sets = Api::<DaemonSet>::namespaced(client.clone(), operators.namespace);
        let found = sets.get_opt(operators.name).await;
        let found = found.map_err(KindError::api(format!("look for daemonset {}", usual.name)))?;
        Ok(found.map_or(usual, |_there| operators))
    }

    /// As kubeadm and Calico's manifest make them.
    pub(crate) fn by_manifest(agent: AgentName) -> Self {
        Self {
            namespace: "kube-system",
            name: agent.kind().daemon_set.name,
            format: agent.kind().log_format,
        }
    }

    /// calico-node as Calico's operator makes it.
    pub(crate) fn by_operator() -> Self {
        Self::by_operator_of(AgentName::Felix).expect("Calico has an operator")
    }

    /// As the agent's operator makes it, where it has one.
    fn by_operator_of(agent: AgentName) -> Option<Self> {
        let namespace = agent.kind().daemon_set.operators_namespace?;
        Some(Self {
            namespace,
            ..Self::by_manifest(agent)
        })
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
    let mut log = Log::new(since, DaemonPod::by_manifest(agent).format, writer);
    let mut ticks = interval(AGAIN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let read = part(&mut log, &client, agent, &node).await;
        log.ended(read);
    }
}

/// Reads until the container ends. Without one there is nothing to read.
async fn part(log: &mut Log, client: &Client, agent: AgentName, node: &str) -> Result<(), String> {
    let asked = Instant::now();
    let found = timeout(GIVE_UP, Source::find(client, agent, node)).await;
    let found = found.map_err(|_elapsed| unanswered(GIVE_UP))?;
    let Some((container, source)) = found.map_err(|error| error.to_string())? else {
        log.absent(asked);
        return Ok(());
    };
    let lines = source.lines(log.since());
    log.read(container, lines, || source.newest()).await
}

/// Where the log of a container is.
#[derive(Clone)]
struct Source {
    pods: Api<Pod>,
    pod: String,
    container: &'static str,
}

impl Source {
    /// The agent's container on a node, if one was started.
    async fn find(
        client: &Client,
        agent: AgentName,
        node: &str,
    ) -> Result<Option<(Container, Self)>, KindError> {
        let daemon = DaemonPod::of(client, agent).await?;
        let pod = daemon.on(client, node).await?;
        Ok(pod.and_then(|pod| {
            let container = Container::of(&pod, daemon.name)?;
            let source = Self {
                pods: Api::namespaced(client.clone(), daemon.namespace),
                pod: pod.name_any(),
                container: daemon.name,
            };
            Some((container, source))
        }))
    }

    /// What it says from that time on. The API may answer with the first line of it only.
    fn lines(&self, since: Timestamp) -> Lines {
        let Self { pods, pod, .. } = self.clone();
        let params = LogParams {
            follow: true,
            since_time: Some(since),
            ..self.params()
        };
        let lines = async move {
            let stream = pods.log_stream(&pod, &params).await;
            let stream = stream.map_err(|error| error.to_string())?;
            Ok::<_, String>(stream.lines().map_err(|error| error.to_string()))
        };
        lines.try_flatten_stream().boxed()
    }

    fn newest(&self) -> Newest {
        let Self { pods, pod, .. } = self.clone();
        let params = LogParams {
            tail_lines: Some(1),
            ..self.params()
        };
        let newest = async move { pods.logs(&pod, &params).await };
        newest.map_err(|error| error.to_string()).boxed()
    }

    fn params(&self) -> LogParams {
        LogParams {
            container: Some(self.container.to_owned()),
            timestamps: true,
            ..LogParams::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_engine::logbook::{LogItem, Logbook};
    use chainbreak_model::names::NodeName;

    use super::*;
    use crate::served;

    #[tokio::test]
    async fn what_the_kubelet_says_in_place_of_a_log_is_why_it_cannot_be_read() {
        const SAID: &str = "unable to retrieve container logs for containerd://4a5b\n";
        let source = Source {
            pods: Api::namespaced(served::logging(served::api(), SAID), "kube-system"),
            pod: "kube-proxy-x".to_owned(),
            container: "kube-proxy",
        };
        let (logbook, node) = (Logbook::default(), NodeName::from("n1"));
        let writer = logbook.writer(AgentName::KubeProxy, &node);
        let mut log = Log::new(Timestamp::UNIX_EPOCH, LogFormat::Klog, writer);
        let lines = source.lines(log.since());
        let container = Container::numbered("a", 0);
        let read = log.read(container, lines, || source.newest()).await;
        log.ended(read);
        let mut items = logbook.read(AgentName::KubeProxy, &node);
        let item = items.next().await.unwrap().unwrap();
        assert!(
            matches!(&item, LogItem::Broken { why, .. } if *why == SAID.trim_end()),
            "{item:?}"
        );
    }
}
