//! The Service `kubernetes`, which every world has, leads to the API, also when its endpoint is another one.

mod support;

use serde_json::{Value, json};
use support::{User, World, case, pod};

/// Asks until it is answered: rules come some time after the objects that they are made of. The tests' bound is the time of an answer.
fn until_answered(url: &str) -> String {
    format!("until curl --silent --fail --max-time 1 {url}; do sleep 0.05; done")
}

fn dual(mut case: Value, families: &[&str]) -> Value {
    case["cluster"]["ip-families"] = json!(families);
    case
}

async fn with_client(user: User, case: &Value) -> World {
    let mut world = World::raise(user, case).await;
    let sleep = json!({ "image": "tools:1", "command": ["sleep", "1000"] });
    let create = json!({ "create": pod("client", "n2", &sleep) });
    world.ask(create).await;
    world.ask(json!({ "ready": 1 })).await;
    world
}

#[tokio::test]
async fn nodes_and_pods_reach_the_api_by_the_service_kubernetes_also_when_its_endpoint_moves() {
    let version = "http://10.96.0.1:443/version";
    for user in [User::Myself, User::Ordinary] {
        let mut world = with_client(user, &case(2)).await;
        for place in ["node/n1", "node/n2", "pod/default/client"] {
            let answer = world.sh(place, &until_answered(version)).await;
            assert!(answer.contains("gitVersion"), "{place}: {answer}");
        }
        world.ask(json!("move-api")).await;
        let old = world.ask(json!({ "exec": ["node/n1", ["curl", "--silent", "--max-time", "1", "http://10.0.0.2:6443/version"]] }));
        let old = old.await;
        assert_ne!(old["exit"], 0, "nobody is there any more: {old}");
        for place in ["node/n1", "pod/default/client"] {
            let answer = world.sh(place, &until_answered(version)).await;
            assert!(answer.contains("gitVersion"), "{place}: {answer}");
        }
        world.stop().await;
    }
}

#[tokio::test]
async fn who_has_a_connection_to_the_endpoint_loses_it_and_who_asks_directly_does_not() {
    let mut world = with_client(User::Myself, &case(2)).await;
    // A watch of what never changes: it ends when its connection does.
    let watch = "/api/v1/namespaces?watch=true&fieldSelector=metadata.name=nobody";
    let watching =
        |to: &str| format!("curl --silent 'http://{to}{watch}' >/dev/null 2>&1 & echo $!");
    let direct = world.sh("node/n1", &watching("10.0.0.1:6443")).await;
    let by_endpoint = world.sh("node/n1", &watching("10.0.0.2:6443")).await;
    let connected = "until ss -Htn state established dst 10.0.0.2 | grep -q . && ss -Htn state established dst 10.0.0.1 | grep -q .; do sleep 0.05; done";
    world.sh("node/n1", connected).await;
    world.ask(json!("move-api")).await;
    let ended = format!(
        "for i in $(seq 200); do [ -e /proc/{0} ] || break; sleep 0.05; done; [ -e /proc/{0} ] && ss -tanpo || echo ended",
        by_endpoint.trim()
    );
    assert_eq!(world.sh("node/n1", &ended).await.trim(), "ended");
    let lives = format!("kill -0 {} && echo lives", direct.trim());
    assert_eq!(world.sh("node/n1", &lives).await.trim(), "lives");
    world.stop().await;
}

#[tokio::test]
async fn in_a_cluster_of_ipv6_the_service_kubernetes_is_too() {
    let mut world = with_client(User::Ordinary, &dual(case(2), &["IPv6"])).await;
    let version = "http://[fd00:10:96::1]:443/version";
    for place in ["node/n1", "pod/default/client"] {
        let answer = world.sh(place, &until_answered(version)).await;
        assert!(answer.contains("gitVersion"), "{place}: {answer}");
    }
    world.stop().await;
}
