//! Calico's installation against an API server that is really there, with the controllers and kubelets that it lacks played by the tests.

use std::{collections::BTreeMap, time::Duration};

use chainbreak_model::{
    case::{ClusterSpec, IpFamily, PodOwner},
    names::AgentName,
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{ConfigMap, Event, Namespace, Node, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};

use super::*;
use crate::{
    felix_config, served,
    spec::tests::{spec, with_calico},
};

const BY_MANIFEST: &str = include_str!("fixtures/calico.yaml");
const BY_OPERATOR: &str = include_str!("fixtures/tigera-operator.yaml");
/// Far more than what is waited for takes here.
const ENOUGH: Duration = Duration::from_secs(60);
/// Short: what is waited for does not come.
const SOON: Duration = Duration::from_millis(600);

/// What the controllers make of what they are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Ready,
    /// calico-node's pods stay as they are.
    NeverReady,
    /// The operator says why not.
    Degraded,
}

/// Installs it in a new cluster, or in one that is there.
async fn installed(
    client: &Client,
    cluster: &ClusterSpec,
    way: Way,
    fate: Fate,
    pools: Vec<Value>,
) -> Result<(), KindError> {
    let text = match way {
        Way::Manifest => BY_MANIFEST,
        Way::Operator => BY_OPERATOR,
    };
    installed_from(client, cluster, way, text, fate, pools).await
}

async fn installed_from(
    client: &Client,
    cluster: &ClusterSpec,
    way: Way,
    text: &str,
    fate: Fate,
    pools: Vec<Value>,
) -> Result<(), KindError> {
    let manifest = documents(way, text, "the fixture").expect("it is Calico's");
    let spec = spec(cluster).expect("it can be");
    let install = Install {
        client,
        order: Order {
            spec: &spec,
            way,
            felix: &cluster.felix,
            pools,
        },
        within: if fate == Fate::Ready { ENOUGH } else { SOON },
    };
    tokio::select! {
        done = install.apply(&manifest) => done,
        () = controllers(client, fate) => unreachable!("they never end"),
    }
}

/// Plays the controllers, the kubelets and Calico's operator.
async fn controllers(client: &Client, fate: Fate) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        let ready = if fate == Fate::NeverReady { 0 } else { 2 };
        let sets = Api::<DaemonSet>::all(client.clone());
        for set in sets.list(&ListParams::default()).await.expect("it answers") {
            let status = json!({ "status": {
                "observedGeneration": set.metadata.generation, "currentNumberScheduled": 2, "numberMisscheduled": 0,
                "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": ready,
            } });
            let sets = Api::<DaemonSet>::namespaced(client.clone(), &set.namespace().expect("one"));
            let (params, status) = (PatchParams::default(), Patch::Merge(status));
            let told = sets.patch_status(&set.name_any(), &params, &status).await;
            told.expect("it takes a status");
        }
        let deployments = Api::<Deployment>::all(client.clone());
        for one in deployments
            .list(&ListParams::default())
            .await
            .expect("it answers")
        {
            let status = json!({ "status": {
                "observedGeneration": one.metadata.generation, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1,
            } });
            let of = Api::<Deployment>::namespaced(client.clone(), &one.namespace().expect("one"));
            let (params, status) = (PatchParams::default(), Patch::Merge(status));
            let told = of.patch_status(&one.name_any(), &params, &status).await;
            told.expect("it takes a status");
        }
        operate(client, fate).await;
    }
}

