//! Requests without a connection: what is asked, what is answered, what is left.

use serde_json::{Value, json};

use super::*;
use crate::{
    path::{Target, parse},
    server::ServerConfig,
};

fn state() -> State {
    let config = ServerConfig::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
    let mut state = State::new(&config);
    ask(
        &mut state,
        "POST",
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "a"}}),
    )
    .unwrap();
    state
}

fn ask(state: &mut State, method: &str, path: &str, body: &Value) -> Result<Value, ApiError> {
    let media = "application/merge-patch+json";
    ask_as(state, method, path, media, body)
}

fn ask_as(
    state: &mut State,
    method: &str,
    url: &str,
    content_type: &str,
    body: &Value,
) -> Result<Value, ApiError> {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let Some(Target::Objects(address)) = parse(path, &state.kinds) else {
        return Err(ApiError::NoSuchResource);
    };
    let body = if method == "GET" {
        Bytes::new()
    } else {
        encode(body)
    };
    let query = Query::parse(query);
    let call = Call {
        method,
        address,
        query,
        accept: "",
        content_type,
        body,
    };
    match handle(state, &call)? {
        Answer::Body(_, body) => Ok(serde_json::from_slice(&body).unwrap()),
        Answer::Watch(_) => Ok(Value::Null),
    }
}

fn samples() -> Vec<(&'static str, Value)> {
    let pod = json!({"metadata": {"labels": {"x": "y"}},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}});
    let owner = json!([{"uid": "u", "kind": "K", "name": "n", "apiVersion": "v1"}]);
    vec![
        (
            "/api/v1/namespaces/a/pods",
            json!({
            "kind": "Pod", "metadata": {"name": "x", "finalizers": ["f"], "labels": {"l": "v"}},
            "spec": pod["spec"], "status": {"phase": "Pending", "conditions": []}}),
        ),
        (
            "/api/v1/namespaces/a/services",
            json!({
            "kind": "Service", "metadata": {"name": "x"},
            "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 30001}]}}),
        ),
        (
            "/apis/apps/v1/namespaces/a/deployments",
            json!({
            "kind": "Deployment", "metadata": {"name": "x", "ownerReferences": owner},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"x": "y"}}, "template": pod}}),
        ),
        (
            "/apis/discovery.k8s.io/v1beta1/namespaces/a/endpointslices",
            json!({
            "kind": "EndpointSlice", "metadata": {"name": "x"}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["1.2.3.4"], "deprecatedTopology": {"a": "b"},
                "topology": {"kubernetes.io/hostname": "n"}, "zone": "z", "nodeName": "n"}],
            "ports": [{"port": 80}]}),
        ),
        (
            "/api/v1/namespaces",
            json!({
            "kind": "Namespace", "metadata": {"name": "x"}, "status": {"phase": "Active"}}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({
            "kind": "CustomResourceDefinition", "metadata": {"name": "xs.e.org"},
            "spec": {"group": "e.org", "scope": "Namespaced",
                "names": {"plural": "xs", "kind": "X", "shortNames": ["x"]},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "subresources": {"scale": {}}}]}, "status": {"conditions": []}}),
        ),
    ]
}

