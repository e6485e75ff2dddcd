//! What a run has in an existing cluster: namespaces with a label, and what it changed beside them. It is noted in the run's own
//! namespace, so that whoever finds that can undo it: the end of the case, or `chainbreak clean`.

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use chainbreak_model::case::Case;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};

use crate::{
    error::KindError,
    existing::Existing,
    shared::{cluster::End, felix_config, signal},
    wait,
};

/// The label of every namespace of ours; the value is the run's own, which has the annotations.
pub(super) const RUN: &str = "chainbreak.dev/run";
/// An annotation: machine and process of the run.
const PROCESS: &str = "chainbreak.dev/process";
/// An annotation: FelixConfiguration's `spec` as it was.
const FELIX: &str = "chainbreak.dev/felix";
/// An annotation: agents were made to run where a label is.
const AGENTS: &str = "chainbreak.dev/agents";
/// What namespaces may take to be gone, with all that is in them.
const GONE: Duration = Duration::from_secs(120);

/// See the module.
#[derive(Debug)]
pub(crate) struct RunNamespace {
    client: ClientHandle,
    run: String,
}

/// A client, which tells nobody what it is.
struct ClientHandle(Client);

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl RunNamespace {
    /// Makes the run's namespace. One that is there already is another run's.
    pub(super) async fn begin(client: &Client, run: &str, case: &Case) -> Result<Self, KindError> {
        let mut annotations = json!({ PROCESS: process() });
        if signal::touches_any(case) {
            annotations[AGENTS] = "labelled".into();
        }
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": run,
                "labels": { RUN: run, "pod-security.kubernetes.io/enforce": "privileged" },
                "annotations": annotations,
            },
        });
        let namespace: Namespace = serde_json::from_value(namespace).expect("it is a namespace");
        let all = Api::<Namespace>::all(client.clone());
        match all.create(&PostParams::default(), &namespace).await {
            Ok(_made) => Ok(Self {
                client: ClientHandle(client.clone()),
                run: run.to_owned(),
            }),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let why = format!(
                    "a namespace {run} is there that this run did not make: it is not touched"
                );
                Err(KindError::Unable(why))
            }
            Err(error) => Err(KindError::api(format!("make the namespace {run}"))(error)),
        }
    }

    /// Notes FelixConfiguration as it is, before it is changed.
    pub(super) async fn note_felix(&self) -> Result<(), KindError> {
        let spec = felix_config::get(&self.client.0).await?;
        let text = serde_json::to_string(&spec).expect("a JSON object has string keys");
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { FELIX: text } } }));
        let all = Api::<Namespace>::all(self.client.0.clone());
        let noted = all.patch(&self.run, &PatchParams::default(), &patch).await;
        noted
            .map(drop)
            .map_err(KindError::api("note FelixConfiguration"))
    }

    /// Sets back and removes everything.
    pub(crate) async fn end(&self) -> Result<(), KindError> {
        undo(&self.client.0, &self.run).await
    }
}

#[async_trait]
impl End for RunNamespace {
    fn before_upgrade(&self) -> Result<(), KindError> {
        let why = "an existing cluster is upgraded by whoever has it";
        Err(KindError::Unable(why.to_owned()))
    }

    async fn after_case(&self, _: &Client) -> Vec<KindError> {
        self.end().await.err().into_iter().collect()
    }
}

/// Machine and process, as the annotation has them.
fn process() -> String {
    format!("{}/{}", machine(), std::process::id())
}

pub(super) fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// A run's namespaces that are still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leftover {
    /// The run's own namespace.
    pub(super) run: String,
    /// Whether the run goes on; `None` when that cannot be known: it is of another machine.
    pub(super) alive: Option<bool>,
}

/// What runs have in that cluster.
pub(super) async fn leftovers(existing: &Existing) -> Result<Vec<Leftover>, KindError> {
    let target = existing.target()?;
    let client = target.client().await?;
    target.version(&client).await?;
    let labelled = ListParams::default().labels(RUN);
    let listed = Api::<Namespace>::all(client).list(&labelled).await;
    let listed = listed.map_err(KindError::api("look for namespaces of ours"))?;
    let mut found: Vec<Leftover> = Vec::new();
    for namespace in listed.items {
        let Some(run) = namespace.labels().get(RUN).cloned() else {
            continue;
        };
        let own = namespace.name_any() == run;
        let alive = namespace
            .annotations()
            .get(PROCESS)
            .and_then(|it| is_alive(it));
        match found.iter_mut().find(|it| it.run == run) {
            Some(known) if own => known.alive = alive,
            Some(_) => {}
            // Where the run's own namespace is gone already, so is the run.
            None => found.push(Leftover {
                alive: if own { alive } else { Some(false) },
                run,
            }),
        }
    }
    Ok(found)
}