/// What the operator does when it is asked for an Installation.
async fn operate(client: &Client, fate: Fate) {
    let installations = custom(client, "operator.tigera.io", "Installation");
    let Ok(Some(asked)) = installations.get_opt("default").await else {
        return;
    };
    let mut template = asked.data["spec"]["calicoNodeDaemonSet"]["spec"]["template"].clone();
    template["metadata"]["labels"] = json!({ "k8s-app": "calico-node" });
    if !template["spec"]["containers"].is_array() {
        template["spec"]["containers"] = json!([{ "name": "calico-node" }]);
    }
    template["spec"]["containers"][0]["image"] = "calico/node:v3.29.7".into();
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "calico-system" } });
    let applied = PatchParams::apply("operator").force();
    let namespace = Patch::Apply(namespace);
    let made = namespaces
        .patch("calico-system", &applied, &namespace)
        .await;
    made.expect("it can be made");
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "namespace": "calico-system", "name": "calico-node" },
        "spec": { "selector": { "matchLabels": { "k8s-app": "calico-node" } }, "template": template },
    });
    let sets = Api::<DynamicObject>::namespaced_with(
        client.clone(),
        "calico-system",
        &ApiResource::erase::<DaemonSet>(&()),
    );
    let made = sets
        .patch("calico-node", &applied, &Patch::Apply(set))
        .await;
    made.expect("it can be made");
    let available = if fate == Fate::Degraded {
        "False"
    } else {
        "True"
    };
    let seen = asked.metadata.generation;
    let conditions = json!([
        { "type": "Available", "status": available, "observedGeneration": seen, "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "Degraded", "status": if available == "True" { "False" } else { "True" }, "message": "Could not resolve CalicoNetwork IPPool",
          "observedGeneration": seen, "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ]);
    let status = json!({
        "apiVersion": "operator.tigera.io/v1", "kind": "TigeraStatus", "metadata": { "name": "calico" },
        "status": { "conditions": conditions },
    });
    let statuses = custom(client, "operator.tigera.io", "TigeraStatus");
    let told = statuses
        .patch("calico", &applied, &Patch::Apply(&status))
        .await;
    told.expect("it can be made");
    let told = statuses
        .patch_status("calico", &applied, &Patch::Apply(&status))
        .await;
    told.expect("it takes a status");
}

fn custom(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    let plural = match kind.kind.as_str() {
        "TigeraStatus" => "tigerastatuses".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
    Api::all_with(client.clone(), &resource)
}

async fn node_set(client: &Client, namespace: &str) -> Value {
    let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    let set = sets.get("calico-node").await.expect("it is there");
    serde_json::to_value(set).expect("JSON")
}

/// What calico-node is told by its environment.
fn env(set: &Value) -> BTreeMap<String, String> {
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or("(from elsewhere)").to_owned();
    variables
        .map(|it| (text(&it["name"]), text(&it["value"])))
        .collect()
}

async fn endpoint(client: &Client, namespace: &str) -> Option<BTreeMap<String, String>> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let found = maps.get_opt("kubernetes-services-endpoint").await;
    found.expect("it answers").and_then(|map| map.data)
}

fn revision<K: ResourceExt>(object: &K) -> u64 {
    let revision = object.resource_version();
    revision.expect("it has one").parse().expect("a number")
}

async fn has_all(client: &Client, way: Way, manifest: &str) {
    for object in documents(way, manifest, "x").expect("it is Calico's") {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let found = crate::leftovers::resource(client, &text(&object["apiVersion"]), &kind).await;
        let (resource, _) = found.expect("it answers").expect("it serves the kind");
        let all = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let all = all.list(&ListParams::default()).await.expect("it answers");
        assert!(all.iter().any(|it| it.name_any() == name), "{kind} {name}");
    }
}

#[tokio::test]
#[ignore = "needs a folder with Calico's own manifests: CHAINBREAK_CALICO_MANIFESTS"]
async fn calicos_own_manifests_go_in_whole() {
    let folder = std::env::var("CHAINBREAK_CALICO_MANIFESTS").expect("it names the folder");
    let mut cluster = with_calico(PodOwner::Calico);
    cluster.ip_families = vec![IpFamily::V4, IpFamily::V6];
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let way = match documents(Way::Manifest, &text, "it") {
            Ok(_) => Way::Manifest,
            Err(_) => Way::Operator,
        };
        // From v3.30 on the operator makes these itself.
        if way == Way::Operator && !text.contains("name: installations.operator.tigera.io") {
            continue;
        }
        let client = served::api();
        let done = installed_from(&client, &cluster, way, &text, Fate::Ready, Vec::new()).await;
        done.unwrap();
        has_all(&client, way, &text).await;
        seen += 1;
    }
    assert_ne!(seen, 0);
}

#[tokio::test]
async fn the_manifests_objects_are_applied_definitions_first_and_felixs_configuration_before_felix()
{
    let client = served::api();
    let mut cluster = with_calico(PodOwner::Calico);
    cluster.felix.insert("bpfEnabled".to_owned(), false.into());
    let done = installed(&client, &cluster, Way::Manifest, Fate::Ready, Vec::new()).await;
    done.unwrap();
    has_all(&client, Way::Manifest, BY_MANIFEST).await;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let definitions = definitions.list(&ListParams::default()).await.unwrap();
    let last = definitions.iter().map(revision).max().unwrap();
    let felix = custom(&client, "crd.projectcalico.org", "FelixConfiguration");
    let felix = felix.get("default").await.unwrap();
    let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
        client.clone(),
        "kube-system",
    );
    let account = accounts.get("calico-node").await.unwrap();
    assert!(last < revision(&felix) && revision(&felix) < revision(&account));
    let wanted = json!({ "bpfEnabled": false, "iptablesBackend": "NFT" });
    assert_eq!(felix.data["spec"], wanted);
    let set = node_set(&client, "kube-system").await;
    assert_eq!(set["status"]["numberReady"], 2, "it was waited for");
    assert_eq!(env(&set)["CALICO_IPV4POOL_IPIP"], "Never");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({ "requests": { "cpu": "250m" } })
    );
    assert_eq!(
        endpoint(&client, "kube-system").await,
        None,
        "kube-proxy serves it"
    );
}

