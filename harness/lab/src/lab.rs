//! The backend.

mod control;

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_apiserver::{Kubelets, Server};
use chainbreak_engine::{
    backend::{Backend, BackendError, RaiseError},
    cluster::{
        AgentControl, ApiEndpoints, Cluster, Command, ExecError, FelixProgram, Holding, Killing,
        Leftovers, Place, Process, Reboots, Recording, Scheduling,
    },
    log::EventLog,
    logbook::AgentLog,
    supervisor::Supervisor,
};
use chainbreak_model::{
    case::{ApiWay, Capabilities, Case, ClusterSpec},
    event::EventKind,
    names::{AgentName, NodeName},
};
use kube::Client;
use nix::{
    errno::Errno,
    sys::signal::{Signal::SIGKILL, killpg},
    unistd::Pid,
};
use tokio::{sync::Mutex as AsyncMutex, task::JoinSet};

use crate::{
    agents::{Agents, versions::AgentVersions},
    api::{self, endpoint::Endpoint},
    controllers,
    error::LabError,
    facts, hosts,
    kubelet::{
        Kubelet,
        agent_pods::{self, Keeper},
        containers::Containers,
    },
    parts::{guarded, lasting},
    recorder::Recorder,
    scheduling::WorldTasks,
    shims::{self, Shims},
    survey,
    worker::PATH,
    world::World,
};

/// What recorded writes leave for longer than this is looked at. A look takes some milliseconds; in a catalogue of two cores that were busy
/// for 92 % of the time, one of ten cases had one that took 50 ms or more, and none had one of more than 150 ms.
const SEES_WITHIN: Duration = Duration::from_millis(200);

/// The running program, as every place of a world finds it: the magic link works also where the
/// program's path does not.
const SELF: &str = "/proc/self/exe";
/// The verb of the program that makes it a probe.
const PROBE: &str = "probe";

/// Clusters of network namespaces on this machine's kernel.
#[derive(Debug, Default)]
pub struct Lab {
    /// Whether cases may change settings of the machine that all worlds share.
    pub host_changes: bool,
    /// Worlds may load eBPF programs.
    pub ebpf: bool,
}

#[async_trait]
impl Backend for Lab {
    async fn survey(&self) -> Capabilities {
        survey::survey(self.host_changes, self.ebpf).await
    }

    /// Raises a world in this process, which has to be a worker.
    async fn raise(
        &self,
        case: &Case,
        log: &EventLog,
        _: Duration,
    ) -> Result<Box<dyn Cluster>, RaiseError> {
        let raised = Raised::new(case, log).await;
        raised
            .map(|raised| Box::new(raised) as Box<dyn Cluster>)
            .map_err(|error| RaiseError {
                what: "raise the lab's world".to_owned(),
                source: Box::new(error),
            })
    }

