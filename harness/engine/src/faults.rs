//! Faults as values: what is injected leaves a receipt of what undoes it.
//!
//! Faults are undone in reverse order of injection, also when the run is interrupted. What undoes an act
//! is noted before the act, so that one that was broken off is undone too. A fault that cannot be undone
//! is trouble, and the others are undone all the same; those that hang do so for a minute at most, all together.

mod agent;
mod commands;
mod conntrack;
mod craft;
mod link;
mod orders;
mod process;
mod reboot;
mod rules;
mod sysctl;
mod undo;

use std::{sync::Arc, time::Duration};

use chainbreak_model::{
    case::{Fault, Versions},
    event::EventKind,
    names::NodeName,
};
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::orders::orders;
use self::{commands::command, undo::Undo};
use crate::{
    cluster::{Cluster, nodes},
    infra_error::InfraError,
    log::EventLog,
};

/// How long a fault may take to be there, or a third party's commands to end.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);
/// How long the undoing of all faults of a case may hang. Each act has half of what those that hung have left.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an upgrade may take, which brings along images of agents where the backend has some.
const ROLLOUT: Duration = Duration::from_secs(600);
/// The same of nodes, of which each is upgraded by itself, minor version after minor version.
const NODES: Duration = Duration::from_secs(3600);

/// How long a fault may take to be there.
pub(crate) fn within(fault: &Fault) -> Duration {
    match fault {
        Fault::Upgrade {
            kubernetes: true, ..
        } => NODES,
        Fault::Upgrade { .. } => ROLLOUT,
        _ => WITHIN,
    }
}

/// The faults of a case.
pub(crate) struct Faults {
    cluster: Arc<dyn Cluster>,
    log: EventLog,
    seed: u64,
    versions: Versions,
    held: Vec<Held>,
    patience: Duration,
}

/// What is there at the moment.
#[derive(Default)]
struct Held {
    undo: Vec<Undo>,
    /// `None` until everything ends.
    ends: Option<Instant>,
    /// The step of the timeline that injected it and is not over.
    step: Option<usize>,
}

impl Faults {
    /// What they are done to.
    pub(crate) fn cluster(&self) -> &dyn Cluster {
        self.cluster.as_ref()
    }

    pub(crate) fn new(cluster: &Arc<dyn Cluster>, seed: u64, log: &EventLog) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            log: log.clone(),
            seed,
            versions: Versions::default(),
            held: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// Agents have these versions before anything is done.
    pub(crate) fn with(mut self, versions: Versions) -> Self {
        self.versions = versions;
        self
    }

    /// Injects a fault, which is there when this returns, for so long from then on.
    pub(crate) async fn inject(
        &mut self,
        fault: &Fault,
        duration: Option<Duration>,
    ) -> Result<(), InfraError> {
        self.held.push(Held::default());
        let held = self.held.last_mut().expect("it was just pushed");
        let mut injection = Injection {
            cluster: self.cluster.as_ref(),
            log: &self.log,
            seed: self.seed,
            versions: &mut self.versions,
            undo: &mut held.undo,
        };
        let within = within(fault);
        let injected = timeout(within, injection.inject(fault, duration)).await;
        injected.unwrap_or_else(|_elapsed| {
            let why = format!("it took more than {within:?}");
            let fault = serde_json::to_string(fault).unwrap_or_else(|_| format!("{fault:?}"));
            Err(InfraError::new(format!("do {fault}"), why))
        })?;
        held.ends = duration.map(|duration| Instant::now() + duration);
        Ok(())
    }

    /// What was injected last is that step of the timeline, which is over when it is undone; at once, where nothing is to be.
    pub(crate) fn belongs_to(&mut self, step: usize) {
        match self.held.last_mut() {
            Some(held) if !held.undo.is_empty() => held.step = Some(step),
            _ => self.log.append(EventKind::StepEnded { step }),
        }
    }

    /// Waits until then and undoes meanwhile what is over, in time. When that was: undoing takes the time that it needs.
    pub(crate) async fn until(&mut self, due: Instant) -> Instant {
        let mut over = due;
        while let Some((ends, index)) = self.next_end()
            && ends <= due
        {
            sleep_until(ends).await;
            self.heal(index).await;
            over = over.max(Instant::now());
        }
        sleep_until(over).await;
        over
    }