#[tokio::test]
async fn in_ebpf_mode_calico_has_its_memory_and_without_kube_proxy_the_way_to_the_api() {
    let mut cluster = with_calico(PodOwner::Calico);
    cluster.felix.insert("bpfEnabled".to_owned(), true.into());
    let left = served::api();
    let done = installed(&left, &cluster, Way::Manifest, Fate::Ready, Vec::new()).await;
    done.unwrap();
    let set = node_set(&left, "kube-system").await;
    let limits = &set["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({ "memory": "1Gi" }));
    assert_eq!(
        endpoint(&left, "kube-system").await,
        None,
        "kube-proxy was left"
    );
    cluster.kube_proxy = None;
    let removed = served::api();
    let done = installed(&removed, &cluster, Way::Manifest, Fate::Ready, Vec::new()).await;
    done.unwrap();
    let endpoint = endpoint(&removed, "kube-system").await.unwrap();
    let host = format!("{}-control-plane", spec(&cluster).unwrap().name());
    assert_eq!(endpoint["KUBERNETES_SERVICE_HOST"], host);
    assert_eq!(endpoint["KUBERNETES_SERVICE_PORT"], "6443");
}

#[tokio::test]
async fn another_felix_configuration_in_the_same_cluster_means_new_pods_and_nothing_of_the_old_one()
{
    let client = served::api();
    let mut cluster = with_calico(PodOwner::ThirdParty);
    let mut generations = Vec::new();
    for (field, value) in [
        ("bpfEnabled", json!(true)),
        ("iptablesRefreshInterval", json!("2s")),
    ] {
        cluster.felix = [(field.to_owned(), value)].into_iter().collect();
        let done = installed(&client, &cluster, Way::Manifest, Fate::Ready, Vec::new()).await;
        done.unwrap();
        let set = node_set(&client, "kube-system").await;
        generations.push(set["metadata"]["generation"].clone());
        let containers = &set["spec"]["template"]["spec"]["containers"];
        let bpf = field == "bpfEnabled";
        assert_eq!(
            containers[0]["resources"]["limits"]["memory"].is_string(),
            bpf
        );
    }
    assert_ne!(generations[0], generations[1]);
    let felix = felix_config::get(&client).await.unwrap();
    let wanted = json!({ "iptablesRefreshInterval": "2s", "iptablesBackend": "NFT" });
    assert_eq!(Value::Object(felix), wanted);
}

#[tokio::test]
async fn a_cases_own_pools_are_there_before_calico_and_instead_of_its_own() {
    let client = served::api();
    let cluster = with_calico(PodOwner::Calico);
    let pool = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": { "name": "overlay" },
        "spec": { "cidr": "10.30.0.0/16", "vxlanMode": "Always" },
    });
    let pools = pools(&[json!({ "kind": "Pod" }), pool]);
    let done = installed(&client, &cluster, Way::Manifest, Fate::Ready, pools).await;
    done.unwrap();
    let pools = custom(&client, "crd.projectcalico.org", "IPPool");
    let pool = pools.get("overlay").await.unwrap();
    let set = node_set(&client, "kube-system").await;
    let created = |value: &Value| value["metadata"]["creationTimestamp"].clone();
    assert!(created(&set).as_str() >= created(&serde_json::to_value(&pool).unwrap()).as_str());
    let env = env(&set);
    assert_eq!(env["NO_DEFAULT_POOLS"], "true");
    assert!(!env.contains_key("CALICO_IPV4POOL_CIDR"));
}

