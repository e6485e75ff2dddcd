//! What is done to agents.

use std::time::Duration;

use chainbreak_model::{
    case::{AgentFault, Dataplane},
    names::{AgentName, NodeName},
};
use indexmap::IndexMap;
use serde_json::Value;

use super::{
    Injection,
    undo::{How, Undo},
};
use crate::{
    cluster::{Delay, NodeUpgrades, Signal, agent_control, holding},
    felix_config,
    first_sync::FirstSync,
    infra_error::InfraError,
};

/// The field of FelixConfiguration that says which dataplane it is.
const BPF: &str = Dataplane::FIELD;

impl Injection<'_> {
    /// From now on the agent's command starts later, on every node.
    pub(super) async fn slow(
        &mut self,
        agent: AgentName,
        command: &str,
        by: Duration,
    ) -> Result<(), InfraError> {
        let text = format!("delay {agent}'s {command} by {by:?}");
        let failed = |error| InfraError::new(text.clone(), error);
        let holding = holding(self.cluster).map_err(failed)?;
        let delay = Delay {
            agent,
            program: command.to_owned(),
            by,
        };
        self.undo.push(Undo::of(
            format!("{agent}'s {command} starts in time again"),
            How::LetGo(delay.clone()),
        ));
        let held = holding.hold_back(&delay).await;
        held.map_err(failed)?;
        self.say(text);
        Ok(())
    }

    /// Stops, pauses, restarts or recreates the agent, on one node or on every one.
    pub(super) async fn agent(
        &mut self,
        agent: AgentName,
        node: Option<&NodeName>,
        what: AgentFault,
    ) -> Result<(), InfraError> {
        for node in self.nodes(node) {
            let (verb, signal, undone) = match what {
                AgentFault::Stop => ("stop", Signal::Stop, "start"),
                AgentFault::Pause => ("pause", Signal::Pause, "resume"),
                AgentFault::Recreate { .. } => {
                    ("delete the pod of", Signal::Stop, "make a pod for")
                }
                AgentFault::Restart => {
                    let text = format!("restart {agent} on {node}");
                    self.restart_with(agent, &node, None, text).await?;
                    continue;
                }
            };
            let text = format!("{verb} {agent} on {node}");
            let failed = |error| InfraError::new(text.clone(), error);
            self.undo.push(to_run(undone, agent, &node));
            let control = agent_control(self.cluster).map_err(failed)?;
            let done = control.signal(agent, &node, signal).await;
            done.map_err(failed)?;
            if let AgentFault::Recreate { api } = what {
                let replaced = control.replace_pod(agent, &node, api).await;
                replaced.map_err(failed)?;
            }
            self.say(text);
        }
        if let AgentFault::Recreate { api: Some(api) } = what {
            self.say(format!(
                "new pods of {agent} reach the API: {}",
                api.as_str()
            ));
        }
        Ok(())
    }

    /// Brings agents to other versions as a DaemonSet does, one node after the other, each when the one before has
    /// begun its work.
    pub(super) async fn upgrade(
        &mut self,
        to: &IndexMap<AgentName, String>,
        node: Option<&NodeName>,
    ) -> Result<(), InfraError> {
        for (agent, version) in to {
            for node in self.nodes(node) {
                let from = self.versions.get(*agent, &node).unwrap_or("?");
                let text = format!("upgrade {agent} on {node} from {from} to {version}");
                self.restart_with(*agent, &node, Some(version), text)
                    .await?;
                self.versions.set(*agent, &node, version);
            }
        }
        Ok(())
    }

    /// Brings nodes to another Kubernetes, one after the other, the control plane first: all of them to each version on the way. An
    /// agent that is no part of it is upgraded after that.
    pub(super) async fn upgrade_nodes(
        &mut self,
        upgrades: &dyn NodeUpgrades,
        to: &IndexMap<AgentName, String>,
        node: Option<&NodeName>,
    ) -> Result<(), InfraError> {
        let agent = AgentName::KubeProxy;
        let mut others = to.clone();
        if let Some(version) = others.shift_remove(&agent) {
            let doing = format!("upgrade Kubernetes to {version}");
            let trouble = |why: String| InfraError::new(doing.clone(), why);
            let nodes = self.nodes(node);
            for step in upgrades.way(&nodes, &version).await.map_err(trouble)? {
                for node in &nodes {
                    let from = self.versions.get(agent, node).unwrap_or("?");
                    self.say(format!(
                        "upgrade Kubernetes on {node} from {from} to {step}"
                    ));
                    let say = |text: String| self.say(text);
                    let done = upgrades.upgrade(node, &step, &say).await;
                    if done.map_err(trouble)? {
                        self.versions.set(agent, node, &step);
                    }
                }
            }
        }
        self.upgrade(&others, node).await
    }

    async fn restart_with(
        &mut self,
        agent: AgentName,
        node: &NodeName,
        version: Option<&str>,
        text: String,
    ) -> Result<(), InfraError> {
        // An agent that was ended and not yet started, because this was broken off.
        self.undo.push(to_run("start", agent, node));
        self.say(text.clone());
        let control = agent_control(self.cluster);
        let control = control.map_err(|error| InfraError::new(text.clone(), error))?;
        let restarted = control.restart_with(agent, node, version).await;
        restarted.map_err(|error| InfraError::new(text, error))?;
        self.undo.pop();
        self.say(format!("{agent} on {node} has begun"));
        Ok(())
    }

    /// Has every Felix program with other means. Each restarts by itself for that, when it has heard of it.
    pub(super) async fn switch(&mut self, dataplane: Dataplane) -> Result<(), InfraError> {
        let wanted = dataplane == Dataplane::Bpf;
        let client = self.cluster.api();
        let is = felix_config::get(&client).await?;
        if is.get(BPF).and_then(Value::as_bool).unwrap_or(false) == wanted {
            return Ok(());
        }
        let mut lives = Vec::new();
        for node in self.nodes(None) {
            let first_sync = FirstSync::from_now(self.cluster, AgentName::Felix, &node).await;
            lives.push((node, first_sync));
        }
        let spec = [(BPF.to_owned(), Value::Bool(wanted))]
            .into_iter()
            .collect();
        felix_config::merge(&client, &spec, self.log).await?;
        for (node, first_sync) in lives {
            let failed = format!("switch felix on {node} to {dataplane}");
            first_sync
                .seen()
                .await
                .map_err(|error| InfraError::new(failed, error))?;
            self.say(format!("felix on {node} has begun with {dataplane}"));
        }
        Ok(())
    }
}