/// Sets back and removes what a run has left.
pub(super) async fn remove(existing: &Existing, leftover: &Leftover) -> Result<(), KindError> {
    let client = existing.target()?.client().await?;
    undo(&client, &leftover.run).await
}

fn is_alive(process: &str) -> Option<bool> {
    let (machine, pid) = process.rsplit_once('/')?;
    (machine == self::machine()).then(|| runs(pid))
}

/// Whether a process of this machine is more than what nobody has waited for.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    let stat = stat.unwrap_or_default();
    // After the command's name in brackets, which may have brackets itself.
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The first error of all, when as much as possible is undone.
async fn undo(client: &Client, run: &str) -> Result<(), KindError> {
    let all = Api::<Namespace>::all(client.clone());
    let own = all.get_opt(run).await;
    let own = own.map_err(KindError::api(format!("look for the namespace {run}")))?;
    let noted = |name: &str| own.as_ref()?.annotations().get(name).cloned();
    let mut undone = Ok(());
    if noted(AGENTS).is_some() {
        undone = undone.and(signal::release(client).await);
    }
    if let Some(spec) = noted(FELIX) {
        let spec: Map<String, Value> = serde_json::from_str(&spec).unwrap_or_default();
        undone = undone.and(felix_config::set(client, &spec).await);
    }
    // Its notes go when there is nothing left to undo.
    undone?;
    gone(client, run).await
}

/// Ends all pods of these namespaces at once. A namespace that is deleted with pods in it looks at them seldom, and a `sleep`
/// does not care for SIGTERM.
async fn idle(client: &Client, namespaces: &[String]) -> Result<(), KindError> {
    let (now, all) = (
        DeleteParams::background().grace_period(0),
        ListParams::default(),
    );
    let doing = |what: &str, name: &str| KindError::api(format!("delete the {what} in {name}"));
    for name in namespaces {
        let deployments = Api::<Deployment>::namespaced(client.clone(), name);
        let deleted = deployments.delete_collection(&now, &all).await;
        deleted.map_err(doing("deployments", name))?;
        let sets = Api::<DaemonSet>::namespaced(client.clone(), name);
        let deleted = sets.delete_collection(&now, &all).await;
        deleted.map_err(doing("daemonsets", name))?;
    }
    let look = || async {
        for name in namespaces {
            let pods = Api::<Pod>::namespaced(client.clone(), name);
            let deleted = pods.delete_collection(&now, &all).await;
            deleted.map_err(|error| error.to_string())?;
            let left = pods.list(&all).await.map_err(|error| error.to_string())?;
            if let Some(pod) = left.items.first() {
                return Err(format!("{} is still there", pod.name_any()));
            }
        }
        Ok(())
    };
    let what = "the pods of our namespaces are gone";
    wait::until(what, GONE, look, || async { String::new() }).await
}

async fn gone(client: &Client, run: &str) -> Result<(), KindError> {
    let all = Api::<Namespace>::all(client.clone());
    let ours = ListParams::default().labels(&format!("{RUN}={run}"));
    let listed = all.list(&ours).await;
    let listed = listed.map_err(KindError::api(format!("list the namespaces of {run}")))?;
    // The run's own one last: the others are found by it.
    let mut names: Vec<String> = listed.items.iter().map(ResourceExt::name_any).collect();
    names.sort_by_key(|name| name == run);
    idle(client, &names).await?;
    for name in names {
        match all.delete(&name, &DeleteParams::background()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(KindError::api(format!("delete {name}"))(error)),
        }
    }
    let look = || async {
        let listed = all.list(&ours).await.map_err(|error| error.to_string())?;
        match listed.items.first() {
            None => Ok(()),
            Some(namespace) => Err(format!("{} is still there", namespace.name_any())),
        }
    };
    let what = format!("the namespaces of {run} are gone");
    wait::until(&what, GONE, look, || async { String::new() }).await
}
