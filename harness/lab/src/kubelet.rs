//! The kubelets of all nodes in one: watches pods that have a node, gives each a place, starts its
//! containers, says in the API how it is, and takes it down again.
//!
//! A pod that is to end first gets its `preStop` hook and SIGTERM, then SIGKILL after its grace
//! period; then its link goes, then its object. One that vanished from the API gets SIGKILL at once.

pub(crate) mod agent_pods;
pub(crate) mod chains;
mod container;
pub(crate) mod containers;
mod image;
mod pod;
mod ports;
mod status;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use chainbreak_engine::{cluster::Place, log::EventLog};
use chainbreak_model::{event::EventKind, names::NodeName};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{sync::watch, task::JoinSet};

pub(crate) use self::ports::accepts;
use self::{agent_pods::Keeper, containers::Containers, image::Program, pod::Ending};
use crate::{parts::guarded, world::World};

/// Runs the pods of a world.
pub struct Kubelet {
    client: Client,
    world: Arc<World>,
    log: EventLog,
    containers: Arc<Containers>,
    keeper: Keeper,
    told: Mutex<BTreeSet<(String, String)>>,
    turns: Mutex<BTreeMap<Place, Turn>>,
}

/// Pods of one name live one after the other.
type Turn = Arc<tokio::sync::Mutex<()>>;

impl fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelet").finish_non_exhaustive()
    }
}

/// Pods under way: uid to how they are told to end.
type Pods = BTreeMap<String, watch::Sender<Ending>>;

impl Kubelet {
    /// A kubelet for all nodes of the world, which says in `containers` what it knows of each. The pods that stand for agents are
    /// the `keeper`'s.
    pub(crate) fn new(
        client: Client,
        world: Arc<World>,
        log: EventLog,
        containers: Arc<Containers>,
        keeper: Keeper,
    ) -> Self {
        Self {
            client,
            world,
            log,
            containers,
            keeper,
            told: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// Runs until dropped, and takes the pods' processes along then.
    pub async fn run(self) {
        let kubelet = Arc::new(self);
        let mut tasks = JoinSet::new();
        let mut pods = Pods::new();
        let mut listed: Vec<String> = Vec::new();
        let events = watcher(
            Api::<Pod>::all(kubelet.client.clone()),
            watcher::Config::default(),
        )
        .default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(pod)) => {
                    listed.push(pod.uid().unwrap_or_default());
                    kubelet.changed(pod, &mut pods, &mut tasks);
                }
                // What was deleted while the watch was broken.
                Ok(Event::InitDone) => pods.retain(|uid, end| {
                    let there = listed.contains(uid);
                    if !there {
                        end.send_replace(Ending::Gone);
                    }
                    there
                }),
                Ok(Event::Apply(pod)) => kubelet.changed(pod, &mut pods, &mut tasks),
                Ok(Event::Delete(pod)) => {
                    if let Some(end) = pods.remove(&pod.uid().unwrap_or_default()) {
                        end.send_replace(Ending::Gone);
                    }
                }
                // The watcher comes back by itself after a pause.
                Err(error) => tracing::debug!(%error, "the watch of pods broke"),
            }
            // How each ended, its guard has said.
            while tasks.try_join_next().is_some() {}
        }
    }

    fn changed(self: &Arc<Self>, pod: Pod, pods: &mut Pods, tasks: &mut JoinSet<()>) {
        let uid = pod.uid().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let Some(node) = node.and_then(|name| self.world.node(&NodeName::from(name))) else {
            return;
        };
        let ending = pod.metadata.deletion_timestamp.is_some();
        match pods.get(&uid) {
            Some(end) if ending => {
                end.send_if_modified(|end| {
                    let runs = *end == Ending::Not;
                    if runs {
                        *end = Ending::Asked;
                    }
                    runs
                });
            }
            Some(_) => {}
            None => {
                let first = if ending { Ending::Asked } else { Ending::Not };
                let (end, ended) = watch::channel(first);
                pods.insert(uid, end);
                let name = format!("pod {}", pod.name_any());
                let (kubelet, log) = (Arc::clone(self), self.log.clone());
                let node = Arc::clone(node);
                let life = match agent_pods::agent_of(&pod) {
                    Some(agent) => agent_pods::live(kubelet, node, pod, agent, ended).boxed(),
                    None => pod::live(kubelet, node, pod, ended).boxed(),
                };
                tasks.spawn(async move {
                    guarded(&name, &log, life).await;
                });
            }
        }
    }

    fn turn(&self, place: &Place) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits for a turn that only this map knows.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(place.clone()).or_default())
    }

    fn trouble(&self, text: String) {
        self.log.append(EventKind::Trouble { text });
    }

    /// Says once for each image and command what stands in for it.
    fn say_stand_in(&self, image: &str, program: &Program) {
        let (name, value) = (format!("image {image}"), program.stand_in());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert((name.clone(), value.clone())) {
            self.log.append(EventKind::Fact { name, value });
        }
    }
}
