//! Requests to the API server, one after the other: none is a failure of the server's own, what it says it has written it
//! says again when it is asked, watches tell whole events, and a server of the same seed says the same.
//!
//! An input is a request a part, divided by lines `%%`: a line `METHOD PATH CONTENT-TYPE ACCEPT`, and the body.
#![no_main]

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use bytes::Bytes;
use chainbreak_apiserver::{Server, ServerConfig};
use futures::FutureExt;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{Request, Response};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tokio::{
    runtime::{Builder, Runtime},
    task::unconstrained,
};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const JSON: &str = "application/json";
/// More say nothing more.
const REQUESTS: usize = 24;

type Body = UnsyncBoxBody<Bytes, Infallible>;

thread_local! {
    /// Watches have deadlines. No time passes here.
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread");
}

fuzz_target!(|bytes: &[u8]| {
    let asked: Vec<Asked> = split(bytes)
        .filter_map(Asked::read)
        .take(REQUESTS)
        .collect();
    if asked.is_empty() {
        return;
    }
    let (mut one, mut other) = (Client::new(), Client::new());
    RUNTIME.with(|runtime| {
        // Without the share of time after which tasks give way: an answer that is there is heard.
        runtime.block_on(unconstrained(async {
            for request in &asked {
                let told = one.ask(request).await;
                assert_eq!(other.ask(request).await, told, "{request:?}");
            }
        }));
    });
});

fn split(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const BETWEEN: &[u8] = b"\n%%\n";
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let end = bytes.windows(BETWEEN.len()).position(|it| it == BETWEEN);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        bytes = end.map_or(&[], |end| &bytes[end + BETWEEN.len()..]);
        Some(part)
    })
}

#[derive(Debug)]
struct Asked<'a> {
    method: &'a str,
    path: &'a str,
    content_type: &'a str,
    accept: &'a str,
    body: &'a [u8],
}

impl<'a> Asked<'a> {
    fn read(part: &'a [u8]) -> Option<Self> {
        let end = part.iter().position(|byte| *byte == b'\n');
        let (head, body) = part.split_at(end.unwrap_or(part.len()));
        let mut words = std::str::from_utf8(head).ok()?.split(' ');
        let asked = Self {
            method: words.next()?,
            path: words.next()?,
            content_type: words.next().unwrap_or(JSON),
            accept: words.next().unwrap_or(JSON),
            body: body.strip_prefix(b"\n").unwrap_or(body),
        };
        asked.request().map(|_| asked)
    }

    /// None where no client could send it.
    fn request(&self) -> Option<Request<Full<Bytes>>> {
        self.path.starts_with('/').then_some(())?;
        let request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header("accept", self.accept)
            .header("content-type", self.content_type)
            .body(Full::new(Bytes::copy_from_slice(self.body)));
        request.ok()
    }

    /// Where what it wrote is found: of an object, as JSON and whole.
    fn written(&self, object: &Value) -> Option<String> {
        let (path, _query) = self.path.split_once('?').unwrap_or((self.path, ""));
        let name = object["metadata"]["name"].as_str()?;
        let whole = self.accept == JSON && object["kind"] != "Status";
        let path = path.trim_end_matches('/');
        match self.method {
            "POST" if whole && !path.ends_with("/binding") && !path.ends_with("/eviction") => {
                Some(format!("{path}/{name}"))
            }
            "PUT" | "PATCH" if whole => Some(path.to_owned()),
            _ => None,
        }
    }
}

/// A client with a server of its own.
struct Client {
    server: Arc<Server>,
    watches: Vec<Body>,
}

impl Client {
    fn new() -> Self {
        Self {
            server: Server::new(ServerConfig::new(Arc::new(|| Timestamp::UNIX_EPOCH))),
            watches: Vec::new(),
        }
    }

    /// Asks, and reads what watches tell then.
    async fn ask(&mut self, asked: &Asked<'_>) -> (u16, Bytes, Vec<Bytes>) {
        let (code, body) = self.answer(asked).await;
        assert!(code < 500 || code == 504, "{code} {body:?}");
        let object: Option<Value> = serde_json::from_slice(&body).ok();
        if let Some(object) = object.filter(|_| (200..300).contains(&code))
            && let Some(path) = asked.written(&object)
        {
            self.says_again(asked, &path, &object).await;
        }
        let mut heard = Vec::new();
        for watch in &mut self.watches {
            while let Some(Some(Ok(frame))) = watch.frame().now_or_never() {
                heard.extend(frame.into_data());
            }
        }
        heard.iter().for_each(whole_events);
        (code, body, heard)
    }

    /// The whole answer; of a watch, which goes on, nothing.
    async fn answer(&mut self, asked: &Asked<'_>) -> (u16, Bytes) {
        let request = asked.request().expect("it was one when it was read");
        let response: Response<Body> = Arc::clone(&self.server).respond(PEER, request).await;
        let (head, mut body) = response.into_parts();
        let code = head.status.as_u16();
        let mut whole = Vec::new();
        loop {
            match body.frame().now_or_never() {
                Some(Some(Ok(frame))) => whole.extend(frame.into_data().unwrap_or_default()),
                Some(_) => return (code, whole.into()),
                None => break,
            }
        }
        self.watches.push(body);
        whole_events(&whole.into());
        (code, Bytes::new())
    }

    async fn says_again(&mut self, asked: &Asked<'_>, path: &str, object: &Value) {
        let get = Asked {
            method: "GET",
            path,
            content_type: JSON,
            accept: JSON,
            body: b"",
        };
        let (code, body) = self.answer(&get).await;
        // What was to go has gone when its last finalizer has, and what has owners goes when none of them is there.
        let may_be_gone =
            asked.method != "POST" || object["metadata"]["ownerReferences"].is_array();
        if code != 404 || !may_be_gone {
            let said: Value = serde_json::from_slice(&body).expect("an object is JSON");
            assert_eq!((code, &said), (200, object), "{path}");
        }
    }
}

/// Each a line.
fn whole_events(chunk: &Bytes) {
    for event in serde_json::Deserializer::from_slice(chunk).into_iter::<Value>() {
        let event = event.expect("an event is JSON");
        let words = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];
        assert!(words.iter().any(|word| event["type"] == *word), "{event}");
        assert!(event["object"].is_object(), "{event}");
    }
}
