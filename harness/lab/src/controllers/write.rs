//! What controllers want to have written, as data.

use std::{
    collections::BTreeSet,
    fmt::{self, Debug, Display},
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet},
        core::v1::{Binding, ObjectReference, Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
    core::Status,
};
use serde::{Serialize, de::DeserializeOwned};

use super::seen::{Cache, Change, Key, Seen, key};

/// What is to be done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    /// Replace everything but the status, if the object is still in the version given.
    Replace,
    /// Replace the status, under the same condition.
    Status,
    /// Delete, if it is still that object and not another of its name.
    Delete,
}

/// An object of a kind that controllers write.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Object {
    Pod(Box<Pod>),
    /// A pod's way to the node that is given in it, which can only be created.
    Binding(Box<Pod>),
    Deployment(Box<Deployment>),
    ReplicaSet(Box<ReplicaSet>),
    DaemonSet(Box<DaemonSet>),
    Slice(Box<EndpointSlice>),
    Service(Box<Service>),
}

macro_rules! objects {
    ($($kind:ident => $variant:ident),*) => {$(
        impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Self::$variant(Box::new(object))
            }
        }
    )*};
}
objects!(Pod => Pod, Deployment => Deployment, ReplicaSet => ReplicaSet, DaemonSet => DaemonSet,
    EndpointSlice => Slice, Service => Service);

impl Object {
    /// Which object it is: its kind, namespace and name.
    fn identity(&self) -> (&'static str, Key) {
        match self {
            Self::Pod(object) | Self::Binding(object) => ("pod", key(&**object)),
            Self::Deployment(object) => ("deployment", key(&**object)),
            Self::ReplicaSet(object) => ("replica set", key(&**object)),
            Self::DaemonSet(object) => ("daemon set", key(&**object)),
            Self::Slice(object) => ("endpoint slice", key(&**object)),
            Self::Service(object) => ("service", key(&**object)),
        }
    }
}

/// One request to the API.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Write {
    pub(super) verb: Verb,
    pub(super) object: Object,
}

impl Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut kind, (namespace, name)) = self.object.identity();
        if matches!(self.object, Object::Binding(_)) {
            kind = "binding";
        }
        write!(f, "{:?} {kind} {namespace}/{name}", self.verb)
    }
}

/// Writes that can be made at the same time: one for each object, the one that was asked for first.
#[derive(Debug, Default)]
pub(super) struct Writes {
    list: Vec<Write>,
    taken: BTreeSet<(&'static str, Key)>,
}

impl Writes {
    /// Asks for a write. Another one of the same object has to wait for the answer to the first.
    pub(super) fn push(&mut self, verb: Verb, object: impl Into<Object>) {
        let object = object.into();
        if self.taken.insert(object.identity()) {
            self.list.push(Write { verb, object });
        }
    }

    pub(super) fn into_vec(self) -> Vec<Write> {
        self.list
    }
}

impl Write {
    /// Makes the request. What the API answers is known from then on.
    pub(super) async fn perform(self, client: &Client) -> Result<Change, kube::Error> {
        let (client, verb) = (client.clone(), self.verb);
        match self.object {
            Object::Pod(object) => act(client, verb, *object, |seen| &mut seen.pods).await,
            Object::Binding(object) => bind(client, *object).await,
            Object::Deployment(object) => {
                act(client, verb, *object, |seen| &mut seen.deployments).await
            }
            Object::ReplicaSet(object) => {
                act(client, verb, *object, |seen| &mut seen.replica_sets).await
            }
            Object::DaemonSet(object) => {
                act(client, verb, *object, |seen| &mut seen.daemon_sets).await
            }
            Object::Slice(object) => act(client, verb, *object, |seen| &mut seen.slices).await,
            Object::Service(object) => act(client, verb, *object, |seen| &mut seen.services).await,
        }
    }
}

async fn act<K>(
    client: Client,
    verb: Verb,
    object: K,
    cache: fn(&mut Seen) -> &mut Cache<K>,
) -> Result<Change, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + 'static,
{
    let (namespace, name) = key(&object);
    let api = Api::<K>::namespaced(client, &namespace);
    let post = PostParams::default();
    let now = match verb {
        Verb::Create => api.create(&post, &object).await?,
        Verb::Replace => api.replace(&name, &post, &object).await?,
        Verb::Status => api.replace_status(&name, &post, &object).await?,
        // Without the object in its answer the API says that it is gone.
        Verb::Delete => match api.delete(&name, &only(&object)).await?.left() {
            Some(going) => going,
            None => return Ok(Change::new(move |seen| cache(seen).remove(&object))),
        },
    };
    Ok(Change::new(move |seen| cache(seen).put(now)))
}

/// The answer to a binding does not show the pod; that it is bound is known all the same.
async fn bind(client: Client, pod: Pod) -> Result<Change, kube::Error> {
    let (namespace, name) = key(&pod);
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: pod.uid(),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            ..ObjectReference::default()
        },
    };
    let post = PostParams::default();
    let _bound: Status = Api::<Pod>::namespaced(client, &namespace)
        .create_subresource("binding", &name, &post, &binding)
        .await?;
    Ok(Change::new(move |seen| seen.pods.put(pod)))
}

fn only<K: Resource>(object: &K) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.meta().uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}