#[tokio::test]
async fn the_operator_is_asked_for_the_dataplane_and_told_where_the_api_is() {
    let client = served::api();
    let mut cluster = with_calico(PodOwner::Calico);
    cluster.felix.insert("bpfEnabled".to_owned(), true.into());
    cluster.kube_proxy = None;
    let done = installed(&client, &cluster, Way::Operator, Fate::Ready, Vec::new()).await;
    done.unwrap();
    let installations = custom(&client, "operator.tigera.io", "Installation");
    let asked = installations.get("default").await.unwrap();
    insta::assert_snapshot!(serde_yaml::to_string(&asked.data["spec"]).unwrap());
    // The operator takes bpfEnabled for its own.
    let felix = felix_config::get(&client).await.unwrap();
    assert_eq!(Value::Object(felix), json!({ "iptablesBackend": "NFT" }));
    let endpoint = endpoint(&client, "tigera-operator").await.unwrap();
    assert_eq!(endpoint["KUBERNETES_SERVICE_PORT"], "6443");
    let set = node_set(&client, "calico-system").await;
    assert_eq!(set["status"]["numberReady"], 2, "it was waited for");
    let found = crate::logs::DaemonPod::of(&client, AgentName::Felix).await;
    assert_eq!(found.unwrap(), crate::logs::DaemonPod::by_operator());
}

#[tokio::test]
async fn what_the_operator_cannot_do_is_said_in_its_own_words() {
    let client = served::api();
    let cluster = with_calico(PodOwner::Calico);
    let done = installed(&client, &cluster, Way::Operator, Fate::Degraded, Vec::new()).await;
    let said = done.unwrap_err().to_string();
    let why = "calico is not available: Could not resolve CalicoNetwork IPPool";
    assert!(said.contains(why), "{said}");
}

/// What a kubelet tells of a container that ends again and again, on a node that has no memory left.
async fn crash(client: &Client) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "kube-system", "name": "calico-node-x7k2p", "labels": { "k8s-app": "calico-node" } },
        "spec": { "nodeName": "n2", "containers": [{ "name": "calico-node", "image": "calico/node:v3.28.1" }] },
    });
    let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
    let pod = serde_json::from_value(pod).expect("a pod");
    pods.create(&PostParams::default(), &pod)
        .await
        .expect("it can be made");
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container" } });
    let status = json!({ "status": { "phase": "Running", "containerStatuses": [{
        "name": "calico-node", "image": "calico/node:v3.28.1", "imageID": "", "ready": false, "restartCount": 3, "state": waiting,
    }] } });
    let (params, status) = (PatchParams::default(), Patch::Merge(status));
    let told = pods
        .patch_status("calico-node-x7k2p", &params, &status)
        .await;
    told.expect("it takes a status");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "namespace": "kube-system", "name": "e1" },
        "involvedObject": { "kind": "Pod", "namespace": "kube-system", "name": "calico-node-x7k2p" },
        "reason": "Unhealthy", "message": "Readiness probe failed: calico/node is not ready: felix is not ready",
    });
    let events = Api::<Event>::namespaced(client.clone(), "kube-system");
    let event = serde_json::from_value(event).expect("an event");
    events
        .create(&PostParams::default(), &event)
        .await
        .expect("it can be made");
    node(client, json!([
        { "type": "DiskPressure", "status": "False", "message": "kubelet has no disk pressure" },
        { "type": "MemoryPressure", "status": "True", "message": "kubelet has insufficient memory available" },
    ]))
    .await;
}

