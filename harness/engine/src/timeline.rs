//! Playing a scenario's timeline, one step after the other.

use std::time::Duration;

use chainbreak_model::{case::Step, event::What};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{log::EventLog, trouble::Trouble};

/// Plays the steps. Times are kept on an absolute schedule: a slow API call makes no step late.
pub(crate) async fn play(client: &Client, steps: &[Step], log: &EventLog) -> Result<(), Trouble> {
    let mut due = Instant::now();
    for step in steps {
        match step {
            Step::Settle(duration) => due += *duration,
            Step::Churn {
                namespace,
                deployment,
                replicas,
                every,
                duration,
            } => {
                let end = due + *duration;
                for count in replicas.iter().cycle() {
                    if due >= end {
                        break;
                    }
                    sleep_until(due).await;
                    scale(client, namespace, deployment, *count, log).await?;
                    due += *every;
                }
                due = end;
            }
            Step::Felix(spec) => configure_felix(client, spec, log).await?,
        }
        sleep_until(due).await;
    }
    Ok(())
}

async fn scale(
    client: &Client,
    namespace: &str,
    deployment: &str,
    replicas: u32,
    log: &EventLog,
) -> Result<(), Trouble> {
    let text = format!("scale {namespace}/{deployment} to {replicas}");
    log.append(What::Step { text: text.clone() });
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let api = Api::<Deployment>::namespaced(client.clone(), namespace);
    let scaled = api
        .patch_scale(deployment, &PatchParams::default(), &patch)
        .await;
    scaled.map(drop).map_err(|error| Trouble::new(text, error))
}

/// Merges the fields into FelixConfiguration `default`, made when it is not there.
async fn configure_felix(
    client: &Client,
    spec: &Map<String, Value>,
    log: &EventLog,
) -> Result<(), Trouble> {
    let text = format!("set FelixConfiguration {}", Value::Object(spec.clone()));
    log.append(What::Step { text: text.clone() });
    let kind = GroupVersionKind::gvk("projectcalico.org", "v3", "FelixConfiguration");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let patch = Patch::Merge(json!({ "spec": spec }));
    let patched = api.patch("default", &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|error| Trouble::new(text, error))
}

/// How long the steps take together: a case's length from ready to judged.
pub fn length(steps: &[Step]) -> Duration {
    steps
        .iter()
        .map(|step| match step {
            Step::Settle(duration) | Step::Churn { duration, .. } => *duration,
            Step::Felix(_) => Duration::ZERO,
        })
        .sum()
}
