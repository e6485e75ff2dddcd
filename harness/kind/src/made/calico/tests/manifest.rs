//! Calico by its manifest: what has to be in it, and what goes into the cluster in which order.

use std::{collections::BTreeMap, fs, sync::Arc};

use chainbreak_model::case::{ApiWay, IpFamily, PodOwner};
use k8s_openapi::{
    api::core::v1::ServiceAccount,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use super::cluster::{
    BY_MANIFEST, Fate, custom, endpoint, installed, installed_from, node_set, renewed,
};
use crate::{
    made::{
        calico::{Way, anew, apply, check, documents, pools::pools},
        spec::tests::with_calico,
    },
    served,
    shared::{felix_config, nodes::Nodes},
    versions::Digest,
};

/// What calico-node is told by its environment.
fn env(set: &Value) -> BTreeMap<String, String> {
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or("(from elsewhere)").to_owned();
    variables
        .map(|it| (text(&it["name"]), text(&it["value"])))
        .collect()
}

fn revision<K: ResourceExt>(object: &K) -> u64 {
    let revision = object.resource_version();
    revision.expect("it has one").parse().expect("a number")
}

async fn has_all(client: &Client, way: Way, manifest: &str) {
    for object in documents(way, manifest, "x").expect("it is Calico's") {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let found =
            crate::made::leftovers::resource(client, &text(&object["apiVersion"]), &kind).await;
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
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
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
    Arc::make_mut(&mut cluster.felix).insert("bpfEnabled".to_owned(), false.into());
    let done = installed(&client, &cluster, Way::Manifest, Fate::Ready, Vec::new()).await;
    done.unwrap();
    has_all(&client, Way::Manifest, BY_MANIFEST).await;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let definitions = definitions.list(&ListParams::default()).await.unwrap();
    let last = definitions.iter().map(revision).max().unwrap();
    let felix = custom(&client, "crd.projectcalico.org", "FelixConfiguration");
    let felix = felix.get("default").await.unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "kube-system");
    let account = accounts.get("calico-node").await.unwrap();
    assert!(last < revision(&felix) && revision(&felix) < revision(&account));
    let spec = &felix.data["spec"];
    assert_eq!(
        (&spec["bpfEnabled"], &spec["iptablesBackend"]),
        (&json!(false), &json!("NFT"))
    );
    let set = node_set(&client, "kube-system").await;
    assert_eq!(set["status"]["numberReady"], 2, "it was waited for");
    assert_eq!(env(&set)["CALICO_IPV4POOL_IPIP"], "Never");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({ "requests": { "cpu": "250m" } })
    );
    let endpoint = endpoint(&client, "kube-system").await.unwrap();
    assert_eq!(endpoint["KUBERNETES_SERVICE_HOST"], "172.18.0.2");
    assert_eq!(endpoint["KUBERNETES_SERVICE_PORT"], "6443");
}

#[tokio::test]
async fn in_ebpf_mode_calico_has_the_way_to_the_api_where_kube_proxy_is_not_there() {
    let mut cluster = with_calico(PodOwner::Calico);
    Arc::make_mut(&mut cluster.felix).insert("bpfEnabled".to_owned(), true.into());
    // As the reported clusters have it.
    cluster.calico.as_mut().unwrap().api = ApiWay::Service;
    let left = served::api();
    let done = installed(&left, &cluster, Way::Manifest, Fate::Ready, Vec::new()).await;
    done.unwrap();
    assert_eq!(
        endpoint(&left, "kube-system").await,
        None,
        "kube-proxy was left"
    );
    cluster.kube_proxy = None;
    let removed = served::api();
    let done = installed(&removed, &cluster, Way::Manifest, Fate::Ready, Vec::new()).await;
    done.unwrap();
    let endpoint = endpoint(&removed, "kube-system").await;
    assert!(endpoint.is_some(), "nobody serves the Service");
}

#[tokio::test]
async fn another_case_in_the_same_cluster_means_its_configuration_and_a_new_felix_in_the_same_pods()
{
    let client = served::api();
    let mut cluster = with_calico(PodOwner::Calico);
    let with =
        |field: &str, value: Value| Arc::new([(field.to_owned(), value)].into_iter().collect());
    cluster.felix = with("bpfEnabled", json!(true));
    let done = installed(&client, &cluster, Way::Manifest, Fate::Ready, Vec::new()).await;
    done.unwrap();
    let first = node_set(&client, "kube-system").await;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "kube-system");
    let account = revision(&accounts.get("calico-node").await.unwrap());
    cluster.felix = with("iptablesRefreshInterval", json!("2s"));
    let folder = tempfile::tempdir().unwrap();
    let ended = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    let nodes = Nodes(vec![anew::tests::node(folder.path(), "n1")]);
    renewed(&client, &cluster, &nodes).await.unwrap();
    assert!(ended().starts_with("ended 11\n"), "{}", ended());
    let second = node_set(&client, "kube-system").await;
    // The API is at another address, which pods have by their environment.
    let generation = |set: &Value| set["metadata"]["generation"].clone();
    assert_ne!(generation(&first), generation(&second));
    let felix = felix_config::get(&client).await.unwrap();
    assert_eq!(felix["iptablesRefreshInterval"], "2s");
    assert!(!felix.contains_key("bpfEnabled"), "{felix:?}");
    let endpoint = endpoint(&client, "kube-system").await.unwrap();
    assert_eq!(endpoint["KUBERNETES_SERVICE_HOST"], "172.18.0.3");
    let same = revision(&accounts.get("calico-node").await.unwrap());
    assert_eq!(same, account, "the rest is there");
    renewed(&client, &cluster, &nodes).await.unwrap();
    let again = "its rules may be what the last case made of them";
    assert!(ended().contains("ended 12\n"), "{}: {again}", ended());
    let third = node_set(&client, "kube-system").await;
    assert_eq!(generation(&second), generation(&third), "nothing is new");
    fs::write(folder.path().join("stand"), "").unwrap();
    renewed(&client, &cluster, &nodes).await.unwrap();
    assert!(!ended().contains("ended 13\n"), "{}: all stands", ended());
    cluster.felix = with("iptablesRefreshInterval", json!("3s"));
    renewed(&client, &cluster, &nodes).await.unwrap();
    assert!(ended().contains("ended 13\n"), "{}: another one", ended());
    for end in [14, 15] {
        cluster.felix = with("bpfEnabled", json!(true));
        renewed(&client, &cluster, &nodes).await.unwrap();
        let programs = "what its programs hold is not in rules";
        assert!(
            ended().contains(&format!("ended {end}\n")),
            "{}: {programs}",
            ended()
        );
    }
}

#[tokio::test]
async fn a_cases_own_pools_are_there_before_calico_and_instead_of_its_own() {
    let client = served::api();
    let cluster = with_calico(PodOwner::Calico);
    let pool = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": { "name": "overlay" },
        "spec": { "cidr": "10.30.0.0/16", "vxlanMode": "Always" },
    });
    let pools = pools(&[json!({ "kind": "Pod" }), pool], &cluster.ip_families);
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
