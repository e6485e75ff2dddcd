//! kube-proxy's health servers, live: they listen on the node whose thread runs them.
//!
//! What they answer is the core's to say; here are only the ports, opened and closed as its services
//! come and go. A port that cannot be opened is logged, as kube-proxy does, and ends nothing.
//! Connections are as many as clients make, as in the real one: the process' limit of open files is
//! the bound, and a client that sends no request is sent away by hyper after 30 s.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{Response, body::Incoming, http, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use nix::errno::Errno;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep_until},
};

use super::LogSink;
use crate::{
    kube_proxy::{Answer, ClockReading, Config, Health, HealthLog, Namespaced},
    step::LogLine,
};

/// After this the port of the proxy itself is tried again (kube-proxy 1.20 to 1.34, server.go).
const RETRY: Duration = Duration::from_secs(5);

/// After this a port whose clients cannot be accepted is tried again, as by Go's server at the latest.
const PAUSE: Duration = Duration::from_secs(1);

/// What all servers of one kube-proxy answer from.
#[derive(Debug)]
struct Source {
    config: Config,
    health: watch::Receiver<Health>,
    /// The zero of the core's clock.
    start: Instant,
}

/// Whose health a port tells.
#[derive(Debug, Clone)]
enum Subject {
    Proxy,
    Service(Namespaced),
}

/// An open port. Dropping it closes the port and its connections.
type Server = JoinSet<Infallible>;

/// Serves the health of one life of kube-proxy, whose core's clock began at `start`, until it is
/// dropped.
pub(crate) async fn serve(
    config: Config,
    health: watch::Receiver<Health>,
    start: Instant,
    log: &RefCell<&mut dyn LogSink>,
) -> Infallible {
    let lines = HealthLog::new(&config);
    let source = Arc::new(Source {
        config,
        health,
        start,
    });
    tokio::select! {
        never = serve_proxy(&source, &lines, log) => never,
        never = serve_services(&source, &lines, log) => never,
    }
}

/// The port of the proxy itself, tried until it opens.
async fn serve_proxy(
    source: &Arc<Source>,
    lines: &HealthLog,
    log: &RefCell<&mut dyn LogSink>,
) -> Infallible {
    let address = source.config.healthz_address;
    let mut tries = interval(RETRY);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = loop {
        tries.tick().await;
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => log.borrow_mut().entry(lines.proxy_failed(address, &error)),
        }
    };
    accept(listener, Arc::clone(source), Subject::Proxy).await
}

/// The ports of the services, looked after when a sync has succeeded, and then only.
async fn serve_services(
    source: &Arc<Source>,
    lines: &HealthLog,
    log: &RefCell<&mut dyn LogSink>,
) -> Infallible {
    let mut health = source.health.clone();
    let mut open = Ports::default();
    let (mut seen, mut in_vain) = (None, Duration::ZERO);
    loop {
        let (updated, wanted, taken) = {
            let health = health.borrow_and_update();
            let ports = health.checks.iter().map(|(name, it)| (name, it.port));
            let ports = ports.map(|(name, port)| (name.clone(), port));
            let taken = health.in_vain.clone();
            (health.updated, ports.collect::<BTreeMap<_, _>>(), taken)
        };
        if seen.replace(updated) != Some(updated) {
            let mut say = |line: LogLine| log.borrow_mut().entry(line);
            open.close_others(&wanted, lines, &mut say).await;
            open.open_missing(wanted, source, lines, &mut say).await;
            if std::mem::replace(&mut in_vain, taken.0) != taken.0 {
                say_in_vain(&taken.1, source, lines, &mut say);
            }
        }
        if health.changed().await.is_err() {
            // The core has ended, and with it this is dropped.
            pending::<Infallible>().await;
        }
    }
}

/// What a proxier says of ports that another one of the process holds.
fn say_in_vain(
    taken: &BTreeMap<Namespaced, u16>,
    source: &Source,
    lines: &HealthLog,
    say: &mut impl FnMut(LogLine),
) {
    for (name, port) in taken {
        let address = SocketAddr::new(source.config.healthz_address.ip(), *port);
        lines.opening(name, *port).into_iter().for_each(&mut *say);
        say(lines.service_failed(name, address, &Errno::EADDRINUSE.into()));
    }
}

/// The open ports of services (`SyncServices`).
#[derive(Debug, Default)]
struct Ports(BTreeMap<Namespaced, (u16, Server)>);

impl Ports {
    /// Closes what is not wanted, and waits until it is closed: another may want the port.
    async fn close_others(
        &mut self,
        wanted: &BTreeMap<Namespaced, u16>,
        lines: &HealthLog,
        say: &mut impl FnMut(LogLine),
    ) {
        let (same, others) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(name, (port, _))| wanted.get(name) == Some(port));
        let others: BTreeMap<Namespaced, (u16, Server)> = others;
        self.0 = same;
        for (name, (port, mut server)) in others {
            lines.closing(&name, port).into_iter().for_each(&mut *say);
            server.shutdown().await;
        }
    }

    async fn open_missing(
        &mut self,
        wanted: BTreeMap<Namespaced, u16>,
        source: &Arc<Source>,
        lines: &HealthLog,
        say: &mut impl FnMut(LogLine),
    ) {
        for (name, port) in wanted {
            if self.0.contains_key(&name) {
                continue;
            }
            lines.opening(&name, port).into_iter().for_each(&mut *say);
            let address = SocketAddr::new(source.config.healthz_address.ip(), port);
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    let subject = Subject::Service(name.clone());
                    let mut server = Server::new();
                    server.spawn(accept(listener, Arc::clone(source), subject));
                    self.0.insert(name, (port, server));
                }
                Err(error) => say(lines.service_failed(&name, address, &error)),
            }
        }
    }
}

/// Serves one port until dropped. Its connections end with it.
async fn accept(listener: TcpListener, source: Arc<Source>, subject: Subject) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(answer_all(stream, Arc::clone(&source), subject.clone()));
                }
                // There are too many open files, which only time can tell to be over.
                Err(error) => {
                    tracing::debug!(%error, "a health server cannot accept");
                    sleep_until((Instant::now() + PAUSE).into()).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer_all(stream: TcpStream, source: Arc<Source>, subject: Subject) {
    let service = service_fn(|request: http::Request<Incoming>| {
        let answer = source.answer(&subject, request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a client of a health server went away");
    }
}

impl Source {
    fn answer(&self, subject: &Subject, path: &str) -> Response<String> {
        let now = ClockReading {
            since_start: self.start.elapsed(),
            wall: Timestamp::now(),
        };
        let health = self.health.borrow();
        let answer = match subject {
            Subject::Proxy => health.of_proxy(&self.config, path, now),
            Subject::Service(name) => health.of_service(&self.config, name, now),
        };
        response(answer)
    }
}

fn response(answer: Answer) -> Response<String> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    // Statuses and headers are all ours and well-formed.
    response.body(answer.body).unwrap_or_default()
}

#[cfg(test)]
mod tests;
