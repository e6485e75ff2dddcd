//! The server: connections in, answers out.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{self, Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, USER_AGENT},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use nix::errno::Errno;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tracing::debug;

use crate::{
    bootstrap, discovery,
    error::ApiError,
    handle::{self, Answer, Call},
    kinds::Kinds,
    kubelets::{self, Kubelets, Later},
    object::encode,
    openapi,
    path::{self, Target},
    query::Query,
    request_counts::{Asked, OnUnknown, RequestCounts, shortened},
    state::State,
    watch,
};

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// The largest body taken; etcd's limit is half of it.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// Until it is tried again whether there is room for a connection: nothing tells of it.
const PAUSE: Duration = Duration::from_millis(100);

/// How a server is set up.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where cluster IPs come from: one range, or one of each family with the cluster's default first.
    pub service_cidrs: Vec<IpNet>,
    /// The only source of time.
    pub clock: Clock,
    /// How many changes of each resource a watch can go back.
    pub watch_window: usize,
    /// Seed of uids and generated names.
    pub seed: u64,
    /// Where clients reach the server: Service `kubernetes` leads there. Without it there is none.
    pub advertised: Option<SocketAddr>,
    /// Is told of each request for something that is not served, when a client makes it first.
    pub on_unknown: Option<OnUnknown>,
    /// Who answers for the pods' nodes. Without them `log` and `exec` of pods are not served.
    pub kubelets: Option<Arc<dyn Kubelets>>,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("service_cidrs", &self.service_cidrs)
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
            service_cidrs: vec![service_cidr],
            clock,
            watch_window: 1000,
            seed: 0,
            advertised: None,
            on_unknown: None,
            kubelets: None,
        }
    }
}

/// An embedded Kubernetes API server. Its objects live as long as it does, whatever becomes of
/// connections and of the futures that serve them.
pub struct Server {
    state: Mutex<State>,
    counts: Mutex<RequestCounts>,
    on_unknown: Option<OnUnknown>,
    kubelets: Option<Arc<dyn Kubelets>>,
}

