//! The cluster of a case: the standing one, if it is as it was before its first case, or a new one.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
};

use chainbreak_model::case::IpFamily;
use futures::future::join;
use jiff::Timestamp;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tokio::time::Duration;

use crate::{
    error::KindError,
    made::{
        calico::own_images::OwnImage,
        clean, config, docker,
        hosts::Hosts,
        leftovers,
        owned_cluster::{self, OwnedCluster},
        raise::Raising,
        spec::Spec,
        state::{self, Back, State},
    },
    name::ClusterName,
    shared::{connect::connect, nodes::Nodes, program},
    tool::Tool,
    wait::{self, left},
};

/// What `kind create cluster` may take, images apart.
const CREATE: Duration = Duration::from_secs(600);
/// What the API of a cluster that is there may take to answer.
const ANSWER: Duration = Duration::from_secs(60);
/// What kind may take to answer.
const SHORT: Duration = Duration::from_secs(30);

/// A pod's interface is a link between two: nobody else has its node's address there. Until that was asked, for two seconds, the node finds
/// no neighbour there (the engine waits for it, on clusters that are not ours).
const WITHOUT_DETECTION: [&str; 4] = ["sysctl", "-q", "-w", "net.ipv6.conf.default.accept_dad=0"];

/// On the first node: how the API is reached from here. kind takes half a second to say so.
const KUBECONFIG: &str = "/kind/chainbreak-kubeconfig";
/// The same, from the nodes' containers (as kubeadm writes it).
const OF_NODES: &str = "/etc/kubernetes/admin.conf";

/// Where a cluster is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was made for the case.
    Made,
    /// An earlier case has used it.
    Found,
}

/// So many clusters are there at a time, this one included: each takes a gigabyte and a half of memory, and its kubelets and container
/// runtimes a part of what the kernel gives a user to watch files with.
const KEPT: usize = 2;

/// What a cluster is to be.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    pub(super) spec: &'a Spec,
    /// Calico's, or nothing.
    pub(super) manifest: &'a [Value],
    /// Those that Calico's pods want.
    pub(super) images: &'a BTreeSet<String>,
    /// What a person gave in place of some of them.
    pub(super) own: &'a [(&'a OwnImage, Vec<String>)],
    /// The image of what answers on hosts beside it.
    pub(super) nginx: &'a str,
}

/// A cluster that a case may have.
pub(super) struct Standing {
    pub(super) owned: Arc<OwnedCluster>,
    pub(super) client: Client,
    pub(super) nodes: Nodes,
    /// Beside it. Nobody reaches them yet.
    pub(super) hosts: Hosts,
    /// Since when its agents' logs are the case's.
    pub(super) since: Timestamp,
}

