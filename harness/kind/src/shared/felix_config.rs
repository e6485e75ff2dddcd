//! FelixConfiguration `default`, as the case has it.

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Map, Value, json};

use crate::error::KindError;

/// Its `spec` as it is; empty where there is none.
pub(crate) async fn get(client: &Client) -> Result<Map<String, Value>, KindError> {
    let standing = api(client).get_opt("default").await;
    let standing = standing.map_err(KindError::api("read FelixConfiguration default"))?;
    let spec = standing.and_then(|mut it| it.data["spec"].as_object_mut().map(std::mem::take));
    Ok(spec.unwrap_or_default())
}

fn api(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource())
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("crd.projectcalico.org", "v1", "FelixConfiguration");
    ApiResource::from_gvk(&kind)
}

/// Gives it that `spec`, whole: what an earlier case had set is gone. Returns whether it is another one than before, with what the API puts in by
/// itself (v3.32.1's `nftablesMode: Auto`).
pub(crate) async fn set(client: &Client, spec: &Map<String, Value>) -> Result<bool, KindError> {
    let (api, resource) = (api(client), resource());
    let doing = || KindError::api("set FelixConfiguration default");
    let mut object = DynamicObject::new("default", &resource).data(json!({ "spec": spec }));
    let standing = api.get_opt("default").await.map_err(doing())?;
    let params = PostParams::default();
    let set = if let Some(standing) = &standing {
        object.metadata.resource_version = standing.resource_version();
        api.replace("default", &params, &object).await
    } else {
        api.create(&params, &object).await
    };
    let set = set.map_err(doing())?;
    Ok(standing.is_none_or(|it| it.data["spec"] != set.data["spec"]))
}
