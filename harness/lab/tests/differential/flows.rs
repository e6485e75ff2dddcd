//! Which UDP flows are deleted, and when, one change at a time. Before each change both tables hold the same flows;
//! what is missing afterwards was deleted. Until 1.31 every `conntrack` command is compared, too; from 1.32 on flows
//! are deleted over netlink, and nobody runs the program.

use std::fmt::Write as _;

use chainbreak_agents::kube_proxy::Version;
use serde_json::{Value, json};

use crate::{
    outcome::Trouble,
    pair::Launcher,
    real, real_and_model, real_version,
    stage::{IptablesBackend, Stage},
    support::{self, User},
};

/// Notes the words of each command and runs it. Our own commands go past it.
const WITNESS: &str = r#"
real=$(command -v conntrack)
printf '#!/bin/sh\nfor word; do printf "[%%s]" "$word"; done >> /run/flows\necho >> /run/flows\nexec %s "$@"\n' \
    "$real" > /run/chainbreak/bin/conntrack
chmod 755 /run/chainbreak/bin/conntrack
: > /run/flows
printf '%s\n' "$real" > /run/conntrack
"#;
/// The commands since the last look, and which flows there are.
const COMMANDS: &str = "sort /run/flows; : > /run/flows";
const LISTING: &str = "$(cat /run/conntrack) -L -p udp 2>/dev/null";

/// Where flows went to, and whether the number is a node port, or any port of the service's.
const TARGETS: [(&str, u16); 10] = [
    ("10.96.1.1", 53),
    ("10.96.1.1", 54),
    ("10.96.1.2", 53),
    ("198.51.100.1", 53),
    ("203.0.113.9", 31001),
    ("10.96.1.3", 53),
    ("192.0.2.1", 53),
    ("192.0.2.1", 5353),
    ("203.0.113.9", 31002),
    ("203.0.113.9", 53),
];
/// Who answers, by the last part of an address in the network of the service: other ports and addresses are nobody's.
const ANSWERS: [(u8, u16); 4] = [(1, 53), (2, 53), (1, 54), (9, 53)];

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
        .raise(
            Stage::iptables(IptablesBackend::Legacy),
            0,
            &real_and_model(),
        )
        .await;
    pair.sh(WITNESS).await?;
    pair.start().await?;
    let plant = planting();
    let (mut found, mut run, mut gone) = (Vec::new(), 0, 0);
    for (number, (what, objects)) in changes().into_iter().enumerate() {
        pair.sh(&plant).await?;
        let before = pair.sh(LISTING).await?.map(|listing| flows(&listing));
        let (puts, deletes): (Vec<Value>, Vec<Value>) =
            objects.into_iter().partition(|it| it.get("gone").is_none());
        for object in deletes {
            pair.ask(json!({ "delete": object["gone"] })).await?;
        }
        pair.put(number + 1, &puts).await?;
        let after = pair.sh(LISTING).await?.map(|listing| flows(&listing));
        let commands = pair.sh(COMMANDS).await?;
        let deleted = [0, 1].map(|side| {
            let missing = before[side].difference(&after[side]);
            missing.fold(commands[side].clone(), |text, flow| text + flow + "\n")
        });
        run += commands[0].lines().count();
        gone += before[0].difference(&after[0]).count();
        if deleted[0] != deleted[1] {
            let [left, right] = deleted;
            found.push(format!(
                "{what}: the left one\n{left}the right one\n{right}"
            ));
        }
    }
    assert!(gone > 0, "nobody deleted a flow: none was in the way");
    assert_eq!(
        run > 0,
        runs_conntrack(),
        "{run} conntrack commands were seen"
    );
    Ok(found)
}

/// Until 1.31 (cleanup.go).
fn runs_conntrack() -> bool {
    let version = real_version();
    let _known: Version = version.parse().expect("a release");
    let minor = version.split('.').nth(1).and_then(|it| it.parse().ok());
    minor.is_some_and(|minor: u32| minor < 32)
}

/// A script that makes all flows that are missing: each of the targets, answered by every one of the answers, and one
/// that nobody translated.
fn planting() -> String {
    let mut script = "real=$(cat /run/conntrack)\n".to_owned();
    let mut client = 0;
    for (to, port) in TARGETS {
        let network = match (to, port) {
            ("10.96.1.1", _) => 1,
            ("10.96.1.2" | "198.51.100.1", _) | (_, 31001) => 2,
            _ => 3,
        };
        let answers = ANSWERS.map(|(end, port)| (format!("10.20.{network}.{end}"), port));
        for (by, by_port) in answers.into_iter().chain([(to.to_owned(), port)]) {
            client += 1;
            writeln!(
                script,
                "$real -I -p udp -s 10.20.9.{client} -d {to} --sport 4000 --dport {port} -r {by} \
                 -q 10.20.9.{client} --reply-port-src {by_port} --reply-port-dst 4000 -t 600 2>/dev/null"
            )
            .expect("a string takes everything");
        }
    }
    script + "true"
}

/// The flows of a listing, without what changes by itself.
fn flows(listing: &str) -> std::collections::BTreeSet<String> {
    let planted = listing.lines().filter(|line| line.contains("src=10.20.9."));
    let words = planted.map(|line| {
        let words = line.split_ascii_whitespace();
        let fixed = words.filter(|word| word.contains('=') && !word.starts_with("use="));
        fixed.collect::<Vec<_>>().join(" ")
    });
    words.collect()
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
