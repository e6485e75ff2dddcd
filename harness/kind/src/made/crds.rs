//! The custom resources that Felix's model watches, where no Calico has brought them along.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{error::KindError, wait};

/// Who applies what Calico's manifests, or we, bring along.
pub(crate) const FIELD_MANAGER: &str = "chainbreak";
const GROUP: &str = "crd.projectcalico.org";
/// Plural and kind; both are cluster-wide.
const KINDS: [(&str, &str); 2] = [
    ("felixconfigurations", "FelixConfiguration"),
    ("ippools", "IPPool"),
];
/// What the API may take to serve a new kind.
const ESTABLISHED: Duration = Duration::from_secs(30);

/// Has the API serve them, without a schema: what Felix does not know, Felix ignores.
pub(crate) async fn of_felix(client: &Client) -> Result<(), KindError> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for (plural, kind) in KINDS {
        let name = format!("{plural}.{GROUP}");
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": name },
            "spec": {
                "group": GROUP,
                "scope": "Cluster",
                "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
                "versions": [{
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
                }],
            },
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(&name, &params, &Patch::Apply(&definition)).await;
        applied.map_err(KindError::api(format!("define {name}")))?;
        established(&api, &name).await?;
    }
    Ok(())
}

/// Waits until the API serves the kind.
pub(crate) async fn established(
    api: &Api<CustomResourceDefinition>,
    name: &str,
) -> Result<(), KindError> {
    let look = || async {
        let found = api.get(name).await.map_err(|error| error.to_string())?;
        let conditions = found.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        if conditions.any(|it| it.type_ == "Established" && it.status == "True") {
            Ok(())
        } else {
            Err("it is not established".to_owned())
        }
    };
    let what = format!("the API serves {name}");
    wait::until(&what, ESTABLISHED, look, wait::nothing).await
}
