//! Backend `cluster`: an existing cluster, in which a case has namespaces of its own and a privileged pod on each of its nodes, and
//! which is left as it was found.
//!
//! What would concern others is refused when cases are planned, unless the person names the cluster; what a case then
//! changes is noted in the cluster before it is changed, and set back by [`run_namespace`].

mod factory;
mod pods;
mod preflight;
mod rehearsal;
mod rewrite;
pub mod rights;
mod run_namespace;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_engine::{
    backend::{Backend, BackendError, Doing, RaiseError, Shared},
    cluster::{Cluster, Say},
    log::EventLog,
    logbook::Logbook,
};
use chainbreak_model::{
    case::{Capabilities, Case, Fault, Step},
    event::EventKind,
    names::AgentName,
};
use indexmap::IndexMap;
use jiff::Timestamp;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::timeout;

use crate::{
    error::{KindError, causes},
    shared::{
        cluster::Raised, connect::connect, felix::Models, felix_config, iptables_backend,
        nodes::Nodes, pods as places, program, signal, survey,
    },
    versions::{Version, Versions},
};

pub use factory::ClusterFactory;
use run_namespace::RunNamespace;

/// What the API may take to say its version.
const ANSWER: Duration = Duration::from_secs(20);

/// Which cluster, and what a person allows there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Existing {
    /// How it is reached.
    pub(crate) kubeconfig: PathBuf,
    /// Of the kubeconfig; its current one without.
    pub(crate) context: Option<String>,
    /// What the pods on its nodes run; the pinned one without.
    pub(crate) node_image: Option<String>,
    /// The cluster of which everything may be changed, by the kubeconfig's name of it.
    pub(crate) allow_disruption: Option<String>,
    /// What all of ours there is called, different for each run.
    pub(crate) run: String,
}

/// What a kubeconfig says of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    kubeconfig: Kubeconfig,
    /// Of the kubeconfig.
    context: String,
    /// The cluster's name in the kubeconfig.
    name: String,
    server: String,
}

impl Existing {
    fn target(&self) -> Result<Target, KindError> {
        let unusable = |why: String| KindError::Kubeconfig {
            path: self.kubeconfig.clone(),
            why,
        };
        // The library's error says the path once more.
        fs::File::open(&self.kubeconfig).map_err(|error| unusable(error.to_string()))?;
        let read = Kubeconfig::read_from(&self.kubeconfig);
        let kubeconfig = read.map_err(|error| unusable(causes(&error)))?;
        let context = self.context.clone().or(kubeconfig.current_context.clone());
        let context = context.ok_or_else(|| unusable("it has no current context".to_owned()))?;
        let mut contexts = kubeconfig.contexts.iter();
        let found = contexts.find(|it| it.name == context);
        let found = found.and_then(|it| it.context.as_ref());
        let name = found.map(|it| it.cluster.clone());
        let name = name.ok_or_else(|| unusable(format!("it has no context {context}")))?;
        let mut clusters = kubeconfig.clusters.iter();
        let cluster = clusters.find(|it| it.name == name);
        let server = cluster.and_then(|it| it.cluster.as_ref()?.server.clone());
        let server = server.ok_or_else(|| unusable(format!("it has no server of {name}")))?;
        Ok(Target {
            kubeconfig,
            context,
            name,
            server,
        })
    }

    /// Whether cases may change what concerns all of the cluster.
    fn may_disturb(&self) -> bool {
        self.allow_disruption.is_some()
    }

    /// What puts a command into a pod of a namespace, by the person's own `kubectl`, whose protocol fits the cluster.
    fn kubectl(&self, target: &Target, namespace: &str) -> Vec<String> {
        let kubeconfig = self.kubeconfig.display().to_string();
        let words = [
            "kubectl",
            "--kubeconfig",
            &kubeconfig,
            "--context",
            &target.context,
            "--namespace",
            namespace,
            "exec",
            "--stdin",
        ];
        words.map(str::to_owned).to_vec()
    }

    /// The cluster, if the kubeconfig's user may do there what a run does.
    async fn usable(&self) -> Result<(Target, Client, Version), KindError> {
        let target = self.target()?;
        let client = target.client().await?;
        let version = target.version(&client).await?;
        let disturbing = self.may_disturb();
        let missing = rights::missing(&client, disturbing).await?;
        if missing.is_empty() {
            return Ok((target, client, version));
        }
        let flag = if disturbing { " --disruption" } else { "" };
        Err(KindError::Unable(format!(
            "in {} the kubeconfig's user may not: {}\n`chainbreak cluster rbac{flag}` prints what a run takes",
            target.name,
            missing.join(", ")
        )))
    }

