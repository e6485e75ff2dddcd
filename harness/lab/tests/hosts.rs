//! What a scenario says of the network around the nodes is so.

mod support;

use serde_json::{Value, json};
use support::{User, World, case, pod};

/// What the host's nginx answers, headers included.
fn get(address: &str) -> String {
    format!("curl --silent --show-error --include --max-time 2 http://{address}:8080/")
}

/// A host that answers at a further address and reaches the pods of n1 through that node.
fn with_host(mut case: Value) -> Value {
    case["cluster"]["hosts"] = json!({
        "db": {
            "addresses": ["192.0.2.10"],
            "routes": [{ "to": "10.20.1.0/24", "via": { "node": "n1" } }],
            "nginx": 8080,
        },
        "other": {},
    });
    case
}

#[tokio::test]
async fn a_host_answers_at_its_further_address_and_names_the_pod_that_asks() {
    for user in [User::Myself, User::Ordinary] {
        let mut world = World::raise(user, &with_host(case(2))).await;
        let sleep = json!({ "image": "tools:1", "command": ["sleep", "1000"] });
        world
            .ask(json!({ "create": pod("client", "n1", &sleep) }))
            .await;
        world.ask(json!({ "ready": 1 })).await;
        let answer = world.sh("pod/default/client", &get("192.0.2.10")).await;
        assert!(answer.contains("x-chainbreak-backend: db\r\n"), "{answer}");
        assert!(
            answer.contains("x-chainbreak-client: 10.20.1.2:"),
            "{answer}"
        );
        let answer = world.sh("host/other", &get("192.0.2.10")).await;
        assert!(
            answer.contains("x-chainbreak-client: 10.0.2.2:"),
            "{answer}"
        );
        world.stop().await;
    }
}

#[tokio::test]
async fn an_address_that_somebody_has_is_refused() {
    let mut taken = with_host(case(1));
    taken["cluster"]["hosts"]["other"] = json!({ "addresses": ["10.0.1.1"] });
    let (world, raised) = World::try_raise(User::Myself, &taken).await;
    let error = raised["error"].as_str().expect("it is refused");
    assert!(error.contains("10.0.1.1 cannot be host other's"), "{error}");
    world.failed().await;
}

#[tokio::test]
async fn nodes_have_their_settings_before_agents_start() {
    let mut case = case(1);
    let liberal = "net.netfilter.nf_conntrack_tcp_be_liberal";
    case["cluster"]["sysctls"] = json!({ (liberal): "1" });
    let mut world = World::raise(User::Ordinary, &case).await;
    // kube-proxy from 1.29 reads it once, at its start, and says so.
    let said = world.ask(json!({ "log": ["kube-proxy", "n1", 3] })).await;
    assert!(said.to_string().contains("be_liberal set"), "{said}");
    world.stop().await;
    case["cluster"]["sysctls"] = json!({ "net.ipv4.no_such_thing": "1" });
    let (world, raised) = World::try_raise(User::Myself, &case).await;
    let error = raised["error"].as_str().expect("it is refused");
    assert!(error.contains("no_such_thing"), "{error}");
    world.failed().await;
}
