//! The loop against the embedded API over loopback: watches, answers and refusals are real.

use std::{net::TcpListener, sync::Arc, time::Duration};

use chainbreak_apiserver::{Server, ServerConfig};
use chainbreak_engine::log::EventLog;
use futures::StreamExt;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet},
        core::v1::{Node, Pod, Service},
        discovery::v1::{Endpoint, EndpointSlice},
    },
};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        wait::await_condition,
        watcher::{self, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, from_value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::{super::run, service, workload};
use crate::controllers::pods::{is_ready, is_terminating, node_name};

/// Far beyond any reaction, so that only a fault reaches it.
const LONG: Duration = Duration::from_secs(20);

/// An API with nodes, controllers and a kubelet that makes pods ready at once.
struct Live {
    client: Client,
    server: Arc<Server>,
    address: std::net::SocketAddr,
    serving: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.serving.abort();
        self.others.iter().for_each(JoinHandle::abort);
    }
}

fn serve(server: &Arc<Server>, listener: TcpListener) -> JoinHandle<()> {
    let server = Arc::clone(server);
    tokio::spawn(async move { server.serve(listener).await.unwrap() })
}

impl Live {
    async fn start(nodes: usize) -> Self {
        let server = Server::new(ServerConfig::new(Arc::new(jiff::Timestamp::now)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = serve(&server, listener);
        let uri = format!("http://{address}").parse().unwrap();
        let client = Client::try_from(Config::new(uri)).unwrap();
        let all: Api<Node> = Api::all(client.clone());
        for number in 1..=nodes {
            let node = json!({ "metadata": { "name": format!("n{number}") } });
            all.create(&PostParams::default(), &from_value(node).unwrap())
                .await
                .unwrap();
        }
        let others = vec![
            tokio::spawn(run(client.clone(), 1, EventLog::new().0)),
            tokio::spawn(kubelet(client.clone())),
        ];
        Self {
            client,
            server,
            address,
            serving,
            others,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create<K>(&self, name: &str, spec: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let object = from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
        self.api()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    async fn patch(&self, patch: Value) {
        let patched = self.api::<Deployment>();
        let parameters = PatchParams::default();
        patched
            .patch("nginx", &parameters, &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Waits until `nginx` is rolled out as `kubectl rollout status` understands it.
    async fn rolled_out(&self) -> i32 {
        let done = |deployment: Option<&Deployment>| {
            let Some(deployment) = deployment else {
                return false;
            };
            let (spec, status) = (deployment.spec.as_ref(), deployment.status.as_ref());
            let wanted = spec.and_then(|spec| spec.replicas);
            status.is_some_and(|status| {
                status.observed_generation == deployment.metadata.generation
                    && status.updated_replicas == wanted
                    && status.replicas == wanted
                    && status.available_replicas == wanted
            })
        };
        let waiting = await_condition(self.api::<Deployment>(), "nginx", done);
        let deployment = timeout(LONG, waiting)
            .await
            .expect("it is rolled out")
            .unwrap();
        deployment.and_then(|it| it.status?.ready_replicas).unwrap()
    }

    /// Waits until that many endpoints of `nginx` are ready and no other is there.
    async fn endpoints(&self, count: usize) {
        let mut slices = watcher(self.api::<EndpointSlice>(), watcher::Config::default())
            .default_backoff()
            .touched_objects()
            .boxed();
        let ready = |slice: &EndpointSlice| {
            let ready = |it: &&_| endpoint_ready(it);
            slice.endpoints.iter().filter(ready).count()
        };
        let waiting = async {
            while let Some(slice) = slices.next().await {
                let slice = slice.ok();
                if slice.is_some_and(|it| ready(&it) == count && it.endpoints.len() == count) {
                    return;
                }
            }
        };
        timeout(LONG, waiting)
            .await
            .expect("the endpoints are there");
    }
}

fn endpoint_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|it| it.ready) == Some(true)
}

async fn kubelet(client: Client) {
    let changes = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    let mut changes = changes.default_backoff().applied_objects().boxed();
    let mut addresses = 0;
    while let Some(change) = changes.next().await {
        let Ok(pod) = change else { continue };
        let name = pod.name_any();
        let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap());
        if is_terminating(&pod) {
            let now = DeleteParams {
                grace_period_seconds: Some(0),
                ..DeleteParams::default()
            };
            // A change that was under way shows it leaving once more.
            drop(api.delete(&name, &now).await);
        } else if node_name(&pod).is_some() && !is_ready(&pod) {
            addresses += 1;
            let conditions = json!([{ "type": "Ready", "status": "True" }]);
            let address = format!("10.20.1.{addresses}");
            let status = json!({ "phase": "Running", "podIP": address, "conditions": conditions });
            let patch = Patch::Merge(json!({ "status": status }));
            drop(
                api.patch_status(&name, &PatchParams::default(), &patch)
                    .await,
            );
        }
    }
}

#[tokio::test]
async fn a_deployment_lives_its_life_through_the_api() {
    let live = Live::start(2).await;
    let begin = Instant::now();
    live.create::<Service>("nginx", service(&json!({}))).await;
    live.create::<Deployment>("nginx", workload(3, "1.27"))
        .await;
    assert_eq!(live.rolled_out().await, 3);
    live.endpoints(3).await;
    println!("three pods and their slice after {:?}", begin.elapsed());
    live.patch(json!({ "spec": { "replicas": 5 } })).await;
    assert_eq!(live.rolled_out().await, 5);
    live.endpoints(5).await;
    live.patch(json!({ "spec": workload(2, "1.28") })).await;
    assert_eq!(live.rolled_out().await, 2);
    live.endpoints(2).await;
    let pods = live
        .api::<Pod>()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    let images = pods
        .iter()
        .map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone());
    assert!(
        images
            .into_iter()
            .all(|image| image.as_deref() == Some("nginx:1.28"))
    );
    live.api::<Deployment>()
        .delete("nginx", &DeleteParams::default())
        .await
        .unwrap();
    live.endpoints(0).await;
    let sets = live
        .api::<ReplicaSet>()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert!(sets.is_empty());
}

#[tokio::test]
async fn a_cluster_at_rest_is_silent() {
    let live = Live::start(3).await;
    live.create::<Service>("nginx", service(&json!({}))).await;
    live.create::<Deployment>("nginx", workload(4, "1.27"))
        .await;
    live.create::<DaemonSet>("agent", workload(0, "1")).await;
    live.rolled_out().await;
    // The daemon set's pods have the label that the service selects.
    live.endpoints(7).await;
    let version = async || {
        let list = live
            .api::<Pod>()
            .list(&ListParams::default())
            .await
            .unwrap();
        list.metadata
            .resource_version
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    // Whatever still follows from the last change follows within milliseconds of it: there is a pause
    // of a hundred in which the revision of the whole API stands still.
    let mut seen = version().await;
    let quiet = async {
        let mut pause = tokio::time::interval(Duration::from_millis(100));
        pause.tick().await;
        loop {
            pause.tick().await;
            let now = version().await;
            if std::mem::replace(&mut seen, now) == now {
                return;
            }
        }
    };
    timeout(LONG, quiet)
        .await
        .expect("the cluster comes to rest");
}

#[tokio::test]
async fn refused_writes_are_made_again_on_what_the_watch_tells() {
    let live = Live::start(2).await;
    live.create::<Service>("nginx", service(&json!({}))).await;
    live.create::<Deployment>("nginx", workload(1, "1.27"))
        .await;
    // Every patch makes a version that the status writes of the moment do not know.
    for turn in 0..60 {
        let annotations = json!({ "turn": turn.to_string() });
        let spec = json!({ "replicas": turn % 4 + 1 });
        live.patch(json!({ "metadata": { "annotations": annotations }, "spec": spec }))
            .await;
    }
    assert_eq!(live.rolled_out().await, 4);
    live.endpoints(4).await;
}

#[tokio::test]
async fn controllers_outlive_a_broken_api() {
    let mut live = Live::start(2).await;
    live.create::<Service>("nginx", service(&json!({}))).await;
    live.create::<Deployment>("nginx", workload(2, "1.27"))
        .await;
    live.endpoints(2).await;
    live.serving.abort();
    (&mut live.serving).await.unwrap_err();
    let listener = TcpListener::bind(live.address).unwrap();
    live.serving = serve(&live.server, listener);
    live.patch(json!({ "spec": { "replicas": 4 } })).await;
    live.endpoints(4).await;
}

/// As a cluster of 1.34.10 was seen to tell it.
#[tokio::test]
async fn the_end_of_a_pod_without_a_grace_period_is_two_changes_of_its_endpoints() {
    let live = Live::start(1).await;
    live.create::<Service>("nginx", service(&json!({}))).await;
    let port = json!({ "name": "http", "containerPort": 8080 });
    let containers = json!([{ "name": "nginx", "image": "nginx:1.27", "ports": [port] }]);
    let pod = json!({ "metadata": { "name": "short", "labels": { "app": "nginx" } },
        "spec": { "nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": containers } });
    live.api::<Pod>()
        .create(&PostParams::default(), &from_value(pod).unwrap())
        .await
        .unwrap();
    live.endpoints(1).await;
    let slices = watcher(live.api::<EndpointSlice>(), watcher::Config::default());
    let told = slices.default_backoff().applied_objects().map(|slice| {
        let endpoints = slice.unwrap().endpoints;
        let terminates = |it: &_| Endpoint::clone(it).conditions?.terminating;
        endpoints.iter().filter_map(terminates).collect::<Vec<_>>()
    });
    let mut told = told.boxed();
    let mut next = async || timeout(LONG, told.next()).await.unwrap().unwrap();
    assert_eq!(next().await, [false]);
    live.api::<Pod>()
        .delete("short", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!([next().await, next().await], [vec![true], vec![]]);
}
