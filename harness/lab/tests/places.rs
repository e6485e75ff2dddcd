//! Worlds hang together inside and share nothing outside.

mod support;

use std::time::Duration;

use serde_json::json;
use support::{User, World, address, case, pod};

/// What a pod's nginx answers, headers included.
fn get(address: &str) -> String {
    format!("curl --silent --show-error --include --max-time 2 http://{address}/")
}

async fn pods_reach_each_other(user: User) {
    let mut world = World::raise(user, &case(2)).await;
    let pods = world.nginx(&[("a", "n1"), ("b", "n2")]).await;
    let (a, b) = (address(&pods, "a"), address(&pods, "b"));
    let answer = world.sh("pod/default/a", &get(&b)).await;
    // Two witnesses: what came back, and whom the server saw.
    assert!(answer.contains("x-chainbreak-backend: b\r\n"), "{answer}");
    assert!(
        answer.contains(&format!("x-chainbreak-client: {a}:")),
        "{answer}"
    );
    let answer = world.sh("node/n1", &get(&b)).await;
    assert!(
        answer.contains("x-chainbreak-client: 10.0.1.1:"),
        "{answer}"
    );
    let routes = world.exec("node/n2", &["ip", "route"]).await;
    assert!(routes.contains(&format!("{b} dev cali")), "{routes}");
    world.stop().await;
}

#[tokio::test]
async fn pods_on_two_nodes_reach_each_other_as_root() {
    pods_reach_each_other(User::Myself).await;
}

#[tokio::test]
async fn pods_on_two_nodes_reach_each_other_as_an_ordinary_user() {
    pods_reach_each_other(User::Ordinary).await;
}

#[tokio::test]
async fn an_off_cluster_host_reaches_nodes_but_no_pods() {
    let mut world = World::raise(User::Myself, &case(1)).await;
    let pods = world.nginx(&[("a", "n1")]).await;
    let script = format!(
        "ip route get 10.0.1.1; ! {} 2>&1",
        get(&address(&pods, "a"))
    );
    let seen = world.sh("host/outside", &script).await;
    assert!(seen.starts_with("10.0.1.1 dev eth0 src 10.0.2.1"), "{seen}");
    world.stop().await;
}

#[tokio::test]
async fn worlds_side_by_side_do_not_see_each_other() {
    let case = case(2);
    let (mut one, mut two) = tokio::join!(
        World::raise(User::Myself, &case),
        World::raise(User::Myself, &case)
    );
    one.nginx(&[("a", "n1")]).await;
    let pods = two.nginx(&[("b", "n1")]).await;
    // The same address in both, another pod behind it.
    let answer = two.sh("node/n2", &get(&address(&pods, "b"))).await;
    assert!(answer.contains("x-chainbreak-backend: b\r\n"), "{answer}");
    one.stop().await;
    let answer = two.sh("node/n2", &get(&address(&pods, "b"))).await;
    assert!(
        answer.contains("x-chainbreak-backend: b\r\n"),
        "the other's end was felt: {answer}"
    );
    let processes = two.exec("node/n1", &["ps", "ax"]).await;
    assert_eq!(processes.matches("nginx -c").count(), 1, "{processes}");
    two.stop().await;
}

#[tokio::test]
async fn a_deleted_pod_is_gone_from_its_node_and_the_api() {
    let mut world = World::raise(User::Myself, &case(1)).await;
    world.nginx(&[("a", "n1")]).await;
    let before = world.exec("node/n1", &["ip", "-o", "link"]).await;
    assert_eq!(before.matches("cali").count(), 1, "{before}");
    world
        .ask(json!({ "delete": pod("a", "n1", &json!({})) }))
        .await;
    world.ask(json!({ "pods": 0 })).await;
    let after = world.exec("node/n1", &["ip", "-o", "link"]).await;
    assert_eq!(after.matches("cali").count(), 0, "{after}");
    let processes = world.exec("node/n1", &["ps", "ax"]).await;
    assert_eq!(processes.matches("nginx -c").count(), 0, "{processes}");
    world.stop().await;
}

