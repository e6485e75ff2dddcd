//! The server: connections in, answers out.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt, io,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, USER_AGENT},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use serde_json::json;
use tokio::task::JoinSet;
use tracing::debug;

use crate::{
    create::create,
    discovery,
    error::ApiError,
    handle::{self, Answer, Call},
    kinds::Kinds,
    object::encode,
    openapi,
    path::{self, Target},
    query::Query,
    state::State,
    watch,
};

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// The largest body taken; etcd's limit is half of it.
const MAX_BODY: usize = 3 * 1024 * 1024;
/// How many different unknown requests are remembered.
const MAX_UNKNOWN: usize = 1000;

/// How a server is set up.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where cluster IPs come from.
    pub service_cidr: IpNet,
    /// The only source of time.
    pub clock: Clock,
    /// How many changes of each resource a watch can go back.
    pub watch_window: usize,
    /// Seed of uids and generated names.
    pub seed: u64,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("service_cidr", &self.service_cidr)
            .field("watch_window", &self.watch_window)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl ServerConfig {
    /// Services in 10.96.0.0/16, a window of a thousand changes, seed 0.
    pub fn new(clock: Clock) -> Self {
        let service_cidr =
            IpNet::new(IpAddr::from([10, 96, 0, 0]), 16).expect("16 bits are at most 32");
        Self {
            service_cidr,
            clock,
            watch_window: 1000,
            seed: 0,
        }
    }
}

/// A request for something that is not served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnknownRequest {
    /// `GET`.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// Who asked.
    pub user_agent: String,
}

/// An embedded Kubernetes API server. Its objects live as long as it does, whatever becomes of
/// connections and of the futures that serve them.
pub struct Server {
    state: Mutex<State>,
    unknown: Mutex<BTreeMap<UnknownRequest, u64>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Server {
    /// A server with the namespaces every cluster has.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a configuration is spent on its server"
    )]
    pub fn new(config: ServerConfig) -> Arc<Self> {
        let mut state = State::new(&config);
        let namespaces = Arc::clone(
            state
                .kinds
                .find("", "v1", "namespaces")
                .expect("the table of kinds has namespaces"),
        );
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            create(
                &mut state,
                &namespaces,
                None,
                json!({"metadata": {"name": name}}),
            )
            .expect("an empty server takes its first namespaces");
        }
        Arc::new(Self {
            state: Mutex::new(state),
            unknown: Mutex::new(BTreeMap::new()),
        })
    }

    /// Serves plain HTTP/1.1 until the future is dropped, which closes every connection. Another call
    /// with another listener goes on with the same objects.
    pub async fn serve(self: &Arc<Self>, listener: std::net::TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(Arc::clone(self).connection(stream));
                    }
                    // The peer gave up before it was accepted: its affair.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => return Err(error),
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: tokio::net::TcpStream) {
        // Small answers must not wait for acknowledgements. It fails only when the peer is gone.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "connection ended");
            return;
        }
        let service = service_fn(|request| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let served = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            debug!(%error, "connection ended");
        }
    }

    /// Every request so far for something that is not served, and how often it came. Only the first
    /// thousand different ones are remembered.
    pub fn unknown_requests(&self) -> Vec<(UnknownRequest, u64)> {
        let unknown = self.unknown.lock().expect("nothing panics while noting");
        unknown
            .iter()
            .map(|(request, count)| (request.clone(), *count))
            .collect()
    }

    /// Runs something short on the state.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self
            .state
            .lock()
            .expect("nothing panics while the state is locked"))
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let accept = header(&head.headers, &ACCEPT);
        let agent = header(&head.headers, &USER_AGENT);
        let (method, uri_path) = (head.method.as_str(), head.uri.path());
        let note = || self.note(method, uri_path, &agent);
        let target = self.with(|state| path::parse(uri_path, &state.kinds));
        let address = match target {
            None => {
                note();
                return refusal(&ApiError::NoSuchResource);
            }
            Some(Target::Objects(address)) => address,
            Some(_) if method != "GET" => {
                note();
                return refusal(&ApiError::MethodNotAllowed);
            }
            Some(target) => return self.with(|state| describe(&target, &state.kinds, &accept)),
        };
        let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
            return refusal(&ApiError::TooLarge(MAX_BODY));
        };
        let call = Call {
            method,
            address,
            query: Query::parse(head.uri.query().unwrap_or_default()),
            accept: &accept,
            content_type: &header(&head.headers, &CONTENT_TYPE),
            body: body.to_bytes(),
        };
        match self.with(|state| handle::handle(state, &call)) {
            Ok(Answer::Body(code, body)) => json_response(code, body),
            Ok(Answer::Watch(options)) => {
                let lines = watch::open(Arc::clone(&self), *options);
                let frames = futures::StreamExt::map(lines, |line| Ok(Frame::data(line)));
                response(
                    200,
                    "application/json",
                    StreamBody::new(frames).boxed_unsync(),
                )
            }
            Err(error) => {
                if error == ApiError::MethodNotAllowed {
                    note();
                }
                refusal(&error)
            }
        }
    }

    fn note(&self, method: &str, path: &str, user_agent: &str) {
        debug!(method, path, user_agent, "unknown request");
        let request = UnknownRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            user_agent: user_agent.to_owned(),
        };
        let mut unknown = self.unknown.lock().expect("nothing panics while noting");
        if unknown.len() < MAX_UNKNOWN || unknown.contains_key(&request) {
            *unknown.entry(request).or_default() += 1;
        }
    }
}

/// What is served besides objects.
fn describe(target: &Target, kinds: &Kinds, accept: &str) -> Response<Body> {
    let value = match target {
        Target::Health => return response(200, "text/plain", full(Bytes::from_static(b"ok"))),
        // An empty message is a valid document without any schema.
        Target::OpenApiV2 if accept.contains("protobuf") => {
            let media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
            return response(200, media, full(Bytes::new()));
        }
        Target::Version => discovery::version(),
        Target::CoreVersions => discovery::core_versions(),
        Target::Groups => discovery::groups(kinds),
        Target::Group(group) => discovery::group(kinds, group),
        Target::Resources(group, version) => discovery::resources(kinds, group, version),
        Target::OpenApiV2 => openapi::v2(kinds),
        Target::OpenApiV3 => openapi::index(kinds),
        Target::OpenApiV3Of(group, version) => openapi::document(kinds, group, version),
        Target::Objects(_) => return refusal(&ApiError::NoSuchResource),
    };
    json_response(200, encode(&value))
}

fn header(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn refusal(error: &ApiError) -> Response<Body> {
    json_response(error.code(), encode(&error.status()))
}

fn json_response(code: u16, body: Bytes) -> Response<Body> {
    response(code, "application/json", full(body))
}

fn full(body: Bytes) -> Body {
    Full::new(body).boxed_unsync()
}

fn response(code: u16, media: &'static str, body: Body) -> Response<Body> {
    let response = Response::builder()
        .status(code)
        .header(CONTENT_TYPE, media)
        .body(body);
    response.expect("status and header are valid")
}
