//! The objects of a case that are in none of its namespaces. They are made new, or not at all, and removed after the case.

use std::time::Duration;

use chainbreak_engine::manifests::{delete, exists, is_cluster_scoped};
use chainbreak_model::case::{Case, ObjectRef, Step};
use kube::Client;
use serde_json::Value;

use crate::{error::KindError, wait};

/// What objects may take to be gone that somebody has to let go of.
const GONE: Duration = Duration::from_secs(60);

/// Namespaces apart, which go with their run.
pub(crate) fn of(case: &Case) -> Vec<ObjectRef> {
    let applied = case.timeline.iter().filter_map(|step| match step {
        Step::Apply(objects) => Some(objects),
        _ => None,
    });
    let all = case.manifests.iter().chain(applied.flatten());
    let mut objects: Vec<ObjectRef> = Vec::new();
    for object in all.filter_map(outside) {
        if !objects.contains(&object) {
            objects.push(object);
        }
    }
    objects
}

fn outside(object: &Value) -> Option<ObjectRef> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&object["kind"]);
    (is_cluster_scoped(&kind) && kind != "Namespace").then(|| ObjectRef {
        api_version: text(&object["apiVersion"]),
        kind,
        namespace: None,
        name: text(&object["metadata"]["name"]),
    })
}

/// Whether none of them is there: what is there is somebody's.
pub(super) async fn are_new(client: &Client, objects: &[ObjectRef]) -> Result<(), KindError> {
    for object in objects {
        let ObjectRef { kind, name, .. } = object;
        let there = exists(client, object).await;
        if there.map_err(KindError::api(format!("look for {kind} {name}")))? {
            return Err(KindError::Unable(format!(
                "the case makes {kind} {name}, and the cluster has one already: it is not touched"
            )));
        }
    }
    Ok(())
}

/// Removes those that are noted. One that is gone is no error.
pub(super) async fn remove(client: &Client, noted: &str) -> Result<(), KindError> {
    let objects: Vec<ObjectRef> = serde_json::from_str(noted).map_err(|error| {
        KindError::Unable(format!("which objects are ours is noted as: {error}"))
    })?;
    let mut removed = Ok(());
    for object in objects.iter().rev() {
        let deleted = match delete(client, object).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other,
        };
        let doing = format!("delete {} {}", object.kind, object.name);
        removed = removed.and(deleted.map_err(KindError::api(doing)));
    }
    removed?;
    let look = || async {
        are_new(client, &objects)
            .await
            .map_err(|error| error.to_string())
    };
    let what = "the case's objects outside of namespaces are gone";
    wait::until(what, GONE, look, wait::nothing).await
}

#[cfg(test)]
mod tests {
    use kube::{
        Api,
        api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
    };
    use serde_json::json;

    use super::*;
    use crate::{existing::rewrite::tests::case, served};

    async fn make_pool(client: &Client) {
        let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", "IPPool");
        let pools = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let pool = json!({
            "apiVersion": "crd.projectcalico.org/v1",
            "kind": "IPPool",
            "metadata": { "name": "pool" },
            "spec": { "cidr": "10.20.0.0/16" },
        });
        let pool = serde_json::from_value(pool).unwrap();
        pools.create(&PostParams::default(), &pool).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_outside_namespaces_is_removed_if_the_case_has_made_it() {
        let (client, objects) = (served::api(), of(&case()));
        let names: Vec<&str> = objects.iter().map(|it| it.kind.as_str()).collect();
        assert_eq!(names, ["IPPool"]);
        are_new(&client, &objects).await.unwrap();
        let noted = serde_json::to_string(&objects).unwrap();
        remove(&client, &noted).await.unwrap();
        make_pool(&client).await;
        let refused = are_new(&client, &objects).await.unwrap_err().to_string();
        assert!(refused.contains("the case makes IPPool pool"), "{refused}");
        remove(&client, &noted).await.unwrap();
        are_new(&client, &objects).await.unwrap();
    }
}