impl Raising<'_> {
    /// The case's cluster, fit for it.
    pub(super) async fn stand(&self, plan: Plan<'_>) -> Result<Standing, KindError> {
        let (standing, origin) = self.found(plan).await?;
        if !standing.owned.is_kept() {
            return Ok(standing);
        }
        let standing = self.as_it_was(standing, origin, plan).await?;
        leftovers::note_pods(&standing.nodes).await?;
        Ok(standing)
    }

    /// One that is kept, if it is as it was before its first case, or another one.
    async fn as_it_was(
        &self,
        standing: Standing,
        origin: Origin,
        plan: Plan<'_>,
    ) -> Result<Standing, KindError> {
        let Standing {
            owned,
            client,
            nodes,
            hosts,
            ..
        } = &standing;
        if origin == Origin::Made {
            State::keep(client, nodes, plan.spec).await?;
            return Ok(standing);
        }
        let again = leftovers::scrub(nodes, plan.spec.is_foreseen());
        let differences = match State::back(client, nodes, plan.spec, again).await? {
            Back::Soon => {
                self.say(format!("{} is as it was before its first case", owned.name));
                return Ok(standing);
            }
            Back::Tidied(differences) => {
                self.say(format!(
                    "{} is as it was before its first case since it was tidied once more: {}",
                    owned.name,
                    state::named(&differences)
                ));
                return Ok(standing);
            }
            Back::Not(differences) => differences,
        };
        self.say(format!(
            "{} is not as it was before its first case, and is made anew: {}",
            owned.name,
            state::named(&differences)
        ));
        for error in hosts.end().await {
            // What stands beside the cluster goes with it.
            tracing::debug!(%error, "a container stayed");
        }
        owned.delete().await?;
        let (standing, _) = self.found(plan).await?;
        let Standing { client, nodes, .. } = &standing;
        State::keep(client, nodes, plan.spec).await?;
        Ok(standing)
    }

    async fn found(&self, plan: Plan<'_>) -> Result<(Standing, Origin), KindError> {
        let spec = plan.spec;
        let since = Timestamp::now();
        let (owned, known) = self.find_or_make(spec).await?;
        let origin = if known.is_some() {
            Origin::Found
        } else {
            Origin::Made
        };
        let program = program::own()?;
        // Both come to their end, also where one fails: who makes containers is not to be broken off.
        let (hosts, readied) = join(
            self.start_hosts(spec, plan.nginx),
            self.readied(&owned.name, origin, known, plan, &program),
        )
        .await;
        let (hosts, (client, nodes)) = (hosts?, readied?);
        let standing = Standing {
            owned,
            client,
            nodes,
            hosts,
            since,
        };
        Ok((standing, origin))
    }

    /// The cluster's API, and its nodes, which are ready and have the case's agents, and this program.
    async fn readied(
        &self,
        name: &ClusterName,
        origin: Origin,
        known: Option<String>,
        plan: Plan<'_>,
        program: &[u8],
    ) -> Result<(Client, Nodes), KindError> {
        let kubeconfig = match known {
            Some(kubeconfig) => kubeconfig,
            None => keep_kubeconfig(name).await?,
        };
        let client = client(&kubeconfig).await?;
        answers(&client).await?;
        let containers = (1..=plan.spec.nodes).map(|number| name.container(number));
        let entries: Vec<_> = containers.map(|it| docker::entry(&it)).collect();
        let nodes = Nodes::registered(&client, &entries).await?;
        if origin == Origin::Made {
            leftovers::without_names(&client).await?;
            if plan.spec.ip_families.contains(&IpFamily::V6) {
                nodes.run(&WITHOUT_DETECTION).await?;
            }
        }
        self.load(&nodes, origin, plan).await?;
        // Agents take their time, and little of the machine's.
        let (placed, agents) = join(
            program::place_once(&nodes, program),
            self.have_agents(&client, &nodes, origin, plan),
        )
        .await;
        placed?;
        agents?;
        self.say("waiting until every node is ready");
        nodes.ready(&client, left(self.until)).await?;
        nodes.untaint(&client).await?;
        Ok((client, nodes))
    }

    /// The standing cluster of that name, if it may be used, with its kubeconfig, or a new one.
    async fn find_or_make(
        &self,
        spec: &Spec,
    ) -> Result<(Arc<OwnedCluster>, Option<String>), KindError> {
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
            let runs = complete && standing.iter().all(|it| it.running);
            if self.options.reuse
                && runs
                && let Some(kubeconfig) = kept_kubeconfig(&name).await
            {
                self.say(format!("using the cluster {name} again"));
                return Ok((owned, Some(kubeconfig)));
            }
            self.say(format!("deleting what an earlier run left of {name}"));
            owned_cluster::delete(&name).await?;
        }
        self.hold(&owned);
        for other in self.journal.beyond(KEPT - 1)? {
            self.say(format!(
                "deleting the cluster {other}, which no run uses: {KEPT} are kept"
            ));
            match clean::remove(self.journal, &other).await {
                // Another run has taken it meanwhile.
                Ok(_) | Err(KindError::InUse { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.say(format!(
            "creating the cluster {name} of {}",
            spec.image.name
        ));
        create(&name, spec).await?;
        Ok((owned, None))
    }

    fn hold(&self, owned: &Arc<OwnedCluster>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(Arc::clone(owned));
    }
}

/// The kubeconfig of a cluster that was finished once: a run may have been killed while it made it, or installed Calico.
async fn kept_kubeconfig(name: &ClusterName) -> Option<String> {
    let look = format!("test -e {} && cat {KUBECONFIG}", state::FILE);
    let look = on_first(name, &["sh", "-c", &look]);
    look.output().await.ok()
}

/// Asks kind, and notes it for who uses the cluster again.
async fn keep_kubeconfig(name: &ClusterName) -> Result<String, KindError> {
    let argv = ["kind", "get", "kubeconfig", "--name", name.as_str()];
    let kubeconfig = Tool::new(SHORT, argv).output().await?;
    let note = format!("umask 077 && cat > {KUBECONFIG}");
    let note = on_first(name, &["sh", "-c", &note]).reading(kubeconfig.clone());
    note.output().await?;
    Ok(kubeconfig)
}

/// How the API is reached from the nodes' containers.
pub(super) async fn kubeconfig_of_nodes(name: &ClusterName) -> Result<String, KindError> {
    on_first(name, &["cat", OF_NODES]).output().await
}

fn on_first(name: &ClusterName, argv: &[&str]) -> Tool {
    let entry = docker::entry(&name.container(1)).into_iter();
    let argv = argv.iter().map(|&word| word.to_owned());
    Tool::new(SHORT, entry.chain(argv))
}

/// Waits until the API answers at all.
async fn answers(client: &Client) -> Result<(), KindError> {
    let look = || async {
        let version = client.apiserver_version().await;
        version.map(drop).map_err(|error| error.to_string())
    };
    let what = "the cluster's API answers";
    wait::until(what, ANSWER, look, wait::nothing).await
}

async fn create(name: &ClusterName, spec: &Spec) -> Result<(), KindError> {
    let create = ["create", "cluster", "--config", "-", "--wait", "0s"];
    owned_cluster::kind(CREATE, name, &create, config::render(spec)).await
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
