//! Watches and lists as `kube` uses them: nothing is lost through disconnects, and a client that was
//! away too long is told to start again.

use std::{collections::BTreeMap, time::Duration};

use crate::common::{Api, Wire};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api as Resources, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::{reflector, watcher},
};
use serde_json::json;

/// What a condition may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

fn maps(api: &Api) -> Resources<ConfigMap> {
    let url = api.url().parse().expect("a URL");
    let client = Client::try_from(kube::Config::new(url)).expect("plain HTTP needs nothing");
    Resources::default_namespaced(client)
}

async fn set(maps: &Resources<ConfigMap>, name: &str, step: u32) -> String {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                     "data": {"step": step.to_string()}});
    let parameters = PatchParams::apply("test").force();
    let map = maps
        .patch(name, &parameters, &Patch::Apply(&map))
        .await
        .expect("applied");
    map.metadata
        .resource_version
        .expect("stored objects have a revision")
}

#[tokio::test]
async fn a_reflector_is_right_again_after_every_disconnect_and_expiry() {
    let mut api = Api::start(8);
    follow(&mut api, watcher::Config::default()).await;
}

#[tokio::test]
async fn so_is_one_that_never_lists() {
    let mut api = Api::start(8);
    follow(&mut api, watcher::Config::default().streaming_lists()).await;
    let asked = api.server.asked();
    let mut reads = asked
        .iter()
        .filter(|(asked, _)| asked.method == "GET")
        .peekable();
    assert!(reads.peek().is_some());
    assert!(reads.all(|(asked, _)| asked.watch), "{asked:?}");
}

/// A reflector with this configuration through changes, disconnects and expiries.
async fn follow(api: &mut Api, config: watcher::Config) {
    let maps = maps(api);
    let (reader, writer) = reflector::store();
    let stream = watcher(maps.clone(), config);
    // Retry at once: the default backoff only makes the test slow.
    let stream = reflector(writer, stream);
    let following = tokio::spawn(async move { stream.for_each(|_| async {}).await });
    let mut expected = BTreeMap::new();
    for round in 0..6_u32 {
        // More changes than the window of eight remembers, in every other round.
        for change in 0..(round % 2) * 20 + 3 {
            let name = format!("m{}", change % 4);
            set(&maps, &name, round * 100 + change).await;
            expected.insert(name, (round * 100 + change).to_string());
        }
        if round == 3 {
            let deleted = maps.delete("m0", &DeleteParams::default()).await;
            deleted.expect("it is there");
            expected.remove("m0");
        }
        let seen = || -> BTreeMap<String, String> {
            let state = reader.state();
            let told = state.iter().map(|map| {
                let step = map.data.as_ref().and_then(|data| data.get("step"));
                (
                    map.metadata.name.clone().unwrap_or_default(),
                    step.cloned().unwrap_or_default(),
                )
            });
            told.collect()
        };
        let right = async {
            let mut pace = tokio::time::interval(Duration::from_millis(2));
            while seen() != expected {
                pace.tick().await;
            }
        };
        let reached = tokio::time::timeout(DEADLINE, right).await;
        assert!(
            reached.is_ok(),
            "round {round}: {:?} is not {expected:?}",
            seen()
        );
        api.cut().await;
    }
    following.abort();
}

