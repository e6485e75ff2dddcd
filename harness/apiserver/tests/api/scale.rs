//! The size of the incident: seventy nodes with two agents each, all watching.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api as Resources, Client,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;

use crate::common::Api;

const AGENTS: usize = 140;
const CHANGES: usize = 50;
/// An idle machine needs half a second; the bound only tells a linear server from a quadratic one.
const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn every_agent_of_seventy_nodes_sees_every_change_in_order() {
    let api = Api::start(1000);
    let config = kube::Config::new(api.url().parse().expect("a URL"));
    let client = Client::try_from(config).expect("plain HTTP needs nothing");
    let slices: Resources<EndpointSlice> = Resources::default_namespaced(client);
    let endpoints: Vec<_> = (0..100)
        .map(|n| json!({"addresses": [format!("10.1.0.{n}")], "nodeName": "n1"}))
        .collect();
    let slice = json!({"metadata": {"name": "web"}, "addressType": "IPv4", "endpoints": endpoints});
    let slice = serde_json::from_value(slice).unwrap();
    let made = slices.create(&PostParams::default(), &slice).await.unwrap();
    let from = made.metadata.resource_version.unwrap();
    let mut watching = Vec::new();
    for _ in 0..AGENTS {
        watching.push(
            slices
                .watch(&WatchParams::default(), &from)
                .await
                .unwrap()
                .boxed(),
        );
    }
    let started = Instant::now();
    for n in 0..CHANGES {
        let change = json!({"metadata": {"labels": {"change": n.to_string()}}});
        slices
            .patch("web", &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap();
    }
    let written = started.elapsed();
    for events in watching {
        let seen = events.take(CHANGES).map_ok(|event| match event {
            WatchEvent::Modified(slice) => slice.metadata.labels.unwrap()["change"].clone(),
            other => panic!("{other:?}"),
        });
        let seen: Vec<String> = tokio::time::timeout(DEADLINE, seen.try_collect())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            seen,
            (0..CHANGES).map(|n| n.to_string()).collect::<Vec<_>>()
        );
    }
    println!(
        "{CHANGES} changes written in {written:?}, seen by {AGENTS} in {:?}",
        started.elapsed()
    );
}
