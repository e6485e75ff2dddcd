//! The objects of both kube-proxies' API.

use std::net::IpAddr;

use kube::{
    Client, Config,
    api::{Api, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::{Value, json};

use crate::text;

/// Whoever writes objects.
pub(crate) struct Objects {
    client: Client,
}

impl Objects {
    /// To the API at that URL.
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        let config = Config::new(url.parse().map_err(text)?);
        let client = Client::try_from(config).map_err(text)?;
        Ok(Self { client })
    }

    /// Creates or replaces an object; then its status, if it has one or had one.
    /// Answers with the object as the API has it.
    pub(crate) async fn put(&self, object: Value) -> Result<Value, String> {
        let (api, object) = self.typed(object)?;
        let name = object.metadata.name.clone().unwrap_or_default();
        let parameters = PostParams::default();
        let known = api.get_opt(&name).await.map_err(text)?;
        let written = match known {
            None => api.create(&parameters, &object).await,
            Some(_) => api.replace(&name, &parameters, &object).await,
        };
        let written = written.map_err(text)?;
        if written.data.get("status") == object.data.get("status") {
            return serde_json::to_value(written).map_err(text);
        }
        let mut whole = object;
        whole.metadata = written.metadata;
        let status = api.replace_status(&name, &parameters, &whole).await;
        serde_json::to_value(status.map_err(text)?).map_err(text)
    }

    /// Deletes an object, if it is there.
    pub(crate) async fn delete(&self, object: Value) -> Result<(), String> {
        let (api, object) = self.typed(object)?;
        let name = object.metadata.name.unwrap_or_default();
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop).map_err(text),
        }
    }

    fn typed(&self, object: Value) -> Result<(Api<DynamicObject>, DynamicObject), String> {
        let object: DynamicObject = serde_json::from_value(object).map_err(text)?;
        let types = object.types.clone().ok_or("an object without a kind")?;
        let kind = GroupVersionKind::try_from(&types).map_err(text)?;
        let resource = ApiResource::from_gvk(&kind);
        let client = self.client.clone();
        let api = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        Ok((api, object))
    }
}

/// The node that both kube-proxies are of.
pub(crate) fn node(addresses: &[IpAddr]) -> Value {
    let addresses = addresses.iter();
    let addresses = addresses.map(|it| json!({ "type": "InternalIP", "address": it }));
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n1",
            "labels": { "kubernetes.io/hostname": "n1", "topology.kubernetes.io/zone": "z1" },
        },
        "status": { "addresses": addresses.collect::<Vec<_>>() },
    })
}