/// What starts an agent, or lets it go on.
pub(super) fn to_run(verb: &str, agent: AgentName, node: &NodeName) -> Undo {
    Undo::of(
        format!("{verb} {agent} on {node}"),
        How::Signal(agent, node.clone(), Signal::Run),
    )
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::{ApiWay, Fault, Versions};
    use tokio::time::timeout;

    use super::{
        super::{Faults, tests::said},
        *,
    };
    use crate::{fake::Fake, log::EventLog};

    fn upgrade() -> Fault {
        let to = [
            (AgentName::Felix, "v3.29.7".to_owned()),
            (AgentName::KubeProxy, "1.33".to_owned()),
        ];
        Fault::Upgrade {
            to: to.into(),
            node: None,
            kubernetes: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upgrade_ends_and_starts_each_agent_in_its_new_version_and_nothing_undoes_it() {
        let (fake, cluster) = Fake::default().cluster();
        let (log, mut events) = EventLog::new();
        let mut versions = Versions::default();
        versions.set(AgentName::KubeProxy, &"n1".into(), "1.32");
        versions.set(AgentName::Felix, &"n1".into(), "v3.28.1");
        let mut faults = Faults::new(&cluster, 0, &log).with(versions);
        faults.inject(&upgrade(), None).await.unwrap();
        faults.heal_all().await;
        assert_eq!(
            fake.signals(),
            [
                "Stop felix",
                "felix is v3.29.7",
                "Run felix",
                "Stop kube-proxy",
                "kube-proxy is 1.33",
                "Run kube-proxy"
            ]
        );
        assert_eq!(
            said(&mut events),
            [
                "upgrade felix on n1 from v3.28.1 to v3.29.7",
                "felix on n1 has begun",
                "upgrade kube-proxy on n1 from 1.32 to 1.33",
                "kube-proxy on n1 has begun"
            ]
        );
    }

    #[tokio::test]
    async fn nodes_go_through_every_version_on_the_way_before_an_agent_that_is_none_of_theirs() {
        let fake = Fake {
            way: Some(["1.33", "1.34.10"].map(str::to_owned).to_vec()),
            ..Fake::default()
        };
        let (fake, cluster) = fake.cluster();
        let (log, mut events) = EventLog::new();
        let mut versions = Versions::default();
        versions.set(AgentName::KubeProxy, &"n1".into(), "1.32");
        versions.set(AgentName::Felix, &"n1".into(), "v3.28.1");
        let mut faults = Faults::new(&cluster, 0, &log).with(versions);
        let to = [
            (AgentName::Felix, "v3.29.7"),
            (AgentName::KubeProxy, "1.34"),
        ];
        let upgrade = Fault::Upgrade {
            to: to.map(|(agent, to)| (agent, to.to_owned())).into(),
            node: None,
            kubernetes: true,
        };
        faults.inject(&upgrade, None).await.unwrap();
        let done = fake.signals();
        assert_eq!(done[..2], ["n1 to 1.33", "n1 to 1.34.10"]);
        assert!(done[2..].iter().all(|it| it.contains("felix")), "{done:?}");
        let said = said(&mut events);
        assert_eq!(
            said[..4],
            [
                "upgrade Kubernetes on n1 from 1.32 to 1.33",
                "n1 is drained",
                "upgrade Kubernetes on n1 from 1.33 to 1.34.10",
                "n1 is drained"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_is_made_anew_loses_its_pod_and_gets_another_one() {
        let (fake, cluster) = Fake::default().cluster();
        let (log, mut events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let fault = Fault::Agent {
            agent: AgentName::Felix,
            node: None,
            what: AgentFault::Recreate {
                api: Some(ApiWay::Direct),
            },
        };
        faults.inject(&fault, None).await.unwrap();
        faults.heal_all().await;
        let done = [
            "Stop felix",
            "felix has another pod, Some(Direct)",
            "Run felix",
        ];
        assert_eq!(fake.signals(), done);
        let told = [
            "delete the pod of felix on n1",
            "new pods of felix reach the API: direct",
            "make a pod for felix on n1",
        ];
        assert_eq!(said(&mut events), told);
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_whose_upgrade_was_broken_off_is_started() {
        let deaf = Fake {
            deaf: true,
            ..Fake::default()
        };
        let (fake, cluster) = deaf.cluster();
        let (log, _events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let fault = upgrade();
        let upgrading = faults.inject(&fault, None);
        let broken_off = timeout(Duration::from_secs(1), upgrading).await;
        assert!(broken_off.is_err());
        faults.heal_all().await;
        assert_eq!(fake.signals(), ["Stop felix", "Run felix"]);
    }
}