/// Every place in a value, as a JSON pointer.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) => {
            map.iter()
                .for_each(|(k, v)| places(v, &format!("{at}/{}", escaped(k)), found));
        }
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(i, v)| places(v, &format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

/// Every kind of write and a read with this body. Refused or taken, neither is wrong here; each
/// request meets whatever the ones before have left.
fn harass(path: &str, good: &Value, body: &Value) {
    let mut state = state();
    let mut ask = |method: &str, url: &str, media: &str, body: &Value| {
        drop(ask_as(&mut state, method, url, media, body));
    };
    let object = format!("{path}/{}", meta(good, "name"));
    ask("POST", path, "", body);
    ask("POST", path, "", good);
    for media in [
        "merge-patch+json",
        "strategic-merge-patch+json",
        "json-patch+json",
        "apply-patch+yaml",
    ] {
        let media = format!("application/{media}");
        ask(
            "PATCH",
            &format!("{object}?fieldManager=m&force=1"),
            &media,
            body,
        );
        ask("PATCH", &format!("{object}/status"), &media, body);
        ask("PATCH", &format!("{object}/scale"), &media, body);
    }
    for part in ["", "/status", "/scale"] {
        ask("PUT", &format!("{object}{part}"), "", body);
    }
    ask(
        "POST",
        &format!("{object}/binding"),
        "",
        &json!({"target": {"name": "n"}}),
    );
    ask("GET", &format!("{path}?limit=1"), "", &Value::Null);
    ask("DELETE", &object, "", body);
    ask(
        "DELETE",
        path,
        "",
        &json!({"propagationPolicy": "Foreground"}),
    );
}

#[test]
fn no_body_however_wrong_breaks_the_server() {
    let wrong = json!([null, "x", -5, [], ["x", null], {}, {"x": []}, true]);
    for (path, good) in samples() {
        let mut found = Vec::new();
        places(&good, "", &mut found);
        for place in &found {
            for wrong in wrong.as_array().unwrap() {
                let mut body = good.clone();
                body.pointer_mut(place).unwrap().clone_from(wrong);
                harass(path, &good, &body);
            }
        }
    }
}

#[test]
fn a_service_keeps_what_it_was_given_and_gives_it_back_in_the_end() {
    let mut state = state();
    let services = "/api/v1/namespaces/a/services";
    let web = json!({"metadata": {"name": "web"},
                     "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let created = ask(&mut state, "POST", services, &web).unwrap();
    assert_eq!(created["spec"]["clusterIP"], "10.96.1.0");
    assert_eq!(created["spec"]["ports"][0]["nodePort"], 30086);
    assert_eq!(created["spec"]["ports"][0]["targetPort"], 80);
    let url = format!("{services}/web");
    let replaced = ask(&mut state, "PUT", &url, &web).unwrap();
    assert_eq!(replaced["spec"], created["spec"]);
    let moved = json!({"spec": {"clusterIP": "10.96.0.7"}});
    assert_eq!(
        ask(&mut state, "PATCH", &url, &moved).unwrap_err().code(),
        422
    );
    let internal = json!({"spec": {"type": "ClusterIP"}});
    let internal = ask(&mut state, "PATCH", &url, &internal).unwrap();
    assert_eq!(internal["spec"]["clusterIP"], "10.96.1.0");
    assert!(internal["spec"]["ports"][0].get("nodePort").is_none());
    let wants = |ip: &str, port: u16| {
        json!({"metadata": {"name": "other"}, "spec": {"type": "NodePort", "clusterIP": ip,
               "ports": [{"port": 80, "nodePort": port}]}})
    };
    // The port is free again, the address is not, and a refused request has taken neither.
    let refused = ask(&mut state, "POST", services, &wants("10.96.1.0", 30086)).unwrap_err();
    assert_eq!(refused.code(), 422);
    ask(&mut state, "DELETE", &url, &Value::Null).unwrap();
    ask(&mut state, "POST", services, &wants("10.96.1.0", 30086)).unwrap();
}

#[test]
fn an_address_given_back_is_not_the_next_one_given() {
    let mut state = state();
    let services = "/api/v1/namespaces/a/services";
    let mut given = Vec::new();
    for name in ["x", "y"] {
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        let created = ask(&mut state, "POST", services, &service).unwrap();
        given.push(created["spec"]["clusterIP"].clone());
        ask(
            &mut state,
            "DELETE",
            &format!("{services}/{name}"),
            &Value::Null,
        )
        .unwrap();
    }
    assert_eq!(given, ["10.96.1.0", "10.96.1.1"]);
}

#[test]
fn a_pod_on_a_node_leaves_when_its_kubelet_says_so() {
    let mut state = state();
    let (pods, pod) = samples().swap_remove(0);
    let mut pod = pod;
    pod["metadata"]["finalizers"] = json!([]);
    ask(&mut state, "POST", pods, &pod).unwrap();
    let url = format!("{pods}/x");
    ask(
        &mut state,
        "POST",
        &format!("{url}/binding"),
        &json!({"target": {"name": "n1"}}),
    )
    .unwrap();
    let leaving = ask(&mut state, "DELETE", &url, &Value::Null).unwrap();
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(
        leaving["metadata"]["deletionTimestamp"],
        "1970-01-01T00:00:30Z"
    );
    // A namespace waits for it.
    ask(&mut state, "DELETE", "/api/v1/namespaces/a", &Value::Null).unwrap();
    assert_eq!(ask(&mut state, "POST", pods, &pod).unwrap_err().code(), 403);
    ask(
        &mut state,
        "DELETE",
        &url,
        &json!({"gracePeriodSeconds": 0}),
    )
    .unwrap();
    assert_eq!(
        ask(&mut state, "GET", &url, &Value::Null)
            .unwrap_err()
            .code(),
        404
    );
    let namespace = ask(&mut state, "GET", "/api/v1/namespaces/a", &Value::Null);
    assert_eq!(namespace.unwrap_err().code(), 404);
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_taken_off() {
    let mut state = state();
    let maps = "/api/v1/namespaces/a/configmaps";
    let map = json!({"metadata": {"name": "x", "finalizers": ["example.org/hold"]}});
    ask(&mut state, "POST", maps, &map).unwrap();
    let url = format!("{maps}/x");
    ask(&mut state, "DELETE", &url, &Value::Null).unwrap();
    assert!(ask(&mut state, "GET", &url, &Value::Null).is_ok());
    ask(
        &mut state,
        "PATCH",
        &url,
        &json!({"metadata": {"finalizers": null}}),
    )
    .unwrap();
    assert_eq!(
        ask(&mut state, "GET", &url, &Value::Null)
            .unwrap_err()
            .code(),
        404
    );
}

#[test]
fn dependents_follow_their_owner_unless_they_have_another() {
    let mut state = state();
    let maps = "/api/v1/namespaces/a/configmaps";
    let mut make = |name: &str, owners: &[&str]| {
        let owners: Vec<Value> = owners.iter().map(|uid| json!({"uid": uid})).collect();
        let map = json!({"metadata": {"name": name, "ownerReferences": owners}});
        let made = ask(&mut state, "POST", maps, &map).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let (one, two) = (make("one", &[]), make("two", &[]));
    let child = make("child", &[&one]);
    make("grandchild", &[&child]);
    make("shared", &[&one, &two]);
    make("late", &["gone-already"]);
    ask(&mut state, "DELETE", &format!("{maps}/one"), &Value::Null).unwrap();
    let left = ask(&mut state, "GET", maps, &Value::Null).unwrap();
    let left: Vec<&str> = left["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|map| meta(map, "name"))
        .collect();
    assert_eq!(left, ["shared", "two"]);
}

#[test]
fn an_update_that_changes_nothing_writes_nothing_and_generations_count_specs() {
    let mut state = state();
    let (path, web) = samples().swap_remove(2);
    let mut web = web;
    web["metadata"]["ownerReferences"] = Value::Null;
    let first = ask(&mut state, "POST", path, &web).unwrap();
    let url = format!("{path}/x");
    let same = ask(&mut state, "PUT", &url, &web).unwrap();
    assert_eq!(same["metadata"], first["metadata"]);
    let status = json!({"status": {"replicas": 1}, "spec": {"replicas": 9}});
    let status = ask(&mut state, "PATCH", &format!("{url}/status"), &status).unwrap();
    assert_eq!(
        (
            &status["metadata"]["generation"],
            &status["spec"]["replicas"]
        ),
        (&json!(1), &json!(1))
    );
    let scaled = json!({"spec": {"replicas": 3}, "status": {"replicas": 9}});
    let scaled = ask(&mut state, "PATCH", &url, &scaled).unwrap();
    assert_eq!(
        (
            &scaled["metadata"]["generation"],
            &scaled["status"]["replicas"]
        ),
        (&json!(2), &json!(1))
    );
}
