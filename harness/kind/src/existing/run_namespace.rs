//! What a run has in an existing cluster: namespaces with a label, and what it changed beside them. It is noted in the run's own
//! namespace, so that whoever finds that can undo it: the end of the case, or `chainbreak clean`.

mod alone;
mod debts;
mod gone;
mod leftovers;
mod objects;

use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_engine::cluster::{Debt, Debts, Place, Say};
use chainbreak_model::case::Case;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};

use crate::{
    error::KindError,
    existing::pods,
    shared::{cluster::End, felix_config, signal},
};

pub(super) use alone::ALONE;
pub(super) use leftovers::{Leftover, leftovers, machine};
pub(super) use objects::of as outside;

/// The label of every namespace of ours; the value is the run's own, which has the annotations.
pub(super) const RUN: &str = "chainbreak.dev/run";
/// An annotation: machine and process of the run.
const PROCESS: &str = "chainbreak.dev/process";
/// An annotation: FelixConfiguration's `spec` as it was.
const FELIX: &str = "chainbreak.dev/felix";
/// An annotation: agents were made to run where a label is.
const AGENTS: &str = "chainbreak.dev/agents";
/// An annotation: agents were paused.
const PAUSED: &str = "chainbreak.dev/paused";
/// An annotation: the case's objects outside of namespaces.
const OBJECTS: &str = "chainbreak.dev/objects";
/// An annotation for each act of a fault that is to be undone on a node: this and its number.
const OWES: &str = "chainbreak.dev/owes-";

/// See the module.
pub(crate) struct RunNamespace {
    client: Client,
    run: String,
    /// What puts a command into a pod of its namespace.
    enter: Vec<String>,
    debts: AtomicU64,
}

/// A client tells nobody what it is.
impl fmt::Debug for RunNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunNamespace({})", self.run)
    }
}

impl RunNamespace {
    /// That of a run; it need not be there.
    pub(super) fn of(client: &Client, run: &str, enter: Vec<String>) -> Self {
        Self {
            client: client.clone(),
            run: run.to_owned(),
            enter,
            debts: AtomicU64::new(0),
        }
    }

    /// Makes it, when no other run disturbs the cluster, or none is there that this one would disturb; each is waited for so long. One that is
    /// there already is another run's, or of a case of this one that could not be undone.
    pub(super) async fn begin(
        &self,
        case: &Case,
        disturbing: bool,
        patience: Duration,
        say: Say<'_>,
    ) -> Result<(), KindError> {
        let mut annotations = json!({});
        if signal::touches_any(case) {
            annotations[AGENTS] = "labelled".into();
        }
        if signal::pauses(case) {
            annotations[PAUSED] = "paused".into();
        }
        let objects = objects::of(case);
        if !objects.is_empty() {
            let text = serde_json::to_string(&objects).expect("names are strings");
            annotations[OBJECTS] = text.into();
        }
        if let Some(other) = self.in_the_way(disturbing).await? {
            say(format!("waits: {other}"));
        }
        if disturbing {
            self.wait_to_be_alone(patience).await?;
        }
        say(format!("making {}", self.run));
        loop {
            if !disturbing {
                self.wait_for_peace(patience).await?;
            }
            // Another run may have had the same ones.
            objects::are_new(&self.client, &objects).await?;
            if !self.make(&self.run, annotations.clone()).await? {
                let why = format!(
                    "there is a namespace {} already: what is noted in it is to be undone first",
                    self.run
                );
                return Err(KindError::Unable(why));
            }
            // One that began to disturb meanwhile waits for this one to be gone.
            if disturbing || self.disturber().await?.is_none() {
                return Ok(());
            }
            gone::gone(&self.client, &self.run).await?;
        }
    }