#[tokio::test]
async fn a_command_runs_in_its_pods_place_and_ends_with_everything_it_started() {
    let mut world = World::raise(User::Myself, &case(1)).await;
    let script = "sleep 1234 & hostname > /run/seen; ip -o addr show eth0 >> /run/seen; echo $WHO >> /run/seen; exec sleep 4321";
    let container = json!({
        "image": "tool",
        "command": ["sh", "-c", script],
        "env": [{ "name": "WHO", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
    });
    world
        .ask(json!({ "create": pod("tool", "n1", &container) }))
        .await;
    world.ask(json!({ "ready": 1 })).await;
    let seen = world
        .sh(
            "node/n1",
            "while ! grep -q n1 /run/seen; do :; done; cat /run/seen",
        )
        .await;
    assert!(
        seen.starts_with("tool\n") && seen.contains("10.20.1.2/32"),
        "{seen}"
    );
    world
        .ask(json!({ "delete": pod("tool", "n1", &json!({})) }))
        .await;
    world.ask(json!({ "pods": 0 })).await;
    let processes = world.exec("node/n1", &["ps", "ax"]).await;
    assert!(!processes.contains("sleep"), "{processes}");
    world.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_to_end_gets_its_hook_first_and_then_sigterm() {
    let mut world = World::raise(User::Myself, &case(1)).await;
    let script = "trap 'echo term >> /run/seen; exit 0' TERM; echo up >> /run/seen; while :; do sleep 0.01; done";
    let container = json!({
        "image": "tool",
        "command": ["sh", "-c", script],
        "lifecycle": { "preStop": { "exec": { "command": ["sh", "-c", "echo hook >> /run/seen"] } } },
    });
    world
        .ask(json!({ "create": pod("tool", "n1", &container) }))
        .await;
    world
        .sh(
            "node/n1",
            "until grep -q up /run/seen 2> /dev/null; do :; done",
        )
        .await;
    world
        .ask(json!({ "delete": pod("tool", "n1", &json!({})) }))
        .await;
    world.ask(json!({ "pods": 0 })).await;
    assert_eq!(
        world.sh("node/n1", "cat /run/seen").await,
        "up\nhook\nterm\n"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_failing_command_is_started_again_and_its_words_are_in_the_history() {
    let mut world = World::raise(User::Myself, &case(1)).await;
    let script = "echo x >> /run/starts; echo no good >&2; exit 3";
    let container = json!({ "image": "tool", "command": ["sh", "-c", script] });
    world
        .ask(json!({ "create": pod("tool", "n1", &container) }))
        .await;
    world
        .sh(
            "node/n1",
            "until grep -c x /run/starts 2> /dev/null | grep -q 2; do :; done",
        )
        .await;
    let events = world.ask(json!("events")).await.to_string();
    let said = "container main of pod tool ended with 3: no good";
    assert!(events.contains(said), "{events}");
    assert!(
        !events.contains("trouble"),
        "a manifest's own affair: {events}"
    );
    world.stop().await;
}

#[tokio::test]
async fn the_agents_commands_are_in_the_history_with_their_node() {
    let mut world = World::raise(User::Myself, &case(2)).await;
    world.nginx(&[("a", "n1")]).await;
    let script = "until iptables-save -t nat | grep -q KUBE-MARK-MASQ; do :; done";
    world.sh("node/n2", script).await;
    // The rules are there a moment before the command has ended, and is told of.
    let told = async {
        loop {
            let events = world.ask(json!("events")).await;
            let events = events.as_array().unwrap().iter();
            let mut commands = events.map(|event| &event["what"]["command"]);
            let restore = commands.find(|command| {
                let ours = command["who"] == "kube-proxy" && command["node"] == "n2";
                ours && command["argv"][0] == "iptables-restore"
            });
            if let Some(restore) = restore {
                break restore.clone();
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(30), told).await;
    let restore = told.expect("the command that made the rules is told of");
    let input = restore["input"].as_str().unwrap();
    assert!(input.contains(":KUBE-SERVICES - [0:0]"), "{input}");
    world.stop().await;
}