/// Whether the process or the machine has no file for one more connection.
fn is_full(error: &io::Error) -> bool {
    let full = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    let number = error.raw_os_error().map(Errno::from_raw);
    number.is_some_and(|number| full.contains(&number))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Server {
    /// A server with the objects every cluster has.
    pub fn new(config: ServerConfig) -> Arc<Self> {
        let mut state = State::new(&config);
        bootstrap::make(&mut state, &config).expect("an empty server takes its first objects");
        Arc::new(Self {
            state: Mutex::new(state),
            counts: Mutex::default(),
            on_unknown: config.on_unknown,
            kubelets: config.kubelets,
        })
    }

    /// Serves plain HTTP/1.1 until the future is dropped, which closes every connection. Another call
    /// with another listener goes on with the same objects.
    pub async fn serve(self: &Arc<Self>, listener: std::net::TcpListener) -> io::Result<()> {
        self.serve_until(listener, pending()).await
    }

    /// As [`Server::serve`], until `over`. When this returns, every connection is closed.
    pub async fn serve_until(
        self: &Arc<Self>,
        listener: std::net::TcpListener,
        over: impl Future<Output = ()>,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut connections = JoinSet::new();
        let ended = tokio::select! {
            ended = self.accept(&listener, &mut connections) => ended,
            () = over => Ok(()),
        };
        connections.shutdown().await;
        ended
    }

    async fn accept(
        self: &Arc<Self>,
        listener: &tokio::net::TcpListener,
        connections: &mut JoinSet<()>,
    ) -> io::Result<()> {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        connections.spawn(Arc::clone(self).connection(stream, peer.ip()));
                    }
                    // The peer gave up before it was accepted: its affair.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    // A connection that ends, or only time, makes room.
                    Err(error) if is_full(&error) => {
                        debug!(%error, "no more connections for now");
                        sleep_until(Instant::now() + PAUSE).await;
                    }
                    Err(error) => return Err(error),
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: tokio::net::TcpStream, peer: IpAddr) {
        // Small answers must not wait for acknowledgements. It fails only when the peer is gone.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "connection ended");
            return;
        }
        // Dropped, the writing half ends the connection also where a process that was just forked has a copy of the descriptor.
        let (reading, writing) = stream.into_split();
        let (later, mut sessions) = mpsc::unbounded_channel();
        let service = service_fn(|mut request: Request<Incoming>| {
            let server = Arc::clone(&self);
            request.extensions_mut().insert(Later(later.clone()));
            async move { Ok::<_, Infallible>(server.respond(peer, request).await) }
        });
        let served = http1::Builder::new()
            .serve_connection(TokioIo::new(tokio::io::join(reading, writing)), service)
            .with_upgrades()
            .await;
        if let Err(error) = served {
            debug!(%error, "connection ended");
        }
        // It speaks another protocol from now on.
        while let Ok(session) = sessions.try_recv() {
            session.await;
        }
    }

    /// Every request so far that was answered, and how often it came; in the order of clients. Of very
    /// many different ones the longest unseen are left out.
    pub fn asked(&self) -> Vec<(Asked, u64)> {
        self.counts().asked()
    }

    /// Every request so far for something that is not served, and how often it came. Only the first
    /// thousand different ones are remembered.
    pub fn unknown_requests(&self) -> Vec<(Asked, u64)> {
        self.counts().unknown()
    }

    pub(crate) fn kubelets(&self) -> Option<&Arc<dyn Kubelets>> {
        self.kubelets.as_ref()
    }

    fn counts(&self) -> MutexGuard<'_, RequestCounts> {
        self.counts.lock().expect("nothing panics while noting")
    }

    /// Runs something short on the state.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self
            .state
            .lock()
            .expect("nothing panics while the state is locked"))
    }

    /// Answers a request, whatever it came over, and notes who asked. The body of a watch ends with the watch.
    pub async fn respond<B>(self: Arc<Self>, peer: IpAddr, request: Request<B>) -> Response<Body>
    where
        B: body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let mut asked = Asked {
            peer,
            user_agent: shortened(&header(request.headers(), &USER_AGENT)),
            path: shortened(request.uri().path()),
            method: request.method().as_str().to_owned(),
            watch: query.flag("watch"),
            status: 0,
            last: self.with(|state| state.clock()),
        };
        let answered = Arc::clone(&self).answer(request, query).await;
        let (response, unknown) = match answered {
            Ok(response) => (response, false),
            Err(error) => (
                refusal(&error),
                error.is_unserved() && !is_an_add_on(&asked.path),
            ),
        };
        asked.status = response.status().as_u16();
        self.note(&asked, unknown);
        response
    }

    fn note(&self, asked: &Asked, unknown: bool) {
        let news = {
            let mut counts = self.counts();
            counts.note(asked);
            unknown && counts.note_unknown(asked)
        };
        if news {
            debug!(%asked, user_agent = asked.user_agent, "unknown request");
            if let Some(tell) = &self.on_unknown {
                tell(asked);
            }
        }
    }

    async fn answer<B>(
        self: Arc<Self>,
        request: Request<B>,
        query: Query,
    ) -> Result<Response<Body>, ApiError>
    where
        B: body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        let accept = header(&head.headers, &ACCEPT);
        let method = head.method.as_str();
        let target = self.with(|state| path::parse(head.uri.path(), &state.kinds));
        let address = match target.ok_or(ApiError::NoSuchResource)? {
            Target::Objects(address) => address,
            Target::Elsewhere(way) => return Err(ApiError::NotServed(way)),
            Target::Kubelet(pod, what) => {
                return kubelets::answer(&self, (&pod, what), head, &query);
            }
            _ if method != "GET" => return Err(ApiError::MethodNotAllowed),
            target => return self.with(|state| describe(&target, &state.kinds, &accept)),
        };
        // A body that ends early has nobody left to hear of it.
        let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
            return Err(ApiError::TooLarge(MAX_BODY));
        };
        let call = Call {
            method,
            address,
            query,
            accept: &accept,
            content_type: &header(&head.headers, &CONTENT_TYPE),
            body: body.to_bytes(),
        };
        match self.with(|state| handle::handle(state, &call))? {
            Answer::Body(code, body) => Ok(json_response(code, body)),
            Answer::Watch(options) => {
                let lines = watch::open(Arc::clone(&self), *options);
                let frames = futures::StreamExt::map(lines, |line| Ok(Frame::data(line)));
                let body = StreamBody::new(frames).boxed_unsync();
                Ok(response(200, "application/json", body))
            }
        }
    }
}

/// Whether a path is of something that clusters lack too unless somebody installs it: agents ask and
/// take the 404. Felix asks for the migrations of `KubeVirt` from v3.32 on.
fn is_an_add_on(path: &str) -> bool {
    path.starts_with("/apis/kubevirt.io/")
}

/// What is served besides objects.
fn describe(target: &Target, kinds: &Kinds, accept: &str) -> Result<Response<Body>, ApiError> {
    let value = match target {
        Target::Health => {
            return Ok(response(200, "text/plain", full(Bytes::from_static(b"ok"))));
        }
        // An empty message is a valid document without any schema.
        Target::OpenApiV2 if accept.contains("protobuf") => {
            let media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
            return Ok(response(200, media, full(Bytes::new())));
        }
        Target::Version => discovery::version(),
        Target::CoreVersions => discovery::core_versions(),
        Target::Groups => discovery::groups(kinds),
        Target::Group(group) => discovery::group(kinds, group),
        Target::Resources(group, version) => discovery::resources(kinds, group, version),
        Target::OpenApiV2 => openapi::v2(kinds),
        Target::OpenApiV3 => openapi::index(kinds),
        Target::OpenApiV3Of(group, version) => openapi::document(kinds, group, version),
        Target::Elsewhere(_) | Target::Kubelet(..) | Target::Objects(_) => {
            return Err(ApiError::NoSuchResource);
        }
    };
    Ok(json_response(200, encode(&value)))
}

pub(crate) fn header(headers: &HeaderMap, name: &HeaderName) -> String {
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

pub(crate) fn response(code: u16, media: &'static str, body: Body) -> Response<Body> {
    let response = Response::builder()
        .status(code)
        .header(CONTENT_TYPE, media)
        .body(body);
    response.expect("status and header are valid")
}
