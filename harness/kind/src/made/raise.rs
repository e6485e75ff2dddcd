//! From a case to its cluster: found or made, and brought to where the engine takes over.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chainbreak_engine::{log::EventLog, logbook::Logbook};
use chainbreak_model::{
    case::{Case, Step},
    event::EventKind,
    names::AgentName,
};
use jiff::Timestamp;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    agent::Order,
    error::KindError,
    made::{
        calico::{self, Way},
        config, crds, docker,
        end::EndOfCase,
        images, iptables_backend,
        journal::Journal,
        leftovers,
        owned_cluster::{self, OwnedCluster},
        spec::{Felix, Options, Spec},
        survey,
    },
    name::ClusterName,
    shared::{
        cluster::Raised, connect::connect, felix::Models, felix_config, nodes::Nodes, pods::Pods,
        program, signal,
    },
    tool::Tool,
    versions::{CalicoRelease, Versions},
    wait,
};

/// What `kind create cluster` may take, images apart.
const CREATE: Duration = Duration::from_secs(600);
/// What the API of a cluster that is there may take to answer.
const ANSWER: Duration = Duration::from_secs(60);
/// What kind may take to answer.
const SHORT: Duration = Duration::from_secs(30);
/// Distance of two nodes' seeds, as in the lab.
const STRIDE: u64 = 7919;

/// Where a cluster is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was made for the case.
    Made,
    /// An earlier case has used it.
    Found,
}

/// A cluster that is being raised.
pub(crate) struct Raising<'a> {
    pub(crate) case: &'a Case,
    pub(crate) log: &'a EventLog,
    pub(crate) options: &'a Options,
    /// What all of it may take.
    pub(crate) ready_within: Duration,
    pub(crate) journal: &'a Journal,
    /// Where the cluster is noted as soon as it is ours to delete.
    pub(crate) held: &'a Mutex<Option<Arc<OwnedCluster>>>,
}

