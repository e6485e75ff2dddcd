//! Who asked for what is known while the server runs.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
};

use chainbreak_apiserver::{Asked, Server, ServerConfig};
use serde_json::json;

use crate::common::{Api, Wire};

fn told(asked: &[(Asked, u64)]) -> Vec<(&str, String, u64)> {
    let told = asked.iter();
    told.map(|(asked, count)| (&*asked.user_agent, asked.to_string(), *count))
        .collect()
}

#[tokio::test]
async fn every_request_is_counted_with_who_made_it_and_how_it_was_answered() {
    let api = Api::start(100);
    let mut proxy = Wire::to(api.at).await.named("kube-proxy/v1.20.2");
    for _ in 0..3 {
        let answer = proxy.get("/api/v1/nodes/n1?x=y").await;
        assert_eq!((answer.code, &*answer.media), (404, "application/json"));
        assert_eq!(answer.body["details"]["name"], "n1");
    }
    proxy.get("/api/v1/services?limit=500").await;
    let watch = "/api/v1/services?watch=true&resourceVersion=1&timeoutSeconds=1";
    proxy.get(watch).await;
    let mut felix = Wire::to(api.at).await.named("felix");
    let map = json!({"metadata": {"name": "m"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    felix.send("POST", maps, &map).await;
    let asked = api.server.asked();
    assert_eq!(
        told(&asked),
        [
            ("felix", format!("POST {maps}: 201"), 1),
            (
                "kube-proxy/v1.20.2",
                "GET /api/v1/nodes/n1: 404".to_owned(),
                3
            ),
            (
                "kube-proxy/v1.20.2",
                "GET /api/v1/services: 200".to_owned(),
                1
            ),
            (
                "kube-proxy/v1.20.2",
                "GET /api/v1/services (watch): 200".to_owned(),
                1
            ),
        ]
    );
    assert!(asked.iter().all(|(asked, _)| asked.peer == api.at.ip()));
    // A node that is not there is an answer, not a gap of the server.
    assert_eq!(api.server.unknown_requests(), []);
}

#[tokio::test]
async fn what_is_not_served_is_told_at_once_and_once() {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let tell = Arc::clone(&heard);
    let mut config = ServerConfig::new(Arc::new(jiff::Timestamp::now));
    config.on_unknown = Some(Arc::new(move |asked| {
        let line = format!("{} {asked}", asked.user_agent);
        tell.lock().expect("nobody panics").push(line);
    }));
    let server = Server::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let serving = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.serve(listener).await }
    });
    let mut wire = Wire::to(at).await.named("felix");
    for _ in 0..2 {
        wire.get("/apis/example.org/v1/gadgets?watch=true").await;
    }
    wire.send("DELETE", "/api/v1/pods", &json!({})).await;
    let expected = [
        "felix GET /apis/example.org/v1/gadgets (watch): 404",
        "felix DELETE /api/v1/pods: 405",
    ];
    assert_eq!(*heard.lock().unwrap(), expected);
    let counts = server.unknown_requests().into_iter().map(|(_, n)| n);
    assert_eq!(counts.collect::<Vec<_>>(), [1, 2]);
    serving.abort();
}
