//! The end of a run's namespaces, with all that is in them.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};

use super::RUN;
use crate::{error::KindError, wait};

/// What namespaces may take to be gone, with all that is in them.
const GONE: Duration = Duration::from_secs(120);

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
    wait::until(what, GONE, look, wait::nothing).await
}

/// Ends them, and waits until they are gone.
pub(super) async fn gone(client: &Client, run: &str) -> Result<(), KindError> {
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
    wait::until(&what, GONE, look, wait::nothing).await
}
