//! Calico by its manifest: pinned and checked, or a file that the person gives. FelixConfiguration is there before the first
//! calico-node, and a change of it starts them anew: so nobody has to guess when Felix has taken it in.

mod patch;

use std::{collections::BTreeSet, path::Path, time::Duration};

use chainbreak_model::names::AgentName;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    discovery::Scope,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    crds::{self, FIELD_MANAGER},
    error::KindError,
    felix_config,
    hash::sha256,
    leavings::resource,
    logs::DaemonPod,
    signal::rolled_out,
    spec::{Options, Spec},
    tool::Tool,
    versions::{Digest, Versions},
};

/// What fetching the manifest may take.
const FETCH: Duration = Duration::from_secs(60);

/// The objects of Calico's manifest, in its order.
pub(crate) async fn manifest(
    version: &str,
    options: &Options,
    pins: &Versions,
) -> Result<Vec<Value>, KindError> {
    if let Some(path) = &options.calico_manifest {
        let text = std::fs::read_to_string(path).map_err(KindError::file("read", path))?;
        return documents(&text, &path.display().to_string());
    }
    let release = pins.calico(version).ok_or_else(|| {
        KindError::Unable(format!(
            "no Calico {version} is pinned: `chainbreak versions` lists all, --calico-manifest takes any"
        ))
    })?;
    let url = release.url();
    let text = Tool::new(FETCH, ["curl", "-fsSL", &url]).output().await?;
    check(&text, &release.manifest, &url)?;
    documents(&text, &url)
}

/// Whether it is the file that was pinned.
pub(crate) fn check(text: &str, pinned: &Digest, origin: &str) -> Result<(), KindError> {
    let found = format!("sha256:{}", sha256(text));
    match pinned {
        Digest::Known(pinned) if *pinned != found => Err(KindError::Manifest {
            origin: origin.to_owned(),
            why: format!("its checksum is {found}, pinned is {pinned}"),
        }),
        Digest::Known(_) | Digest::Unknown => Ok(()),
    }
}

fn documents(text: &str, origin: &str) -> Result<Vec<Value>, KindError> {
    let unusable = |why: String| KindError::Manifest {
        origin: origin.to_owned(),
        why,
    };
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Value::deserialize(document).map_err(|error| unusable(error.to_string()))?;
        if !value.is_null() {
            objects.push(value);
        }
    }
    let set = |object: &Value| is_node(object);
    if objects.iter().any(set) {
        Ok(objects)
    } else {
        let why = "it has no DaemonSet calico-node: is it Calico's manifests/calico.yaml?";
        Err(unusable(why.to_owned()))
    }
}

fn is_node(object: &Value) -> bool {
    object["kind"] == "DaemonSet" && object["metadata"]["name"] == "calico-node"
}

/// What is installed, and where.
pub(crate) struct Install<'a> {
    pub(crate) client: &'a Client,
    pub(crate) spec: &'a Spec,
    pub(crate) felix: &'a Map<String, Value>,
}

impl Install<'_> {
    /// Applies the manifest, made fit for the case, and waits until calico-node is ready on every node.
    pub(crate) async fn apply(&self, manifest: &[Value]) -> Result<(), KindError> {
        let mut objects = manifest.to_vec();
        objects.extend(patch::services_endpoint(self.spec));
        // Resources first: what is of their kinds comes after them.
        let (definitions, others): (Vec<Value>, Vec<Value>) = objects
            .into_iter()
            .partition(|it| it["kind"] == "CustomResourceDefinition");
        let mut defined = BTreeSet::new();
        for definition in &definitions {
            self.apply_one(definition).await?;
            defined.extend(definition["metadata"]["name"].as_str());
        }
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        for name in defined {
            crds::established(&api, name).await?;
        }
        felix_config::set(self.client, self.felix).await?;
        for mut object in others {
            if is_node(&object) {
                patch::node(&mut object, self.spec, self.felix);
            }
            self.apply_one(&object).await?;
        }
        rolled_out(self.client, DaemonPod::of(AgentName::Felix)).await
    }

    async fn apply_one(&self, object: &Value) -> Result<(), KindError> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let what = format!("apply Calico's {kind} {name}");
        let Some((resource, scope)) = resource(self.client, version, kind).await? else {
            // It keeps evictions in order, which nobody here makes; policy/v1 came with Kubernetes 1.21.
            if kind == "PodDisruptionBudget" {
                return Ok(());
            }
            let image = &self.spec.image;
            let why = format!(
                "could not {what}: Kubernetes {} has no {version}",
                image.version
            );
            return Err(KindError::Unable(why));
        };
        let namespace = object["metadata"]["namespace"]
            .as_str()
            .unwrap_or("default");
        let api: Api<DynamicObject> = match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(name, &params, &Patch::Apply(object)).await;
        applied.map(drop).map_err(KindError::api(what))
    }
}

/// Whether a file is there to be read, before anything is made for it.
pub(crate) fn is_readable(path: &Path) -> Result<(), KindError> {
    std::fs::File::open(path)
        .map(drop)
        .map_err(KindError::file("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "kind: DaemonSet\nmetadata: { name: calico-node }\n";

    #[test]
    fn a_manifest_is_all_its_documents_and_has_to_be_calicos() {
        let text = format!("---\n# nothing\n---\nkind: ConfigMap\n---\n{NODE}");
        assert_eq!(documents(&text, "x").unwrap().len(), 2);
        let said = documents("kind: ConfigMap\n", "some.yaml")
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("some.yaml: it has no DaemonSet calico-node"),
            "{said}"
        );
        let said = documents("kind: [\n", "some.yaml").unwrap_err().to_string();
        assert!(
            said.contains("some.yaml") && said.contains("line"),
            "{said}"
        );
    }

    #[test]
    fn a_manifest_that_is_not_the_pinned_one_is_refused_with_both_checksums() {
        // `printf '' | sha256sum`
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        check("", &Digest::Known(empty.to_owned()), "u").unwrap();
        check("more", &Digest::Unknown, "u").unwrap();
        let said = check("more", &Digest::Known(empty.to_owned()), "u")
            .unwrap_err()
            .to_string();
        assert!(
            said.contains(empty) && said.matches("sha256:").count() == 2,
            "{said}"
        );
    }
}
