//! Waiting until a rollout is over, as `kubectl rollout status` does, and until the pods that it replaces are gone, too.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, Client, api::ListParams, core::Selector};
use tokio::time::{Instant, timeout};

use crate::{evidence::is_ready, faults::Faults, infra_error::InfraError};

/// What a rollout may take.
pub(super) const WITHIN: Duration = Duration::from_secs(60);
/// Distance of two looks.
const LOOK: Duration = Duration::from_millis(50);
/// What the API may take to answer one.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Returns when it is over. Faults end in their time meanwhile.
pub(super) async fn over(
    client: &Client,
    faults: &mut Faults,
    (namespace, deployment): (&str, &str),
) -> Result<(), InfraError> {
    let deadline = Instant::now() + WITHIN;
    let mut missing = "the API has not answered".to_owned();
    loop {
        // One that hangs keeps no fault from ending.
        let looked = timeout(ANSWERS_WITHIN, look(client, namespace, deployment)).await;
        match looked {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(still)) => missing = still,
            Err(_elapsed) => {}
        }
        if Instant::now() >= deadline {
            let what = format!("wait until the rollout of {namespace}/{deployment} is over");
            return Err(InfraError::new(what, missing));
        }
        faults.until(Instant::now() + LOOK).await;
    }
}

async fn look(client: &Client, namespace: &str, name: &str) -> Result<(), String> {
    let failed = |error: kube::Error| error.to_string();
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployment = deployments.get(name).await.map_err(failed)?;
    let selector = deployment.spec.as_ref().map(|spec| spec.selector.clone());
    let selector: Selector = selector
        .unwrap_or_default()
        .try_into()
        .map_err(|error| format!("its selector cannot be read: {error}"))?;
    let params = ListParams::default().labels_from(&selector);
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let mut pods = pods.list(&params).await.map_err(failed)?.items;
    // Of one that was evicted something stays, and nobody asks it.
    pods.retain(|pod| pod.status.as_ref().and_then(|it| it.phase.as_deref()) != Some("Failed"));
    is_over(&deployment, &pods)
}

/// Whether it is over by what the API holds; an error says what is missing.
fn is_over(deployment: &Deployment, pods: &[Pod]) -> Result<(), String> {
    let status = deployment.status.clone().unwrap_or_default();
    let spec = deployment.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    if status.observed_generation != deployment.metadata.generation {
        return Err("it has not begun".to_owned());
    }
    let updated = status.updated_replicas.unwrap_or(0);
    if updated != wanted {
        return Err(format!(
            "{updated} of {wanted} pods are of its newest template"
        ));
    }
    let (all, ready) = (pods.len(), pods.iter().filter(|pod| is_ready(pod)).count());
    if usize::try_from(wanted) != Ok(all) || all != ready {
        return Err(format!(
            "{all} pods are there, {ready} of them ready, and {wanted} are wanted"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(observed: i64, updated: i32) -> Deployment {
        let deployment = json!({
            "metadata": { "generation": 2 },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": { "observedGeneration": observed, "updatedReplicas": updated },
        });
        serde_json::from_value(deployment).unwrap()
    }

    fn pods(ready: &[bool]) -> Vec<Pod> {
        let pod = |ready: &bool| {
            let status = if *ready { "True" } else { "False" };
            let conditions = json!([{ "type": "Ready", "status": status }]);
            serde_json::from_value(json!({ "status": { "conditions": conditions } })).unwrap()
        };
        ready.iter().map(pod).collect()
    }

    #[test]
    fn a_rollout_is_over_when_as_many_pods_as_are_wanted_are_new_and_ready_and_no_other_is_there() {
        let over = |observed, updated, ready: &[bool]| {
            is_over(&deployment(observed, updated), &pods(ready))
        };
        assert_eq!(over(2, 2, &[true, true]), Ok(()));
        for (observed, updated, ready, missing) in [
            (1, 2, &[true, true][..], "it has not begun"),
            (
                2,
                1,
                &[true, true],
                "1 of 2 pods are of its newest template",
            ),
            (
                2,
                2,
                &[true, false],
                "2 pods are there, 1 of them ready, and 2 are wanted",
            ),
            // The one that goes is still ready.
            (
                2,
                2,
                &[true, true, true],
                "3 pods are there, 3 of them ready, and 2 are wanted",
            ),
        ] {
            assert_eq!(over(observed, updated, ready), Err(missing.to_owned()));
        }
    }
}
