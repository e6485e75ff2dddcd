//! Where a cluster begins to be large: rules that are many lose their comments.

use serde_json::{Value, json};

use crate::{
    pair::Launcher,
    real, real_and_model,
    sequence::{Operation, Sequence},
    stage::{IptablesBackend, Stage},
    support::{self, User},
};

/// A thousand with that of the marker: one more is too many (proxier.go, `endpointChainsNumberThreshold`).
const MOST: usize = 999;
const IN_A_SLICE: usize = 100;

#[tokio::test]
#[ignore = "needs a real kube-proxy: make test-real"]
async fn both_take_the_same_cluster_for_large() {
    support::require_packages();
    let launcher = Launcher::new(User::Myself, Some(&real()));
    let mut before = vec![Operation::Put(service())];
    before.extend(slices(MOST).into_iter().map(Operation::Put));
    let more = slices(MOST + 1).pop().expect("there are slices");
    let fewer = slices(MOST).pop().expect("there are slices");
    let sequence = Sequence {
        stage: Stage::iptables(IptablesBackend::Legacy),
        rounds: vec![
            before,
            vec![Operation::Put(more)],
            vec![Operation::Put(fewer)],
        ],
    };
    let life = launcher.run(&sequence, 0, &real_and_model()).await;
    let life = life.unwrap_or_else(|trouble| panic!("{}", trouble.0));
    if let Some(difference) = life.difference {
        panic!("{difference}");
    }
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "large", "namespace": "default" },
        "spec": { "clusterIP": "10.96.1.1", "ports": [{ "port": 80 }] },
    })
}

fn slices(endpoints: usize) -> Vec<Value> {
    let all: Vec<usize> = (0..endpoints).collect();
    let slices = all.chunks(IN_A_SLICE).map(|numbers| {
        let endpoints = numbers.iter().map(|number| {
            let address = format!("10.20.{}.{}", number / 200, number % 200 + 1);
            json!({ "addresses": [address] })
        });
        let endpoints: Vec<Value> = endpoints.collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("large-{}", numbers[0]), "namespace": "default",
                "labels": { "kubernetes.io/service-name": "large" },
            },
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{ "name": "", "port": 80, "protocol": "TCP" }],
        })
    });
    slices.collect()
}