#[tokio::test]
async fn a_watch_from_before_the_window_is_told_it_is_expired() {
    let api = Api::start(4);
    let maps = maps(&api);
    let old = set(&maps, "a", 0).await;
    for step in 1..10 {
        set(&maps, "a", step).await;
    }
    let events = maps.watch(&WatchParams::default(), &old).await.unwrap();
    let first = events.boxed().try_next().await.unwrap().unwrap();
    match first {
        WatchEvent::Error(status) => assert_eq!((status.code, &*status.reason), (410, "Expired")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_list_in_pieces_is_one_moment_and_expires_with_the_window() {
    let api = Api::start(20);
    let maps = maps(&api);
    for n in 0..7 {
        set(&maps, &format!("m{n}"), 0).await;
    }
    let first = maps.list(&ListParams::default().limit(3)).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(4));
    maps.delete("m5", &DeleteParams::default()).await.unwrap();
    set(&maps, "m6", 1).await;
    let rest = maps
        .list(&ListParams::default().limit(100).continue_token(&token))
        .await
        .unwrap();
    let names: Vec<_> = rest
        .items
        .iter()
        .filter_map(|m| m.metadata.name.as_deref())
        .collect();
    assert_eq!(names, ["m3", "m4", "m5", "m6"]);
    for step in 0..20 {
        set(&maps, "other", step).await;
    }
    let late = maps
        .list(&ListParams::default().continue_token(&token))
        .await
        .unwrap_err();
    assert!(
        matches!(late, kube::Error::Api(ref status) if status.code == 410),
        "{late}"
    );
}

#[tokio::test]
async fn a_selector_sees_objects_come_and_go() {
    let api = Api::start(100);
    let maps = maps(&api);
    let from = set(&maps, "a", 0).await;
    let label = |value: &str| json!({"metadata": {"labels": {"tier": value}}});
    for value in ["x", "y", "x"] {
        let patch = Patch::Merge(label(value));
        maps.patch("a", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let selected = WatchParams::default().labels("tier=x");
    let events = maps.watch(&selected, &from).await.unwrap();
    let told = events.take(4).map_ok(|event| match event {
        WatchEvent::Added(_) => "added",
        WatchEvent::Modified(_) => "modified",
        WatchEvent::Deleted(_) => "deleted",
        _ => "other",
    });
    let told: Vec<_> = tokio::time::timeout(DEADLINE, told.try_collect())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(told, ["added", "deleted", "added", "deleted"]);
}

#[tokio::test]
async fn a_stale_update_is_a_conflict_and_a_second_create_is_one_too() {
    let api = Api::start(100);
    let maps = maps(&api);
    set(&maps, "a", 0).await;
    let mut stale = maps.get("a").await.unwrap();
    set(&maps, "a", 1).await;
    stale.data = None;
    let code = |error: kube::Error| match error {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("{other}"),
    };
    let refused = maps
        .replace("a", &PostParams::default(), &stale)
        .await
        .unwrap_err();
    assert_eq!(code(refused), (409, "Conflict".to_owned()));
    stale.metadata.resource_version = None;
    let refused = maps
        .create(&PostParams::default(), &stale)
        .await
        .unwrap_err();
    assert_eq!(code(refused), (409, "AlreadyExists".to_owned()));
    stale.metadata.name = Some("Not A Name".to_owned());
    let refused = maps
        .create(&PostParams::default(), &stale)
        .await
        .unwrap_err();
    assert_eq!(code(refused), (422, "Invalid".to_owned()));
}

#[tokio::test]
async fn the_first_state_of_a_streaming_list_ends_with_a_marked_bookmark() {
    let api = Api::start(100);
    let maps = maps(&api);
    set(&maps, "a", 0).await;
    let newest = set(&maps, "b", 0).await;
    let mut wire = Wire::to(api.at).await;
    let options = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                   &allowWatchBookmarks=true&timeoutSeconds=1";
    let answer = wire.get(&format!("/api/v1/configmaps?{options}")).await;
    assert_eq!((answer.code, &*answer.media), (200, "application/json"));
    let kinds: Vec<_> = answer.lines.iter().map(|line| &line["type"]).collect();
    // The last bookmark is the one that every watch with bookmarks ends with.
    assert_eq!(kinds, ["ADDED", "ADDED", "BOOKMARK", "BOOKMARK"]);
    let marked = &answer.lines[2]["object"];
    assert_eq!(
        *marked,
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "resourceVersion": newest, "creationTimestamp": null,
            "annotations": {"k8s.io/initial-events-end": "true"}}})
    );
    assert!(answer.lines[3]["object"]["metadata"]["annotations"].is_null());
    // Who does not allow bookmarks gets none, as from the real server.
    let options = options.replace("allowWatchBookmarks=true", "allowWatchBookmarks=false");
    let answer = wire.get(&format!("/api/v1/configmaps?{options}")).await;
    assert!(answer.lines.iter().all(|line| line["type"] == "ADDED"));
    assert_eq!(answer.lines.len(), 2);
}

/// As an API server of 1.34.10 was seen to do it.
#[tokio::test]
async fn a_pod_that_goes_at_once_is_marked_first() {
    let api = Api::start(100);
    let url = api.url().parse().expect("a URL");
    let client = Client::try_from(kube::Config::new(url)).expect("plain HTTP needs nothing");
    let pods = Resources::<Pod>::default_namespaced(client);
    let pod = json!({"metadata": {"name": "short"},
                     "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": [{"name": "one", "image": "one"}]}});
    let pod = serde_json::from_value(pod).unwrap();
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    pods.delete("short", &DeleteParams::default())
        .await
        .unwrap();
    let from = pod.metadata.resource_version.unwrap();
    let events = pods.watch(&WatchParams::default(), &from).await.unwrap();
    let told = events.take(2).map_ok(|event| match event {
        WatchEvent::Modified(pod) => ("modified", pod.metadata.deletion_grace_period_seconds),
        WatchEvent::Deleted(pod) => ("deleted", pod.metadata.deletion_grace_period_seconds),
        _ => ("other", None),
    });
    let told: Vec<_> = tokio::time::timeout(DEADLINE, told.try_collect())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(told, [("modified", Some(0)), ("deleted", Some(0))]);
}
