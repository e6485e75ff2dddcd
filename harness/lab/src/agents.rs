//! The agents of all nodes. Each has a thread of its own, started from its node's place: its watches
//! and its commands leave from the node, as the real agent's would.

use std::{
    collections::BTreeMap,
    rc::Rc,
    thread::{self, JoinHandle},
    time::Duration,
};

use chainbreak_agents::{
    driver::{self, Exec, LogSink, header},
    felix, kube_proxy,
    step::LogLine,
};
use chainbreak_engine::log::EventLog;
use chainbreak_model::{
    case::{Case, KubeProxySpec, PodOwner},
    event::What,
    names::{AgentName, NodeName},
};
use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    api,
    error::LabError,
    logbook::Logbook,
    recorder::Recorder,
    wiring,
    world::{Node, World},
};

/// What stands between two lives of an agent that exited, as with runsv and a first restart by the
/// kubelet.
const RESTART: Duration = Duration::from_secs(1);
/// Distance of two nodes' seeds, so that chance does not run in step on all of them.
const STRIDE: u64 = 7919;

/// One life of an agent: from its start to the reason for which its process exits.
type Life =
    Box<dyn for<'a> Fn(Rc<dyn Exec>, &'a mut dyn LogSink) -> LocalBoxFuture<'a, String> + Send>;

/// Running agents. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Agents {
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    logbook: Logbook,
    log: EventLog,
}

impl Agents {
    /// Starts what the case asks for on every node, and says which agent stands for which.
    pub(crate) async fn start(
        case: &Case,
        world: &World,
        log: &EventLog,
    ) -> Result<Self, LabError> {
        let mut agents = Self {
            stop: watch::Sender::new(false),
            threads: Vec::new(),
            logbook: Logbook::default(),
            log: log.clone(),
        };
        if let Some(spec) = &case.cluster.kube_proxy {
            let version = version::<kube_proxy::Version>(AgentName::KubeProxy, &spec.version)?;
            agents.say_model(AgentName::KubeProxy, &spec.version);
            for node in world.nodes() {
                let config = kube_proxy_config(spec, &version, world, node, case.seed);
                let life = kube_proxy_life(api::url(world.plan), config);
                agents.begin(AgentName::KubeProxy, node, life).await?;
            }
        }
        if let Some(spec) = &case.cluster.calico {
            let version = version::<felix::Version>(AgentName::Felix, &spec.version)?;
            agents.say_model(AgentName::Felix, &spec.version);
            for node in world.nodes() {
                let config = felix_config(version, node, case.seed);
                let life = felix_life(api::url(world.plan), config, spec.pods);
                agents.begin(AgentName::Felix, node, life).await?;
            }
        }
        Ok(agents)
    }

    /// The logs of all agents.
    pub(crate) fn logbook(&self) -> &Logbook {
        &self.logbook
    }

    /// Ends all agents and their commands and waits for it.
    pub(crate) fn stop(&mut self) -> Vec<String> {
        self.stop.send_replace(true);
        let ended = self.threads.drain(..).map(JoinHandle::join);
        ended
            .filter_map(Result::err)
            .map(|_panic| "an agent's thread panicked".to_owned())
            .collect()
    }

    /// A model never stands in silently.
    fn say_model(&self, agent: AgentName, version: &str) {
        self.log.append(What::Fact {
            name: agent.to_string(),
            value: format!("model {version} (no binary given)"),
        });
    }

    async fn begin(&mut self, agent: AgentName, node: &Node, life: Life) -> Result<(), LabError> {
        let name = node.name.clone();
        let write = self.logbook.writer(agent, &name);
        let (log, mut stop) = (self.log.clone(), self.stop.subscribe());
        let place = format!("{agent}@{name}");
        let started = node.place.run(move || {
            thread::Builder::new().name(place).spawn(move || {
                let lives = live(agent, name, life, write, log);
                let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
                run(async {
                    tokio::select! { () = lives => {}, () = stopped => {} }
                });
            })
        });
        let thread = started.await.map_err(|source| LabError::Place {
            place: node.place.name().to_owned(),
            what: "start an agent's thread",
            source,
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// One life after the other.
async fn live(agent: AgentName, node: NodeName, life: Life, write: impl Fn(String), log: EventLog) {
    let exec = Rc::new(Recorder::new(agent.as_str(), node.clone(), log.clone()));
    for number in 1.. {
        let mut sink = |line: LogLine| {
            let now = Timestamp::now();
            write(match agent {
                AgentName::KubeProxy => header::klog(&line, now),
                AgentName::Felix => header::felix(&line, now, number),
            });
        };
        let reason = life(Rc::clone(&exec) as Rc<dyn Exec>, &mut sink).await;
        log.append(What::Step {
            text: format!("{agent} on {node} exited and is started again: {reason}"),
        });
        sleep_until(Instant::now() + RESTART).await;
    }
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    // Without a runtime there is no agent, and the wait for its rules says so.
    match runtime {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => tracing::error!(%error, "an agent has no runtime"),
    }
}

fn version<V: std::str::FromStr>(agent: AgentName, text: &str) -> Result<V, LabError>
where
    V::Err: std::fmt::Display,
{
    text.parse().map_err(|error| LabError::Unable {
        what: format!("{agent}'s version {text}: {error}"),
    })
}

fn kube_proxy_config(
    spec: &KubeProxySpec,
    version: &kube_proxy::Version,
    world: &World,
    node: &Node,
    seed: u64,
) -> kube_proxy::Config {
    kube_proxy::Config {
        cluster_cidr: Some(world.plan.pods()),
        min_sync_period: spec.min_sync_period,
        sync_period: spec.sync_period,
        seed: seed_of(node, seed),
        ..kube_proxy::Config::new(version.clone(), node.name.as_str())
    }
}

fn kube_proxy_life(url: String, config: kube_proxy::Config) -> Life {
    Box::new(move |exec, log| {
        let (url, mut config) = (url.clone(), config.clone());
        Box::pin(async move {
            // Read once, at the start, as the real one does.
            config.tcp_be_liberal = tcp_be_liberal();
            match api::client(&url) {
                Ok(client) => driver::kube_proxy(client, config, exec, log).await,
                Err(error) => error.to_string(),
            }
        })
    })
}

fn felix_config(version: felix::Version, node: &Node, seed: u64) -> felix::Config {
    felix::Config {
        version,
        node_name: node.name.to_string(),
        env: BTreeMap::new(),
        // What Calico's manifests set.
        default_endpoint_to_host_action: felix::EndpointToHost::Accept,
        ipv6: false,
        seed: seed_of(node, seed),
    }
}

fn felix_life(url: String, config: felix::Config, pods: PodOwner) -> Life {
    let interface: Option<driver::InterfaceName> = match pods {
        PodOwner::Calico => Some(wiring::calico_interface),
        PodOwner::ThirdParty => None,
    };
    Box::new(move |exec, log| {
        let (url, config) = (url.clone(), config.clone());
        Box::pin(async move {
            match api::client(&url) {
                Ok(client) => driver::felix(client, config, interface, exec, log).await,
                Err(error) => error.to_string(),
            }
        })
    })
}

fn seed_of(node: &Node, seed: u64) -> u64 {
    seed.wrapping_add(STRIDE.wrapping_mul(u64::from(node.number)))
}

/// The setting of the calling thread's node.
fn tcp_be_liberal() -> bool {
    let file = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal";
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0")
}