impl Raising<'_> {
    pub(crate) fn say(&self, text: impl Into<String>) {
        self.log.append(EventKind::Step { text: text.into() });
    }

    pub(crate) fn fact(&self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        self.log.append(EventKind::Fact { name, value });
    }

    /// Everything up to where manifests are applied.
    pub(crate) async fn raise(&self) -> Result<Raised, KindError> {
        let pins = Versions::pinned()?;
        let kind = survey::kind(&pins).await?;
        self.fact("kind", kind);
        let image = images::of_nodes(self.case, self.options, &pins).await?;
        let spec = Spec::of(self.case, image, self.options)?;
        // Before anything is made for it.
        let manifest = match &spec.felix {
            Some(Felix::Calico(version)) => calico::manifest(version, self.options, &pins).await?,
            Some(Felix::Model) | None => Vec::new(),
        };
        let since = Timestamp::now();
        let (owned, origin) = self.find_or_make(&spec).await?;
        let client = client(&kubeconfig(&owned.name, Reach::Host).await?).await?;
        answers(&client).await?;
        let containers = (1..=spec.nodes).map(|number| owned.name.container(number));
        let entries: Vec<_> = containers.map(|it| docker::entry(&it)).collect();
        let nodes = Nodes::registered(&client, &entries).await?;
        leftovers::without_names(&client).await?;
        if self.options.preload {
            self.preload(&nodes, &spec, &manifest, &pins).await?;
        }
        self.configure(&client, &spec, &manifest).await?;
        self.make_fit(&client, &nodes, &spec, origin).await?;
        let hosts = self.hosts(&client, &nodes, &spec, &pins).await?;
        self.facts(&spec);
        let logbook = Logbook::default();
        let raised = Raised {
            pods: Pods::default(),
            hosts: hosts.all.clone(),
            models: Models::new(logbook.clone()),
            logbook,
            felix: self.case.cluster.source(AgentName::Felix).cloned(),
            namespaces: None,
            end: Arc::new(EndOfCase {
                owned,
                hosts,
                manifests: objects(self.case),
            }),
            tasks: Mutex::default(),
            client,
            nodes,
        };
        self.begin(raised, &spec, since).await
    }

    /// Nodes as the case wants them, ready and with this program on them.
    async fn make_fit(
        &self,
        client: &Client,
        nodes: &Nodes,
        spec: &Spec,
        origin: Origin,
    ) -> Result<(), KindError> {
        self.say("waiting until every node is ready");
        nodes.ready(client).await?;
        nodes.untaint(client).await?;
        iptables_backend::choose(client, nodes, spec, origin).await?;
        signal::prepare(client, self.case).await?;
        program::place(nodes).await
    }

    /// The standing cluster of that name, if it may be used, or a new one.
    async fn find_or_make(&self, spec: &Spec) -> Result<(Arc<OwnedCluster>, Origin), KindError> {
        let name = spec.name();
        let used = self.journal.begin(&name)?;
        let was_ours = used.was_ours;
        let owned = Arc::new(OwnedCluster::new(name.clone(), used, self.options.reuse));
        let beside = docker::beside(&name).await?;
        if !beside.is_empty() {
            let names = beside.join(", ");
            self.say(format!(
                "removing what an earlier run left beside {name}: {names}"
            ));
            docker::remove(&beside).await?;
        }
        let standing = docker::containers(&name).await?;
        if let Some(first) = standing.first() {
            if !was_ours && !docker::is_ours(&first.name, &name).await? {
                owned.release()?;
                return Err(KindError::Foreign { name });
            }
            self.hold(&owned);
            let complete = standing.len() == usize::from(spec.nodes);
            if self.options.reuse && complete && standing.iter().all(|it| it.running) {
                self.say(format!("using the cluster {name} again"));
                return Ok((owned, Origin::Found));
            }
            self.say(format!("deleting what an earlier run left of {name}"));
            owned_cluster::delete(&name).await?;
        }
        self.hold(&owned);
        self.say(format!(
            "creating the cluster {name} of {}",
            spec.image.name
        ));
        create(&name, spec).await?;
        Ok((owned, Origin::Made))
    }

    fn hold(&self, owned: &Arc<OwnedCluster>) {
        let mut held = self
            .held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *held = Some(Arc::clone(owned));
    }

    async fn preload(
        &self,
        nodes: &Nodes,
        spec: &Spec,
        calico: &[serde_json::Value],
        pins: &Versions,
    ) -> Result<(), KindError> {
        let mut wanted = images::of_pods(&objects(self.case));
        wanted.extend(images::of_pods(calico));
        // The operator's manifest does not say what it makes.
        if let (Some(Felix::Calico(version)), Way::Operator) =
            (&spec.felix, self.options.calico_install)
        {
            let release = pins.calico(version);
            wanted.extend(release.into_iter().flat_map(CalicoRelease::of_operator));
        }
        for image in wanted {
            self.say(format!("loading {image} into the nodes"));
            docker::have(&image).await?;
            images::load(&image, nodes).await?;
        }
        Ok(())
    }

    /// FelixConfiguration, before Felix starts, and Calico.
    async fn configure(
        &self,
        client: &Client,
        spec: &Spec,
        manifest: &[serde_json::Value],
    ) -> Result<(), KindError> {
        match &spec.felix {
            None => Ok(()),
            Some(Felix::Model) => {
                crds::of_felix(client).await?;
                felix_config::set(client, &self.case.cluster.felix).await
            }
            Some(Felix::Calico(version)) => {
                self.say(format!("installing Calico {version}"));
                let install = calico::Install {
                    client,
                    order: calico::Order {
                        spec,
                        way: self.options.calico_install,
                        felix: &self.case.cluster.felix,
                        pools: calico::pools(&self.case.manifests),
                    },
                    // When it is over there is still time to ask its pods why they are not ready.
                    within: self.ready_within / 2,
                };
                install.apply(manifest).await
            }
        }
    }

    fn facts(&self, spec: &Spec) {
        let image = &spec.image;
        self.fact("node image", &image.name);
        if spec.proxy.is_some() {
            let value = format!("real {}, the cluster's own", image.version);
            self.fact(AgentName::KubeProxy.to_string(), value);
        }
        let felix = match &spec.felix {
            None => return,
            Some(Felix::Calico(version)) => {
                let file = self.options.calico_install.file();
                format!("real {version}, Calico's {file}")
            }
            Some(Felix::Model) => {
                let version = self.case.cluster.version(AgentName::Felix);
                format!("model {} (asked for)", version.unwrap_or_default())
            }
        };
        self.fact(AgentName::Felix.to_string(), felix);
    }

    /// Starts what lives beside the case: logs and models.
    async fn begin(
        &self,
        mut raised: Raised,
        spec: &Spec,
        since: Timestamp,
    ) -> Result<Raised, KindError> {
        let mut tasks = raised.following(self.case, since);
        if spec.felix == Some(Felix::Model) {
            let kubeconfig = kubeconfig(&spec.name(), Reach::Nodes).await?;
            for (node, number) in raised.nodes.0.iter().zip(0..) {
                let order = Order {
                    version: self
                        .case
                        .cluster
                        .version(AgentName::Felix)
                        .unwrap_or_default()
                        .to_owned(),
                    node: node.registered.clone(),
                    seed: self.case.seed.wrapping_add(STRIDE.wrapping_mul(number)),
                    life: 1,
                    ipv6: spec
                        .ip_families
                        .contains(&chainbreak_model::case::IpFamily::V6),
                    kubeconfig: kubeconfig.clone(),
                };
                raised.models.start(node, order, self.log, &mut tasks);
            }
        }
        raised.tasks = Mutex::new(tasks);
        Ok(raised)
    }
}