    /// The kernel takes a world along with its worker.
    async fn finish(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

/// A world with everything that lives in it.
#[derive(Debug)]
struct Raised {
    client: ClientHandle,
    endpoint: Endpoint,
    world: Arc<World>,
    supervisor: Supervisor,
    versions: AgentVersions,
    /// Of the pods that stand for agents.
    keeper: Keeper,
    cluster: ClusterSpec,
    /// Of those on whose behalf something was run on a node.
    shims: AsyncMutex<BTreeMap<(String, NodeName), Shims>>,
    server: Arc<Server>,
    log: EventLog,
    tasks: WorldTasks,
    /// What ends when the world is destroyed, the agents first.
    running: Mutex<Option<(Agents, JoinSet<()>)>>,
}

/// `kube::Client` has no `Debug`.
struct ClientHandle(Client);

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Raised {
    async fn new(case: &Case, log: &EventLog) -> Result<Self, LabError> {
        let world = Arc::new(World::raise(&case.cluster).await?);
        let mut tasks = JoinSet::new();
        let nodes: Vec<_> = world.nodes().collect();
        control::nodes_begin(&world, &nodes, &case.cluster, log).await?;
        let containers = Arc::<Containers>::default();
        let kubelets = Arc::clone(&containers) as Arc<dyn Kubelets>;
        let server = api::server(&world, case.seed, log.clone(), kubelets);
        for listener in api::listen(&world)? {
            let served = api::serve(Arc::clone(&server), listener, log.clone());
            tasks.spawn(lasting("API server", log.clone(), served));
        }
        crate::registry::note_api(api::address(&world, ApiWay::Direct))?;
        let endpoint = Endpoint::begin(&world, &server, log)?;
        let client = api::client(&api::url(&world, ApiWay::Direct))?;
        api::provision(&client, &world, case).await?;
        let controllers = controllers::run(client.clone(), case.seed, log.clone());
        tasks.spawn(lasting("controllers", log.clone(), controllers));
        let keeper = Keeper::default();
        let kubelet = Kubelet::new(
            client.clone(),
            Arc::clone(&world),
            log.clone(),
            containers,
            Arc::clone(&keeper),
        );
        tasks.spawn(lasting("kubelet", log.clone(), kubelet.run()));
        hosts::serve(&world, log, &mut tasks).await?;
        let (facts, told) = (facts::say(Arc::clone(&world), log.clone()), log.clone());
        tasks.spawn(async move {
            guarded("survey of programs", &told, facts).await;
        });
        let agents = Agents::start(case, &world, log).await?;
        Ok(Self {
            client: ClientHandle(client),
            endpoint,
            world,
            supervisor: agents.supervisor().clone(),
            versions: agents.versions(case),
            keeper,
            cluster: case.cluster.clone(),
            shims: AsyncMutex::default(),
            running: Mutex::new(Some((agents, tasks))),
            server,
            log: log.clone(),
            tasks: WorldTasks::default(),
        })
    }
}

impl Raised {
    /// A `PATH` on which somebody's netfilter commands are recorded; `None` where there is no such node.
    async fn recorded_path(&self, who: &str, name: &NodeName) -> Result<Option<String>, LabError> {
        let Some(node) = self.world.node(name) else {
            return Ok(None);
        };
        let mut all = self.shims.lock().await;
        let key = (who.to_owned(), name.clone());
        if !all.contains_key(&key) {
            let recorder = Recorder::new(who, name.clone(), self.log.clone());
            let recorder = recorder.behind(self.world.gate.clone());
            let shims = shims::install(&node.place, recorder, Path::new("/"), PATH).await?;
            all.insert(key.clone(), shims);
        }
        let folder = all.get(&key).map(|shims| shims.path_prefix().display());
        Ok(folder.map(|folder| format!("{folder}:{PATH}")))
    }

    /// Starts a command in a place, with another `PATH` if one is given.
    async fn spawn(
        &self,
        at: &Place,
        command: &Command,
        path: Option<String>,
    ) -> Result<Process, ExecError> {
        let argv = match command {
            Command::Argv(argv) => argv.clone(),
            Command::Probe => vec![SELF.to_owned(), PROBE.to_owned()],
        };
        let failed = |source| ExecError {
            place: at.to_string(),
            command: argv.join(" "),
            source,
        };
        let place = self.world.find(at).ok_or_else(|| {
            failed(io::Error::new(
                io::ErrorKind::NotFound,
                "there is no such place",
            ))
        })?;
        let spawned = match command {
            Command::Probe => place.spawn_witness(&argv).await,
            Command::Argv(_) => {
                let with_path = |command: &mut tokio::process::Command| {
                    command.envs(path.map(|path| ("PATH", path)));
                };
                place.spawn(&argv, with_path).await
            }
        };
        spawned.map(Process::from).map_err(failed)
    }
}

#[async_trait]
impl Cluster for Raised {
    fn api(&self) -> Client {
        self.client.0.clone()
    }

    fn places(&self) -> Vec<(Place, IpAddr)> {
        let nodes = self
            .world
            .nodes()
            .map(|node| (Place::Node(node.name.clone()), node.address));
        let hosts = self.world.hosts().iter().flat_map(|host| {
            let addresses = self.world.families.addresses(host.main_address());
            let place = Place::Host(host.name.clone());
            addresses.into_iter().map(move |it| (place.clone(), it))
        });
        nodes.chain(hosts).collect()
    }

    async fn exec(&self, at: &Place, command: &Command) -> Result<Process, ExecError> {
        self.spawn(at, command, None).await
    }

    fn sees_within(&self) -> Duration {
        SEES_WITHIN
    }

    fn agent_logs(&self, agent: AgentName, node: &NodeName) -> AgentLog {
        self.supervisor.logbook().read(agent, node)
    }

    fn account(&self, node: &NodeName) -> String {
        let nodes = api::nodes_by_address(&self.world);
        let asked = self.server.asked().into_iter();
        let asked = asked.filter(|(asked, _)| nodes.get(&asked.peer) == Some(node));
        let asked: Vec<String> = asked
            .map(|(asked, count)| format!("\n{asked}, {count} times"))
            .collect();
        let asked = match asked.concat() {
            none if none.is_empty() => " nothing".to_owned(),
            requests => format!(":{requests}"),
        };
        format!(
            "{node} asked the API for{asked}\n{}",
            self.supervisor.logbook().last_words(node)
        )
    }

    fn recording(&self) -> Option<&dyn Recording> {
        Some(self)
    }

    fn agent_control(&self) -> Option<&dyn AgentControl> {
        Some(self)
    }

    fn holding(&self) -> Option<&dyn Holding> {
        Some(&self.world.gate)
    }

    fn killing(&self) -> Option<&dyn Killing> {
        Some(self)
    }

    fn reboots(&self) -> Option<&dyn Reboots> {
        Some(self)
    }

    fn api_endpoints(&self) -> Option<&dyn ApiEndpoints> {
        Some(self)
    }

    fn scheduling(&self) -> Option<&dyn Scheduling> {
        Some(&self.tasks)
    }

    fn felix_program(&self) -> Option<FelixProgram> {
        FelixProgram::of(self.cluster.source(AgentName::Felix)?)
    }

    /// Its agents get pods.
    async fn keep(&self) {
        let shown = agent_pods::show(
            &self.client.0,
            &self.cluster,
            &self.keeper,
            &self.supervisor,
        );
        if let Err(error) = shown.await {
            let text = format!("make the agents' DaemonSets: {error}");
            self.log.append(EventKind::Trouble { text });
        }
    }

    /// Ends agents, pods, controllers and API. The namespaces end with the worker.
    async fn destroy(&self) -> Result<(), Leftovers> {
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some((mut agents, mut tasks)) = running else {
            return Ok(());
        };
        let stopped = tokio::task::spawn_blocking(move || agents.stop()).await;
        tasks.shutdown().await;
        api::note_unknown(&self.server, &self.world, &self.log);
        let leftovers = match stopped {
            Ok(leftovers) => leftovers,
            Err(error) => vec![error.to_string()],
        };
        if leftovers.is_empty() {
            Ok(())
        } else {
            Err(Leftovers(leftovers))
        }
    }
}

#[async_trait]
impl Recording for Raised {
    async fn exec_as(
        &self,
        who: &str,
        at: &Place,
        command: &Command,
    ) -> Result<Process, ExecError> {
        let path = match at {
            Place::Node(name) => self.recorded_path(who, name).await,
            // Rules of pods and hosts are nobody's concern.
            Place::Pod { .. } | Place::Host(_) => Ok(None),
        };
        let path = path.map_err(|error| ExecError {
            place: at.to_string(),
            command: format!("{command:?}"),
            source: io::Error::other(error),
        })?;
        self.spawn(at, command, path).await
    }
}

#[async_trait]
impl ApiEndpoints for Raised {
    async fn move_on(&self) -> io::Result<()> {
        let moved = self.endpoint.move_on(&self.client.0).await;
        moved.map_err(io::Error::other)
    }
}

#[async_trait]
impl Killing for Raised {
    async fn kill(&self, process: u32) -> io::Result<()> {
        // In a place each has a group of its own.
        let group = i32::try_from(process).map_err(io::Error::other)?;
        match killpg(Pid::from_raw(group), SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
