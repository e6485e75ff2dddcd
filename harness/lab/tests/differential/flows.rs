//! Which UDP flows are deleted, and when: every `conntrack` command of both, one change at a time.

use serde_json::{Value, json};

use crate::{
    pair::{Launcher, Trouble},
    real, real_and_model,
    stage::{Front, Stage},
    support::{self, User},
};

/// Notes the words of each command and runs it.
const WITNESS: &str = r#"
real=$(command -v conntrack)
printf '#!/bin/sh\nfor word; do printf "[%%s]" "$word"; done >> /run/flows\necho >> /run/flows\nexec %s "$@"\n' \
    "$real" > /run/chainbreak/bin/conntrack
chmod 755 /run/chainbreak/bin/conntrack
: > /run/flows
"#;

#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn both_delete_the_same_udp_flows_after_every_change() {
    support::require_packages();
    let differences = deletions()
        .await
        .unwrap_or_else(|trouble| panic!("{}", trouble.0));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

async fn deletions() -> Result<Vec<String>, Trouble> {
    let launcher = Launcher::new(User::Myself, Some(&real()));
    let mut pair = launcher
        .raise(Stage::iptables(Front::Legacy), 0, &real_and_model())
        .await;
    pair.sh(WITNESS).await?;
    pair.start().await?;
    let mut found = Vec::new();
    let mut seen = 0;
    for (number, (what, objects)) in changes().into_iter().enumerate() {
        let (puts, deletes): (Vec<Value>, Vec<Value>) =
            objects.into_iter().partition(|it| it.get("gone").is_none());
        for object in deletes {
            pair.ask(json!({ "delete": object["gone"] })).await?;
        }
        pair.put(number + 1, &puts).await?;
        let commands = pair.sh("sort /run/flows; : > /run/flows").await?;
        seen += commands[0].lines().count();
        if commands[0] != commands[1] {
            let [left, right] = commands;
            found.push(format!(
                "{what}: the left one\n{left}the right one\n{right}"
            ));
        }
    }
    assert!(
        seen > 0,
        "nobody ran conntrack: the witness was not in the way"
    );
    Ok(found)
}

fn changes() -> Vec<(&'static str, Vec<Value>)> {
    let two = |name: &str, number| slice(name, number, &["1", "2"]);
    let one = |name: &str, number| slice(name, number, &["1"]);
    let none = |name: &str, number| slice(name, number, &[]);
    let node_port = json!({
        "type": "NodePort", "externalIPs": ["198.51.100.1"],
        "ports": [{ "port": 53, "protocol": "UDP", "nodePort": 31001 }],
    });
    let mut balancer = service(
        "c",
        3,
        json!({
            "type": "LoadBalancer", "ports": [{ "port": 53, "protocol": "UDP", "nodePort": 31002 }],
        }),
    );
    let ingress = json!([{ "ip": "192.0.2.1" }, { "hostname": "balancer.example" }]);
    balancer["status"] = json!({ "loadBalancer": { "ingress": ingress } });
    let plain = |port: Value| service("a", 1, json!({ "ports": [port] }));
    let gone = |object: &Value| vec![json!({ "gone": object })];
    let udp = json!({ "port": 53, "protocol": "UDP" });
    let moved = json!({ "port": 54, "protocol": "UDP" });
    // A service's flows are deleted when it gets its first endpoint, but not where a kube-proxy hears of the
    // endpoint before the service: the two come by different watches, hence one after the other.
    vec![
        ("a cluster IP", vec![plain(udp.clone())]),
        ("a has endpoints", vec![two("a", 1)]),
        ("a node port", vec![service("b", 2, node_port.clone())]),
        ("b has endpoints", vec![two("b", 2)]),
        ("a load balancer", vec![balancer.clone()]),
        ("c has endpoints", vec![two("c", 3)]),
        ("a loses one of two", vec![one("a", 1)]),
        ("b loses one of two", vec![one("b", 2)]),
        ("c loses one of two", vec![one("c", 3)]),
        ("a loses the last", vec![none("a", 1)]),
        ("a gets one again", vec![one("a", 1)]),
        ("b loses the last", vec![none("b", 2)]),
        ("b gets one again", vec![one("b", 2)]),
        ("c loses the last", vec![none("c", 3)]),
        ("c gets one again", vec![one("c", 3)]),
        ("a has another port", vec![plain(moved)]),
        ("b is gone", gone(&service("b", 2, json!({})))),
        ("b is back", vec![service("b", 2, node_port)]),
        ("c's slice is gone", gone(&none("c", 3))),
        ("c is gone", gone(&balancer)),
    ]
}

fn service(name: &str, number: u8, mut spec: Value) -> Value {
    spec["clusterIP"] = json!(format!("10.96.1.{number}"));
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": "default" }, "spec": spec,
    })
}

fn slice(name: &str, number: u8, ends: &[&str]) -> Value {
    let endpoints = ends
        .iter()
        .map(|end| json!({ "addresses": [format!("10.20.{number}.{end}")] }));
    let endpoints: Vec<Value> = endpoints.collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": "default",
            "labels": { "kubernetes.io/service-name": name },
        },
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "", "port": 53, "protocol": "UDP" }],
    })
}
