//! The embedded Kubernetes API for tests of what is asked of a real one.

use std::{net::TcpListener, sync::Arc};

use chainbreak_apiserver::{Server, ServerConfig};
use hyper::{Request, Response};
use kube::{Client, client::Body};

/// A client of a new, empty one.
pub(crate) fn api() -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    listener.set_nonblocking(true).expect("a socket");
    let server = Server::new(ServerConfig::new(Arc::new(jiff::Timestamp::now)));
    tokio::spawn(async move { server.serve(listener).await });
    let uri = format!("http://{address}").parse().expect("a URL");
    Client::try_from(kube::Config::new(uri)).expect("a client")
}

/// The same, with what every container has logged: logs are a kubelet's, which the embedded API lacks.
pub(crate) fn logging(api: Client, log: &'static str) -> Client {
    let answer = move |request: Request<Body>| {
        let api = api.clone();
        async move {
            if request.uri().path().ends_with("/log") {
                return Ok(Response::new(Body::from(log.as_bytes().to_vec())));
            }
            api.send(request).await
        }
    };
    Client::new(tower::service_fn(answer), "default")
}