    fn image(&self, pins: &Versions) -> String {
        let pinned = || pins.node_pod.name();
        self.node_image.clone().unwrap_or_else(pinned)
    }
}

#[async_trait]
impl Shared for Existing {
    fn undisturbed(&self) -> Result<Option<String>, BackendError> {
        let name = self.target()?.name;
        match &self.allow_disruption {
            None => Ok(Some(name)),
            Some(allowed) if *allowed == name => Ok(None),
            Some(allowed) => Err(BackendError::from(KindError::Unable(format!(
                "--allow-disruption {allowed}: the cluster of the kubeconfig's context is {name}"
            )))),
        }
    }

    /// On nodes by Kubernetes' names, too. Where the cluster cannot be asked the cases stay as they are, and cannot be raised.
    async fn rewrite_namespaces(&self, cases: Vec<Case>) -> Vec<Case> {
        let asked = async {
            let client = self.target()?.client().await?;
            pods::fit(&client).await
        };
        let Ok(nodes) = asked.await else { return cases };
        let names: Vec<String> = nodes.into_iter().map(|node| node.registered).collect();
        // Thousands of cases have much in common, before and after.
        let mut common = chainbreak_model::case::Shared::default();
        let rewritten = |case: &Case| {
            let mut rewritten = rewrite::rewrite(case, &self.run, &names);
            common.take(&mut rewritten);
            rewritten
        };
        cases.iter().map(rewritten).collect()
    }

    async fn rehearse(&self, cases: &[&Case]) -> Result<Vec<Vec<Doing>>, BackendError> {
        let client = self.target()?.client().await?;
        let fit = pods::fit(&client).await?;
        let image = self.image(&Versions::pinned()?);
        let alone = self.may_disturb();
        let rehearsed = cases.iter().map(|case| {
            let nodes = pods::choose(fit.clone(), case.cluster.nodes);
            match nodes {
                Ok(nodes) => rehearsal::doings(case, &self.run, &nodes, &image, alone),
                Err(why) => vec![rehearsal::nothing(&why)],
            }
        });
        Ok(rehearsed.collect())
    }
}

impl Target {
    async fn client(&self) -> Result<Client, KindError> {
        let options = KubeConfigOptions {
            context: Some(self.context.clone()),
            ..KubeConfigOptions::default()
        };
        let connected = connect(self.kubeconfig.clone(), &options).await;
        connected.map_err(|why| KindError::Kubeconfig {
            path: format!("of {}", self.name).into(),
            why,
        })
    }

    /// Kubernetes' version, from the API: the first thing that it is asked.
    async fn version(&self, client: &Client) -> Result<Version, KindError> {
        let unreachable = |why: String| KindError::Unreachable {
            name: self.name.clone(),
            server: self.server.clone(),
            why,
        };
        let asked = timeout(ANSWER, client.apiserver_version()).await;
        let asked = asked.map_err(|_elapsed| unreachable(format!("no answer in {ANSWER:?}")))?;
        let info = asked.map_err(|error| unreachable(causes(&error)))?;
        Version::parse(&info.git_version)
            .ok_or_else(|| unreachable(format!("its version is {:?}", info.git_version)))
    }
}

/// The backend.
#[derive(Debug)]
struct InExisting {
    options: Existing,
    held: Mutex<Option<Arc<RunNamespace>>>,
}

impl InExisting {
    /// With what a person chose.
    fn new(options: Existing) -> Self {
        Self {
            options,
            held: Mutex::new(None),
        }
    }