    /// Waits until everything is over that has an end of its own.
    pub(crate) async fn outlast(&mut self) {
        while let Some((ends, _)) = self.next_end() {
            self.until(ends).await;
        }
    }

    /// Undoes everything, the last first.
    pub(crate) async fn heal_all(&mut self) {
        while let Some(last) = self.held.len().checked_sub(1) {
            self.heal(last).await;
        }
    }

    /// What is over first; of what is over at the same time, what was injected last.
    fn next_end(&self) -> Option<(Instant, usize)> {
        let ends = self.held.iter().enumerate().rev();
        let ends = ends.filter_map(|(index, held)| Some((held.ends?, index)));
        ends.min_by_key(|(ends, _)| *ends)
    }

    /// Undoes one fault. What is left of it stays with the others if this is broken off.
    async fn heal(&mut self, index: usize) {
        let undo = &mut self.held[index].undo;
        while let Some(last) = undo.last_mut() {
            let text = last.text.clone();
            let within = self.patience / 2;
            let cluster = self.cluster.as_ref();
            let undone = timeout(within, last.undo(cluster)).await;
            undo.pop();
            self.log.append(match undone {
                Ok(Ok(())) => EventKind::Step { text },
                Ok(Err(why)) => trouble(text, why),
                Err(_elapsed) => {
                    self.patience -= within;
                    trouble(text, format!("it took more than {within:?}"))
                }
            });
        }
        if let Some(step) = self.held.remove(index).step {
            self.log.append(EventKind::StepEnded { step });
        }
    }
}

fn trouble(doing: String, why: String) -> EventKind {
    EventKind::Trouble {
        text: InfraError::new(doing, why).to_string(),
    }
}

/// A fault that is being injected.
struct Injection<'a> {
    cluster: &'a dyn Cluster,
    log: &'a EventLog,
    seed: u64,
    versions: &'a mut Versions,
    undo: &'a mut Vec<Undo>,
}

