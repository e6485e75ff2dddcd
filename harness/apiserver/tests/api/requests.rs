//! What real agents ask for, request by request, and that each is answered as they need it. Each line
//! says who asks and where that is seen: requests of kube-proxy 1.20.2, 1.28.3 and 1.30.5 were read from
//! the logs of the real ones, the others are in the source that is named.
//!
//! Every answer is JSON, whatever is accepted: client-go decodes by the answer's Content-Type
//! (rest/request.go, `transformResponse` and `newStreamWatcher`).

use std::net::SocketAddr;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::common::{Answer, Api, Wire};

/// client-go's typed clients (rest/config.go) and Calico's (libcalico-go/lib/backend/k8s/client.go).
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf, */*";
const CALICO: &str = "application/vnd.kubernetes.protobuf,application/json";
/// The selector of kube-proxy on services and slices.
const PROXIED: &str = "labelSelector=%21service.kubernetes.io%2Fheadless%2C\
                       %21service.kubernetes.io%2Fservice-proxy-name";
const LIST: &str = "limit=500&resourceVersion=0";
const WATCH: &str = "allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=1&watch=true";
/// client-go 0.35's first question, 0.28's and 0.30's with the feature switched on.
const STREAM: &str = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan\
                      &sendInitialEvents=true&timeoutSeconds=1&watch=true";

/// Group and version, plural, kind, and since and until which version who asks.
type Listed = (&'static str, &'static str, &'static str, &'static str);

/// Each listed whole with `LIST`, watched after it, and streamed.
const KUBE_PROXY: &[Listed] = &[
    ("api/v1", "services", "Service", "1.20.2 to 1.30.5: log"),
    (
        "apis/discovery.k8s.io/v1beta1",
        "endpointslices",
        "EndpointSlice",
        "1.20.2: log",
    ),
    (
        "apis/discovery.k8s.io/v1",
        "endpointslices",
        "EndpointSlice",
        "1.28.3, 1.30.5: log",
    ),
    ("api/v1", "nodes", "Node", "1.28.3, 1.30.5: log"),
    (
        "apis/networking.k8s.io/v1beta1",
        "servicecidrs",
        "ServiceCIDR",
        "1.31, with gate MultiCIDRServiceAllocator: config.go",
    ),
    (
        "apis/networking.k8s.io/v1",
        "servicecidrs",
        "ServiceCIDR",
        "1.34 on: cmd/kube-proxy/app/server.go",
    ),
];

/// libcalico-go/lib/backend/syncersv1/felixsyncer/felixsyncerv1.go, and for Profiles and
/// `WorkloadEndpoints` the clients in lib/backend/k8s/resources.
const FELIX: &[Listed] = &[
    ("api/v1", "nodes", "Node", "all: Node"),
    ("api/v1", "pods", "Pod", "all: WorkloadEndpoint"),
    ("api/v1", "namespaces", "Namespace", "all: Profile"),
    (
        "api/v1",
        "serviceaccounts",
        "ServiceAccount",
        "all: Profile",
    ),
    ("api/v1", "services", "Service", "all: KubernetesService"),
    (
        "apis/discovery.k8s.io/v1",
        "endpointslices",
        "EndpointSlice",
        "all: KubernetesEndpointSlice",
    ),
    (
        "apis/networking.k8s.io/v1",
        "networkpolicies",
        "NetworkPolicy",
        "all: KubernetesNetworkPolicy",
    ),
    (
        "apis/policy.networking.k8s.io/v1alpha1",
        "adminnetworkpolicies",
        "AdminNetworkPolicy",
        "v3.29 to v3.31",
    ),
    (
        "apis/policy.networking.k8s.io/v1alpha1",
        "baselineadminnetworkpolicies",
        "BaselineAdminNetworkPolicy",
        "v3.30 to v3.31",
    ),
    (
        "apis/policy.networking.k8s.io/v1alpha2",
        "clusternetworkpolicies",
        "ClusterNetworkPolicy",
        "v3.32",
    ),
];

/// The same file, kinds with a custom definition (libcalico-go/config/crd, api/config/crd): asked for in
/// crd.projectcalico.org/v1, from v3.32 on in projectcalico.org/v3 where only that is installed.
const CALICO_KINDS: &[(&str, &str, &str)] = &[
    ("bgpconfigurations", "BGPConfiguration", "all"),
    ("bgppeers", "BGPPeer", "v3.30 on"),
    ("clusterinformations", "ClusterInformation", "all"),
    ("felixconfigurations", "FelixConfiguration", "all"),
    ("globalnetworkpolicies", "GlobalNetworkPolicy", "all"),
    ("globalnetworksets", "GlobalNetworkSet", "all"),
    ("hostendpoints", "HostEndpoint", "all"),
    ("ipamblocks", "IPAMBlock", "all, unless USE_POD_CIDR"),
    ("ippools", "IPPool", "all"),
    ("networkpolicies", "NetworkPolicy", "all"),
    ("networksets", "NetworkSet", "all"),
    (
        "stagedglobalnetworkpolicies",
        "StagedGlobalNetworkPolicy",
        "v3.30 on",
    ),
    (
        "stagedkubernetesnetworkpolicies",
        "StagedKubernetesNetworkPolicy",
        "v3.30 on",
    ),
    ("stagednetworkpolicies", "StagedNetworkPolicy", "v3.30 on"),
    ("tiers", "Tier", "v3.29 on"),
];

async fn ask(at: SocketAddr, accept: &'static str, path: String) -> (String, Answer) {
    let answer = Wire::to(at).await.accepting(accept).get(&path).await;
    (path, answer)
}

/// Lists, watches and streams a collection as `how` says, and checks the shape of each answer.
async fn is_followed(
    at: SocketAddr,
    accept: &'static str,
    (version, plural, kind, _): Listed,
    how: (&str, &str),
) {
    let (selector, list) = how;
    let path = |query: &str| format!("/{version}/{plural}?{selector}{query}");
    let (api, group) = version.split_once('/').expect("two parts");
    let told = if api == "api" { "v1" } else { group };
    let (path_of_list, list) = ask(at, accept, path(list)).await;
    assert_eq!(
        (list.code, &*list.media),
        (200, "application/json"),
        "{path_of_list}"
    );
    assert_eq!(list.body["kind"], format!("{kind}List"), "{path_of_list}");
    assert_eq!(list.body["apiVersion"], told, "{path_of_list}");
    // Felix takes "" and "0" for a resource that is not there, and polls.
    let revision = list.body["metadata"]["resourceVersion"].as_str();
    assert!(
        revision.is_some_and(|r| !["", "0"].contains(&r)),
        "{path_of_list}"
    );
    let items = list.body["items"].as_array().expect("a list has items");
    for query in [WATCH, STREAM] {
        let (path, watch) = ask(at, accept, path(query)).await;
        assert_eq!(
            (watch.code, &*watch.media),
            (200, "application/json"),
            "{path}"
        );
        let is = |line: &&Value, what: &str| line["type"] == what;
        let added: Vec<_> = watch
            .lines
            .iter()
            .filter(|line| is(line, "ADDED"))
            .collect();
        assert_eq!(added.len(), items.len(), "{path}");
        for event in &watch.lines {
            assert_eq!(event["object"]["kind"], kind, "{path}");
            assert_eq!(event["object"]["apiVersion"], told, "{path}");
        }
        let ends = watch.lines.iter().filter(|line| is(line, "BOOKMARK"));
        let marked = |line: &&Value| {
            line["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
        };
        assert_eq!(
            ends.filter(marked).count(),
            usize::from(query == STREAM),
            "{path}"
        );
    }
}

/// A cluster with something of what agents look at.
async fn provisioned() -> Api {
    let api = Api::start(1000);
    let mut wire = Wire::to(api.at).await.named("setup");
    let named = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let slice = json!({"metadata": {"name": "web-1"}, "addressType": "IPv4", "endpoints": [],
                       "ports": []});
    for (path, object) in [
        ("/api/v1/nodes", named("n1", json!({}))),
        (
            "/api/v1/namespaces/default/services",
            named("web", json!({"ports": [{"port": 80}]})),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            slice,
        ),
        (
            "/apis/projectcalico.org/v3/felixconfigurations",
            named("default", json!({"bpfEnabled": true})),
        ),
        (
            "/apis/crd.projectcalico.org/v1/clusterinformations",
            named("default", json!({"datastoreReady": true})),
        ),
    ] {
        let created = wire.send("POST", path, &object).await;
        assert_eq!(created.code, 201, "{path}: {}", created.body);
    }
    api
}

#[tokio::test]
async fn kube_proxy_of_any_version_can_follow_what_it_follows() {
    let api = provisioned().await;
    let selector = |plural: &str| match plural {
        "services" | "endpointslices" => format!("{PROXIED}&"),
        "nodes" => "fieldSelector=metadata.name%3Dn1&".to_owned(),
        _ => String::new(),
    };
    join_all(KUBE_PROXY.iter().map(|listed| {
        let (at, selector) = (api.at, selector(listed.1));
        async move { is_followed(at, PROTOBUF, *listed, (&selector, LIST)).await }
    }))
    .await;
    assert_eq!(api.server.unknown_requests(), []);
}

#[tokio::test]
async fn felix_of_any_version_can_follow_what_it_follows() {
    let api = provisioned().await;
    // lib/backend/k8s/resources/list_pager.go and lib/backend/watchersyncer/watchercache.go.
    let list = "limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan";
    let custom = CALICO_KINDS.iter().flat_map(|(plural, kind, versions)| {
        ["apis/crd.projectcalico.org/v1", "apis/projectcalico.org/v3"]
            .map(|group| (group, *plural, *kind, *versions))
    });
    let all = FELIX.iter().copied().chain(custom);
    join_all(all.map(|listed| is_followed(api.at, CALICO, listed, ("", list)))).await;
    assert_eq!(api.server.unknown_requests(), []);
}

/// Who asks and where that is seen; path; code; a pointer into the answer and the text there.
type Row = (&'static str, &'static str, u16, &'static str, &'static str);

const SINGLE: &[Row] = &[
    (
        "kube-proxy 1.30.5: log",
        "/api/v1/nodes/n1",
        200,
        "/kind",
        "Node",
    ),
    (
        "kube-proxy 1.20: GetNodeIP asks again while it is not there",
        "/api/v1/nodes/n9",
        404,
        "/reason",
        "NotFound",
    ),
    (
        "kube-proxy 1.34: the service range comes from it",
        "/apis/networking.k8s.io/v1/servicecidrs/kubernetes",
        200,
        "/spec/cidrs/0",
        "10.96.0.0/16",
    ),
    (
        "Felix: loadConfigFromDatastore, daemon.go, waits until it is ready",
        "/apis/crd.projectcalico.org/v1/clusterinformations/default",
        200,
        "/spec/datastoreReady",
        "true",
    ),
    (
        "Felix: the same; what was written through projectcalico.org/v3 is there",
        "/apis/crd.projectcalico.org/v1/felixconfigurations/default",
        200,
        "/spec/bpfEnabled",
        "true",
    ),
    (
        "Felix: the same, of its node; not there is no configuration",
        "/apis/crd.projectcalico.org/v1/felixconfigurations/node.n1",
        404,
        "/reason",
        "NotFound",
    ),
    (
        "Felix: ServerVersion, daemon.go",
        "/version",
        200,
        "/major",
        "1",
    ),
    (
        "Felix v3.32: UsingV3CRDs, discovery.go; both groups mean crd.projectcalico.org",
        "/apis",
        200,
        "/kind",
        "APIGroupList",
    ),
    ("Felix v3.32: the same", "/api", 200, "/versions/0", "v1"),
    (
        "Felix v3.32: LiveMigration; watchercache.go takes it for an API not installed",
        "/apis/kubevirt.io/v1/virtualmachineinstancemigrations?limit=500",
        404,
        "/reason",
        "NotFound",
    ),
    (
        "client-go reflector: a revision of the future is told by its cause, and asked again",
        "/api/v1/pods?resourceVersion=99999&resourceVersionMatch=NotOlderThan",
        504,
        "/details/causes/0/reason",
        "ResourceVersionTooLarge",
    ),
];

#[tokio::test]
async fn single_questions_are_answered_as_agents_take_them() {
    let api = provisioned().await;
    for (who, path, code, pointer, expected) in SINGLE {
        let answer = Wire::to(api.at).await.accepting(CALICO).get(path).await;
        let head = (answer.code, &*answer.media);
        assert_eq!(head, (*code, "application/json"), "{who}");
        let there = answer.body.pointer(pointer).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        assert_eq!(there.as_deref(), Some(*expected), "{who}: {}", answer.body);
    }
    // A cluster without KubeVirt has no more to say than this server.
    assert_eq!(api.server.unknown_requests(), []);
}

#[tokio::test]
async fn what_agents_write_is_taken_and_what_the_server_cannot_read_is_told() {
    let api = provisioned().await;
    let mut wire = Wire::to(api.at).await.accepting(PROTOBUF);
    // kube-proxy 1.20.2 with --kube-api-content-type=application/json.
    let event = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "n1.1"},
        "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"}, "reason": "Starting"});
    let events = "/api/v1/namespaces/default/events";
    assert_eq!(wire.send("POST", events, &event).await.code, 201);
    // Felix's wireguard, UpdateStatus in lib/backend/k8s/resources/node.go: annotations come through
    // the status of a node.
    let mut node = wire.get("/api/v1/nodes/n1").await.body;
    node["metadata"]["annotations"] = json!({"projectcalico.org/WireguardPublicKey": "k"});
    let put = wire.send("PUT", "/api/v1/nodes/n1/status", &node).await;
    assert_eq!(put.code, 200, "{}", put.body);
    let key = "/metadata/annotations/projectcalico.org~1WireguardPublicKey";
    assert_eq!(put.body.pointer(key), Some(&json!("k")));
    assert_eq!(api.server.unknown_requests(), []);
    let mut wire = Wire::to(api.at)
        .await
        .sending("application/vnd.kubernetes.protobuf");
    let put = wire.send("PUT", "/api/v1/nodes/n1/status", &node).await;
    assert_eq!(put.code, 415);
    assert_eq!(api.server.unknown_requests().len(), 1);
}
