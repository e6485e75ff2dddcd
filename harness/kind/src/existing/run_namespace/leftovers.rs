//! What runs have in a cluster, and which of them still run.

use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{ALONE, PROCESS, RUN};
use crate::error::KindError;

/// Machine and process, as the annotation has them.
pub(super) fn process() -> String {
    format!("{}/{}", machine(), std::process::id())
}

pub(crate) fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// A run's namespaces that are still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leftover {
    /// The run's own namespace.
    pub(crate) run: String,
    /// Whether the run goes on; `None` when that cannot be known: it is of another machine.
    pub(crate) alive: Option<bool>,
}

/// What runs have in a cluster. A run that has no process any more to be asked for is over.
pub(crate) async fn leftovers(client: &Client) -> Result<Vec<Leftover>, KindError> {
    let labelled = ListParams::default().labels(RUN);
    let listed = Api::<Namespace>::all(client.clone()).list(&labelled).await;
    let listed = listed.map_err(KindError::api("look for namespaces of ours"))?;
    let mut found: Vec<Leftover> = Vec::new();
    for namespace in listed.items {
        let Some(run) = namespace.labels().get(RUN).cloned() else {
            continue;
        };
        let process = namespace.annotations().get(PROCESS);
        let alive = process.map(|it| is_alive(it));
        match found.iter_mut().find(|it| it.run == run) {
            Some(known) => known.alive = alive.unwrap_or(known.alive),
            None => found.push(Leftover {
                alive: alive.unwrap_or(Some(false)),
                run,
            }),
        }
    }
    Ok(found)
}

/// Takes it upon this process to remove what a run has left. `false` where another one has just done so.
pub(super) async fn claim(client: &Client, run: &str) -> Result<bool, KindError> {
    let all = Api::<Namespace>::all(client.clone());
    for name in [run, ALONE] {
        let found = all.get_opt(name).await;
        let found = found.map_err(KindError::api(format!("look for the namespace {name}")))?;
        let ours = found.filter(|it| it.labels().get(RUN).is_some_and(|it| it == run));
        let Some(version) = ours.and_then(|it| it.resource_version()) else {
            continue;
        };
        let metadata = json!({ "resourceVersion": version, "annotations": { PROCESS: process() } });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        return match all.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(false)
            }
            Err(error) => Err(KindError::api(format!("note who removes {run}"))(error)),
        };
    }
    Ok(true)
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