    /// Makes a namespace of the run. `false` where there is one of that name.
    async fn make(&self, name: &str, mut annotations: Value) -> Result<bool, KindError> {
        annotations[PROCESS] = leftovers::process().into();
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": { RUN: self.run, "pod-security.kubernetes.io/enforce": "privileged" },
                "annotations": annotations,
            },
        });
        let namespace: Namespace = serde_json::from_value(namespace).expect("it is a namespace");
        match self.all().create(&PostParams::default(), &namespace).await {
            Ok(_made) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(KindError::api(format!("make the namespace {name}"))(error)),
        }
    }

    fn all(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    /// Notes something with the run, or that it is over.
    async fn note(&self, name: &str, value: Option<String>) -> Result<(), KindError> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { name: value } } }));
        let noted = self
            .all()
            .patch(&self.run, &PatchParams::default(), &patch)
            .await;
        let doing = format!("note {name} in {}", self.run);
        noted.map(drop).map_err(KindError::api(doing))
    }

    /// Notes FelixConfiguration as it is, before it is changed.
    pub(super) async fn note_felix(&self) -> Result<(), KindError> {
        let spec = felix_config::get(&self.client).await?;
        let text = serde_json::to_string(&spec).expect("a JSON object has string keys");
        self.note(FELIX, Some(text)).await
    }

    /// Sets back and removes everything. The first error of all, when as much as possible is undone.
    pub(crate) async fn end(&self) -> Result<(), KindError> {
        let own = self.all().get_opt(&self.run).await;
        let doing = format!("look for the namespace {}", self.run);
        let own = own.map_err(KindError::api(doing))?;
        let noted: BTreeMap<String, String> =
            own.map_or_else(BTreeMap::new, |own| own.annotations().clone());
        // As long as there are pods on the nodes.
        let mut undone = self.settle(&noted).await;
        if noted.contains_key(PAUSED) {
            undone = undone.and(self.go_on().await);
        }
        if noted.contains_key(AGENTS) {
            undone = undone.and(signal::release(&self.client).await);
        }
        if let Some(spec) = noted.get(FELIX) {
            undone = undone.and(self.set_felix_back(spec).await);
        }
        if let Some(objects) = noted.get(OBJECTS) {
            undone = undone.and(objects::remove(&self.client, objects).await);
        }
        // Its notes go when there is nothing left to undo.
        undone?;
        gone::gone(&self.client, &self.run).await
    }

    async fn set_felix_back(&self, noted: &str) -> Result<(), KindError> {
        let spec: Map<String, Value> = serde_json::from_str(noted)
            .map_err(|error| KindError::Unable(format!("the annotation {FELIX}: {error}")))?;
        felix_config::set(&self.client, &spec).await.map(drop)
    }

    /// The run's pods, one on each of its nodes.
    async fn pods(&self) -> Result<Vec<Pod>, KindError> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.run);
        let listed = pods.list(&ListParams::default()).await;
        let doing = format!("list the pods of {}", self.run);
        listed
            .map(|listed| listed.items)
            .map_err(KindError::api(doing))
    }

    /// Has agents that are paused on the run's nodes go on.
    async fn go_on(&self) -> Result<(), KindError> {
        for pod in self.pods().await? {
            let node = pods::again(&self.client, &self.run, pod, &self.enter).await?;
            signal::go_on(&node).await?;
        }
        Ok(())
    }

    /// A pod on its node's network is no place of its own.
    async fn on_its_node(&self, debt: Debt) -> Result<Debt, String> {
        let Place::Pod { namespace, name } = &debt.at else {
            return Ok(debt);
        };
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let spec = pod.spec.unwrap_or_default();
        match spec.node_name.filter(|_| spec.host_network == Some(true)) {
            Some(node) => Ok(Debt {
                at: Place::Node(node.into()),
                ..debt
            }),
            None => Ok(debt),
        }
    }
}

#[async_trait]
impl Debts for RunNamespace {
    async fn owe(&self, debt: &Debt) -> Result<u64, String> {
        let number = self.debts.fetch_add(1, Ordering::Relaxed);
        let debt = self.on_its_node(debt.clone()).await?;
        let text = serde_json::to_string(&debt).map_err(|error| error.to_string())?;
        let noted = self.note(&format!("{OWES}{number}"), Some(text)).await;
        noted.map(|()| number).map_err(|error| error.to_string())
    }

    async fn paid(&self, number: u64) -> Result<(), String> {
        let noted = self.note(&format!("{OWES}{number}"), None).await;
        noted.map_err(|error| error.to_string())
    }
}

#[async_trait]
impl End for RunNamespace {
    fn before_upgrade(&self) -> Result<(), KindError> {
        let why = "an existing cluster is upgraded by whoever has it";
        Err(KindError::Unable(why.to_owned()))
    }

    fn debts(&self) -> Option<&dyn Debts> {
        Some(self)
    }

    async fn after_case(&self, _: &Client) -> Vec<KindError> {
        self.end().await.err().into_iter().collect()
    }
}

/// Sets back and removes what a run has left. `false` where another process has begun with that.
pub(super) async fn remove(
    client: &Client,
    leftover: &Leftover,
    enter: Vec<String>,
) -> Result<bool, KindError> {
    if !leftovers::claim(client, &leftover.run).await? {
        return Ok(false);
    }
    let run = RunNamespace::of(client, &leftover.run, enter);
    run.end().await.map(|()| true)
}