impl Injection<'_> {
    async fn inject(
        &mut self,
        fault: &Fault,
        duration: Option<Duration>,
    ) -> Result<(), InfraError> {
        match fault {
            Fault::Slow { agent, command, by } => self.slow(*agent, command, *by).await,
            Fault::Agent { agent, node, what } => self.agent(*agent, node.as_ref(), *what).await,
            Fault::Reboot { node, begin } => self.reboot(node.as_ref(), begin).await,
            Fault::Upgrade {
                to,
                node,
                kubernetes,
            } => match self.cluster.node_upgrades().filter(|_| *kubernetes) {
                Some(upgrades) => self.upgrade_nodes(upgrades, to, node.as_ref()).await,
                None => self.upgrade(to, node.as_ref()).await,
            },
            Fault::Switch { dataplane } => self.switch(*dataplane).await,
            Fault::Sysctl { at, set } => self.sysctl(at.as_ref(), set).await,
            Fault::FillConntrack { node, entries } => self.fill(node.as_ref(), *entries).await,
            Fault::LinkDown { at, interface } => self.link_down(&at.into(), interface).await,
            Fault::Mtu {
                at,
                interface,
                bytes,
            } => self.mtu(&at.into(), interface, *bytes).await,
            Fault::Route { at, to, via, dev } => {
                self.route(&at.into(), to, *via, dev.as_deref()).await
            }
            Fault::Loss { at, share } => self.loss(&at.into(), *share).await,
            Fault::Lock { node } => self.lock(node.as_ref()).await,
            Fault::Flush { node, rules, chain } => {
                self.flush(node.as_ref(), rules, chain.as_deref()).await
            }
            Fault::DeleteRule {
                node,
                rules,
                chain,
                matches,
            } => self.delete_rule(node.as_ref(), rules, chain, matches).await,
            Fault::Craft(craft) => self.craft(craft).await,
            Fault::Run(run) => self.third_party(run, duration).await,
        }
    }

    /// Says what was done.
    fn say(&self, text: impl Into<String>) {
        self.log.append(EventKind::Step { text: text.into() });
    }

    /// The given node, or every one.
    fn nodes(&self, node: Option<&NodeName>) -> Vec<NodeName> {
        node.map_or_else(|| nodes(self.cluster), |node| vec![node.clone()])
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_model::{case::AgentFault, event::Event, names::AgentName};
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use crate::fake::Fake;

    fn fault(agent: AgentName, what: AgentFault) -> Fault {
        Fault::Agent {
            agent,
            node: None,
            what,
        }
    }

    const STOP_FELIX: (AgentName, AgentFault) = (AgentName::Felix, AgentFault::Stop);
    const PAUSE_KUBE_PROXY: (AgentName, AgentFault) = (AgentName::KubeProxy, AgentFault::Pause);

    pub(super) fn said(events: &mut UnboundedReceiver<Event>) -> Vec<String> {
        let events = std::iter::from_fn(|| events.try_recv().ok());
        let text = |event: Event| match event.what {
            EventKind::Step { text } => text,
            EventKind::Trouble { text } => format!("TROUBLE {text}"),
            other => format!("{other:?}"),
        };
        events.map(text).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn faults_are_undone_in_reverse_order_and_the_history_says_so() {
        let (fake, cluster) = Fake::default().cluster();
        let (log, mut events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        for (agent, what) in [STOP_FELIX, PAUSE_KUBE_PROXY] {
            faults.inject(&fault(agent, what), None).await.unwrap();
        }
        faults.heal_all().await;
        let order = [
            "Stop felix",
            "Pause kube-proxy",
            "Run kube-proxy",
            "Run felix",
        ];
        assert_eq!(fake.signals(), order);
        assert_eq!(
            said(&mut events),
            [
                "stop felix on n1",
                "pause kube-proxy on n1",
                "resume kube-proxy on n1",
                "start felix on n1"
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn of_faults_that_end_at_the_same_time_the_last_is_undone_first() {
        let (fake, cluster) = Fake::default().cluster();
        let (log, _events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let second = Some(Duration::from_secs(1));
        for (agent, what) in [STOP_FELIX, PAUSE_KUBE_PROXY] {
            faults.inject(&fault(agent, what), second).await.unwrap();
        }
        faults.until(Instant::now() + Duration::from_secs(1)).await;
        assert_eq!(fake.signals()[2..], ["Run kube-proxy", "Run felix"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_cannot_be_undone_is_trouble_and_the_others_are_undone() {
        let refusing = Fake {
            refuses: Some("Run kube-proxy".to_owned()),
            ..Fake::default()
        };
        let (fake, cluster) = refusing.cluster();
        let (log, mut events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        for (agent, what) in [STOP_FELIX, PAUSE_KUBE_PROXY] {
            faults.inject(&fault(agent, what), None).await.unwrap();
        }
        faults.heal_all().await;
        assert_eq!(fake.signals()[2..], ["Run kube-proxy", "Run felix"]);
        let trouble = "TROUBLE could not resume kube-proxy on n1: it is dead";
        assert_eq!(said(&mut events)[2..], [trouble, "start felix on n1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_broken_off_while_it_was_injected_is_undone_too() {
        let deaf = Fake {
            deaf: true,
            ..Fake::default()
        };
        let (fake, cluster) = deaf.cluster();
        let (log, _events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let (agent, what) = STOP_FELIX;
        let fault = fault(agent, what);
        let injecting = faults.inject(&fault, None);
        let broken_off = timeout(Duration::from_secs(1), injecting).await;
        assert!(broken_off.is_err());
        faults.heal_all().await;
        assert_eq!(fake.signals(), ["Stop felix", "Run felix"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_leaves_nothing_to_undo() {
        let (fake, cluster) = Fake::default().cluster();
        let (log, _events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let restart = fault(AgentName::Felix, AgentFault::Restart);
        faults.inject(&restart, None).await.unwrap();
        faults.heal_all().await;
        assert_eq!(fake.signals(), ["Stop felix", "Run felix"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_cannot_be_injected_is_trouble() {
        let (_fake, cluster) = Fake::default().cluster();
        let (log, _events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let failed = faults.inject(&Fault::Lock { node: None }, None).await;
        let trouble = failed.unwrap_err().to_string();
        assert!(
            trouble.starts_with("could not take the lock of iptables on n1: "),
            "{trouble}"
        );
    }
}