    fn hold(&self, run_namespace: Option<Arc<RunNamespace>>) -> Option<Arc<RunNamespace>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, run_namespace)
    }

    /// Sets back and removes what runs that were killed have left.
    async fn remove_leftovers(
        &self,
        target: &Target,
        client: &Client,
        say: Say<'_>,
    ) -> Result<(), KindError> {
        let leftovers = run_namespace::leftovers(client).await?.into_iter();
        for leftover in leftovers.filter(|it| it.alive == Some(false)) {
            say(format!("removing {}, which no run uses", leftover.run));
            let enter = self.options.kubectl(target, &leftover.run);
            // What it is in the way of says so itself.
            if let Err(error) = run_namespace::remove(client, &leftover, enter).await {
                say(format!("{} stays: {error}", leftover.run));
            }
        }
        Ok(())
    }

    async fn up(&self, case: &Case, log: &EventLog, within: Duration) -> Result<Raised, KindError> {
        let say = |text: String| log.append(EventKind::Step { text });
        let fact = |name: &str, value: String| {
            let name = name.to_owned();
            log.append(EventKind::Fact { name, value });
        };
        let (options, since) = (&self.options, Timestamp::now());
        let (target, client, version) = options.usable().await?;
        fact("cluster", format!("{} at {}", target.name, target.server));
        let fit = pods::fit(&client).await?;
        let chosen = pods::choose(fit, case.cluster.nodes)?;
        preflight::settings(&client, case, version).await?;
        let namespaces = rewrite::namespaces(case, &options.run)?;
        let enter = options.kubectl(&target, &options.run);
        let run_namespace = RunNamespace::of(&client, &options.run, enter.clone());
        let run_namespace = Arc::new(run_namespace);
        self.hold(Some(Arc::clone(&run_namespace)));
        self.remove_leftovers(&target, &client, &say).await?;
        let begun = run_namespace.begin(case, options.may_disturb(), within / 2, &say);
        begun.await?;
        let image = options.image(&Versions::pinned()?);
        fact("image of the pods on the nodes", image.clone());
        let nodes = pods::on(&client, &options.run, &image, chosen, &enter).await?;
        if sets_felix(case) {
            run_namespace.note_felix().await?;
            let mut felix = felix_config::get(&client).await?;
            felix.extend((*case.cluster.felix).clone());
            felix_config::set(&client, &felix).await?;
            renew_felix(&client, &nodes).await?;
        }
        preflight::iptables_backends(&nodes, case).await?;
        signal::prepare(&client, case).await?;
        say("copying this program to the nodes' pods".to_owned());
        program::place(&nodes).await?;
        for agent in chainbreak_engine::run::agents(case) {
            let value = match agent {
                AgentName::KubeProxy => format!("real {version}, the cluster's own, as it is set"),
                AgentName::Felix => "real, the cluster's own".to_owned(),
            };
            fact(&agent.to_string(), value);
        }
        let logbook = Logbook::default();
        let raised = Raised {
            pods: places::Pods::default(),
            hosts: IndexMap::new(),
            ip_families: case.cluster.ip_families.clone(),
            models: Models::new(logbook.clone()),
            ours: None,
            logbook,
            felix: case.cluster.source(AgentName::Felix).cloned(),
            namespaces: Some(namespaces),
            end: run_namespace,
            tasks: Mutex::default(),
            client,
            nodes,
        };
        *raised.tasks.lock().unwrap_or_else(PoisonError::into_inner) =
            raised.following(case, since);
        Ok(raised)
    }
}

/// New pods of calico-node, one after the other: it is somebody's cluster.
async fn renew_felix(client: &Client, nodes: &Nodes) -> Result<(), KindError> {
    for node in &nodes.0 {
        let node = Nodes(vec![node.clone()]);
        iptables_backend::restart(client, &node, AgentName::Felix).await?;
    }
    Ok(())
}

fn sets_felix(case: &Case) -> bool {
    let sets = |step: &Step| {
        let switches = matches!(
            step,
            Step::Fault {
                fault: Fault::Switch { .. },
                ..
            }
        );
        switches || matches!(step, Step::Felix(_))
    };
    !case.cluster.felix.is_empty() || case.timeline.iter().any(sets)
}

#[async_trait]
impl Backend for InExisting {
    async fn survey(&self) -> Capabilities {
        let here = async {
            survey::kubectl().await?;
            self.options.usable().await
        };
        survey::of("cluster", here.await.map(|(_, _, version)| vec![version]))
    }

    async fn raise(
        &self,
        case: &Case,
        log: &EventLog,
        within: Duration,
    ) -> Result<Box<dyn Cluster>, RaiseError> {
        match Box::pin(self.up(case, log, within)).await {
            Ok(raised) => {
                // From here on it is ended by whoever has it.
                self.hold(None);
                Ok(Box::new(raised))
            }
            Err(error) => Err(RaiseError {
                what: "use the existing cluster".to_owned(),
                source: Box::new(error),
            }),
        }
    }

    async fn finish(&self) -> Result<(), BackendError> {
        match self.hold(None) {
            Some(run_namespace) => Ok(run_namespace.end().await?),
            None => Ok(()),
        }
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(&self.options)
    }
}