/// Everything that a case makes, in order.
pub(crate) fn objects(case: &Case) -> Vec<serde_json::Value> {
    let later = case.timeline.iter().filter_map(|step| match step {
        Step::Apply(objects) => Some(objects),
        _ => None,
    });
    let later = later.flatten();
    case.manifests.iter().chain(later).cloned().collect()
}

/// Waits until the API answers at all.
async fn answers(client: &Client) -> Result<(), KindError> {
    let look = || async {
        let version = client.apiserver_version().await;
        version.map(drop).map_err(|error| error.to_string())
    };
    let what = "the cluster's API answers";
    wait::until(what, ANSWER, look, || async { String::new() }).await
}

async fn create(name: &ClusterName, spec: &Spec) -> Result<(), KindError> {
    // Not the person's own kubeconfig: what we need of it we ask for.
    let nowhere =
        tempfile::NamedTempFile::new().map_err(KindError::file("make", "a kubeconfig"))?;
    let kubeconfig = nowhere.path().display().to_string();
    let argv = [
        "kind",
        "create",
        "cluster",
        "--name",
        name.as_str(),
        "--config",
        "-",
        "--kubeconfig",
        &kubeconfig,
        "--wait",
        "0s",
    ];
    let create = Tool::new(CREATE, argv).reading(config::render(spec));
    create.output().await.map(drop)
}

/// From where the API is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// This process.
    Host,
    /// The nodes' containers.
    Nodes,
}

async fn kubeconfig(name: &ClusterName, reach: Reach) -> Result<String, KindError> {
    let mut argv = vec!["kind", "get", "kubeconfig", "--name", name.as_str()];
    if reach == Reach::Nodes {
        argv.push("--internal");
    }
    Tool::new(SHORT, argv).output().await
}

async fn client(kubeconfig: &str) -> Result<Client, KindError> {
    let unusable = |why: String| KindError::Kubeconfig {
        path: "of kind".into(),
        why,
    };
    let parsed = Kubeconfig::from_yaml(kubeconfig).map_err(|error| unusable(error.to_string()))?;
    connect(parsed, &KubeConfigOptions::default())
        .await
        .map_err(unusable)
}