/// The node n2, of which its kubelet tells this.
async fn node(client: &Client, conditions: Value) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n2" }, "status": { "conditions": conditions },
    });
    let nodes = Api::<Node>::all(client.clone());
    let node = serde_json::from_value(node).expect("a node");
    nodes
        .create(&PostParams::default(), &node)
        .await
        .expect("it can be made");
}

#[tokio::test]
async fn a_calico_pod_that_never_gets_ready_is_told_with_its_last_log_lines_events_and_its_nodes_lack()
 {
    let api = served::api();
    crash(&api).await;
    let log = "[INFO][8] startup/startup.go 431: Early log level set to info\n\
               [ERROR][8] startup/startup.go 158: failed to query kubeadm's config map\n";
    let client = served::logging(api, log);
    let cluster = with_calico(PodOwner::Calico);
    let done = installed(
        &client,
        &cluster,
        Way::Manifest,
        Fate::NeverReady,
        Vec::new(),
    )
    .await;
    insta::assert_snapshot!(done.unwrap_err().to_string());
}

#[tokio::test]
async fn pods_that_were_evicted_or_fit_nowhere_are_told_with_the_reason_and_the_full_disk() {
    let client = served::api();
    let full = "kubelet has disk pressure";
    node(
        &client,
        json!([{ "type": "DiskPressure", "status": "True", "message": full }]),
    )
    .await;
    let pod = |name: &str, status: Value| -> Pod {
        let pod = json!({ "metadata": { "namespace": "test", "name": name }, "status": status });
        serde_json::from_value(pod).unwrap()
    };
    let low = "The node was low on resource: ephemeral-storage.";
    let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": low });
    let nowhere = "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.";
    let unscheduled = json!({ "type": "PodScheduled", "status": "False", "message": nowhere });
    let pending = json!({ "phase": "Pending", "conditions": [unscheduled] });
    let pods = [pod("web-1", evicted), pod("web-2", pending)];
    assert_eq!(
        chainbreak_engine::evidence::of_pods(&client, &pods).await,
        format!(
            "web-1: Failed Evicted {low}\nweb-2: Pending\nweb-2 is on no node: {nowhere}\n\
             node n2, DiskPressure: {full}\n"
        )
    );
}

#[tokio::test]
async fn a_kind_that_this_kubernetes_lacks_is_named() {
    let object =
        json!({ "apiVersion": "policy/v9", "kind": "Budget", "metadata": { "name": "b" } });
    let said = apply::apply(&served::api(), &object).await.unwrap_err();
    let wanted = "could not apply Calico's Budget b: this Kubernetes has no policy/v9 Budget";
    assert_eq!(said.to_string(), wanted);
}

#[test]
fn a_manifest_is_all_its_documents_and_has_to_be_calicos() {
    const NODE: &str = "kind: DaemonSet\nmetadata: { name: calico-node }\n";
    let text = format!("---\n# nothing\n---\nkind: ConfigMap\n---\n{NODE}");
    assert_eq!(documents(Way::Manifest, &text, "x").unwrap().len(), 2);
    let said = |way, text: &str| documents(way, text, "some.yaml").unwrap_err().to_string();
    let other = said(Way::Manifest, "kind: ConfigMap\n");
    assert!(
        other.contains("some.yaml: it has no DaemonSet calico-node"),
        "{other}"
    );
    let other = said(Way::Operator, NODE);
    assert!(
        other.contains("is it Calico's manifests/tigera-operator.yaml?"),
        "{other}"
    );
    let broken = said(Way::Manifest, "kind: [\n");
    assert!(
        broken.contains("some.yaml") && broken.contains("line"),
        "{broken}"
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
