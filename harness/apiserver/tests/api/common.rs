//! A server on a free loopback port, for tests that speak to it as clients do.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use bytes::Bytes;
use chainbreak_apiserver::{Server, ServerConfig};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinHandle};

/// A server whose connections can be cut and taken again.
pub(crate) struct Api {
    /// The server.
    pub(crate) server: Arc<Server>,
    /// Where it listens.
    pub(crate) at: SocketAddr,
    /// Kept, so that nobody else gets the port between two servings.
    listener: TcpListener,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Api {
    /// Starts with this many changes remembered.
    pub(crate) fn start(watch_window: usize) -> Self {
        let mut config = ServerConfig::new(Arc::new(jiff::Timestamp::now));
        config.watch_window = watch_window;
        Self::of(config)
    }

    /// Starts as it is said.
    pub(crate) fn of(config: ServerConfig) -> Self {
        let server = Server::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let at = listener
            .local_addr()
            .expect("a bound listener has an address");
        let serving = serve(&server, &listener);
        Self {
            server,
            at,
            listener,
            serving,
        }
    }

    /// Closes every connection and listens again at the same place.
    pub(crate) async fn cut(&mut self) {
        self.serving.abort();
        let ended = (&mut self.serving).await;
        assert!(
            ended.is_err_and(|error| error.is_cancelled()),
            "the server ends only when told"
        );
        self.serving = serve(&self.server, &self.listener);
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.at)
    }
}

fn serve(server: &Arc<Server>, listener: &TcpListener) -> JoinHandle<std::io::Result<()>> {
    let server = Arc::clone(server);
    let listener = listener.try_clone().expect("a listener can be shared");
    tokio::spawn(async move { server.serve(listener).await })
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One connection, on which requests are exactly what a test says.
pub(crate) struct Wire {
    sender: http1::SendRequest<Full<Bytes>>,
    user_agent: &'static str,
    accept: &'static str,
    content_type: &'static str,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) code: u16,
    /// The media type.
    pub(crate) media: String,
    /// The first JSON document of the body; null when there is none.
    pub(crate) body: Value,
    /// All of them: a watch sends one after the other.
    pub(crate) lines: Vec<Value>,
}

impl Wire {
    /// Connects, as a client that takes anything.
    pub(crate) async fn to(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).await.expect("the server listens");
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/1.1");
        tokio::spawn(connection);
        Self {
            sender,
            user_agent: "test",
            accept: "*/*",
            content_type: "application/json",
        }
    }

    /// Calls itself so.
    pub(crate) fn named(mut self, user_agent: &'static str) -> Self {
        self.user_agent = user_agent;
        self
    }

    /// Accepts these media types.
    pub(crate) fn accepting(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    /// Sends its bodies as this media type.
    pub(crate) fn sending(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    /// Reads to the end of the answer: a watch has to have a timeout.
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        let response = self.ask("GET", path, Bytes::new()).await;
        answer(response).await
    }

    /// With a JSON body.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let response = self.ask(method, path, body.to_string().into()).await;
        answer(response).await
    }

    /// Without a body, the answer as it is.
    pub(crate) async fn text(&mut self, method: &str, path: &str) -> (u16, String) {
        let response = self.ask(method, path, Bytes::new()).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a whole body");
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        (code, text)
    }

    async fn ask(&mut self, method: &str, path: &str, body: Bytes) -> hyper::Response<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "api")
            .header("user-agent", self.user_agent)
            .header("accept", self.accept)
            .header("content-type", self.content_type)
            .body(Full::new(body))
            .expect("a request");
        self.sender.ready().await.expect("the connection lasts");
        self.sender.send_request(request).await.expect("an answer")
    }
}

async fn answer(response: hyper::Response<Incoming>) -> Answer {
    let media = response.headers().get("content-type");
    let media = media.and_then(|m| m.to_str().ok()).unwrap_or_default();
    let (code, media) = (response.status().as_u16(), media.to_owned());
    let body = response.into_body().collect().await.expect("a whole body");
    let body = body.to_bytes();
    let documents = serde_json::Deserializer::from_slice(&body).into_iter();
    let lines: Vec<Value> = documents.map_while(Result::ok).collect();
    Answer {
        code,
        media,
        body: lines.first().cloned().unwrap_or_default(),
        lines,
    }
}
