//! kube-proxy's health servers, live: they listen on the node whose thread runs them.
//!
//! What they answer is the core's to say; here are only the ports, opened and closed as its services
//! come and go. A port that cannot be opened is logged, as kube-proxy does, and ends nothing.
//! Connections are as many as clients make, as in the real one: the process' limit of open files is
//! the bound, and a client that sends no request is sent away by hyper after 30 s.

mod listen;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use hyper::{Response, body::Incoming, http, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep_until},
};

use self::listen::listen;
use super::LogSink;
use crate::{
    kube_proxy::{Answer, ClockReading, Config, Family, Health, HealthLog, Namespaced},
    step::LogLine,
};

/// After this the port of the proxy itself is tried again (kube-proxy 1.20 to 1.34, server.go).
const RETRY: Duration = Duration::from_secs(5);

/// After this a port whose clients cannot be accepted is tried again, as by Go's server at the latest.
const PAUSE: Duration = Duration::from_secs(1);

/// What all servers of one kube-proxy answer from: each of its proxiers, as many as there are families.
#[derive(Debug)]
struct Source {
    configs: Vec<Config>,
    health: watch::Receiver<Vec<Health>>,
    /// The zero of the core's clock.
    start: Instant,
}

/// Whose health a port tells.
#[derive(Debug, Clone)]
enum Subject {
    Proxy,
    /// As that proxier has it.
    Service(usize, Namespaced),
}

/// An open port. Dropping it closes the port and its connections.
type Server = JoinSet<Infallible>;

/// Serves the health of one life of kube-proxy, whose cores' clocks began at `start`, until it is
/// dropped. It has a proxier for each of `configs`.
pub(crate) async fn serve(
    configs: Vec<Config>,
    health: watch::Receiver<Vec<Health>>,
    start: Instant,
    log: &RefCell<&mut dyn LogSink>,
) -> Infallible {
    let lines = HealthLog::new(&configs[0]);
    let source = Arc::new(Source {
        configs,
        health,
        start,
    });
    let services = (0..source.configs.len()).map(|it| serve_services(it, &source, &lines, log));
    tokio::select! {
        never = serve_proxy(&source, &lines, log) => never,
        _never = join_all(services) => pending().await,
    }
}

/// The port of the proxy itself, tried until it opens.
async fn serve_proxy(
    source: &Arc<Source>,
    lines: &HealthLog,
    log: &RefCell<&mut dyn LogSink>,
) -> Infallible {
    let address = source.configs[0].healthz_address;
    let mut tries = interval(RETRY);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = loop {
        tries.tick().await;
        match listen(address, false) {
            Ok(listener) => break listener,
            Err(error) => log.borrow_mut().entry(lines.proxy_failed(address, &error)),
        }
    };
    accept(listener, Arc::clone(source), Subject::Proxy).await
}

/// The ports of the services of one proxier, looked after when its sync has succeeded, and then only. Another
/// one of the process may hold a port: then each of its syncs tries in vain.
async fn serve_services(
    proxier: usize,
    source: &Arc<Source>,
    lines: &HealthLog,
    log: &RefCell<&mut dyn LogSink>,
) -> Infallible {
    let mut health = source.health.clone();
    let mut open = Ports::default();
    let mut seen = None;
    loop {
        let (updated, wanted) = {
            let health = &health.borrow_and_update()[proxier];
            (health.updated, source.wanted(proxier, health))
        };
        if seen.replace(updated) != Some(updated) {
            let mut say = |line: LogLine| log.borrow_mut().entry(line);
            open.close_others(&wanted, lines, &mut say).await;
            open.open_missing(wanted, proxier, source, lines, &mut say);
        }
        if health.changed().await.is_err() {
            // The core has ended, and with it this is dropped.
            pending::<Infallible>().await;
        }
    }
}

/// Where services' checks are to be served.
type Wanted = BTreeMap<Namespaced, (u16, Vec<SocketAddr>)>;

/// The open ports of services (`SyncServices`).
#[derive(Debug, Default)]
struct Ports(BTreeMap<Namespaced, (u16, Server)>);

impl Ports {
    /// Closes what is not wanted, and waits until it is closed: another may want the port.
    async fn close_others(
        &mut self,
        wanted: &Wanted,
        lines: &HealthLog,
        say: &mut impl FnMut(LogLine),
    ) {
        let (same, others) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(name, (port, _))| wanted.get(name).is_some_and(|it| it.0 == *port));
        let others: BTreeMap<Namespaced, (u16, Server)> = others;
        self.0 = same;
        for (name, (port, mut server)) in others {
            lines.closing(&name, port).into_iter().for_each(&mut *say);
            server.shutdown().await;
        }
    }

    /// A service's port is open at all its addresses, or not at all.
    fn open_missing(
        &mut self,
        wanted: Wanted,
        proxier: usize,
        source: &Arc<Source>,
        lines: &HealthLog,
        say: &mut impl FnMut(LogLine),
    ) {
        let own_family = source.configs[0].version.listens_for_health_by_family();
        for (name, (port, addresses)) in wanted {
            if self.0.contains_key(&name) {
                continue;
            }
            lines.opening(&name, port).into_iter().for_each(&mut *say);
            let listeners = addresses
                .into_iter()
                .map(|address| listen(address, own_family).map_err(|error| (address, error)));
            match listeners.collect::<Result<Vec<_>, _>>() {
                Ok(listeners) => {
                    let mut server = Server::new();
                    for listener in listeners {
                        let subject = Subject::Service(proxier, name.clone());
                        server.spawn(accept(listener, Arc::clone(source), subject));
                    }
                    self.0.insert(name, (port, server));
                }
                Err((address, error)) => say(lines.service_failed(&name, address, &error)),
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
    /// The addresses at which the checks of that proxier's services are asked for.
    fn wanted(&self, proxier: usize, health: &Health) -> Wanted {
        let at = health.checks_at.clone();
        let at = at.unwrap_or_else(|| vec![self.anywhere(proxier)]);
        let checks = health.checks.iter().map(|(name, check)| {
            let addresses = at.iter().map(|ip| SocketAddr::new(*ip, check.port));
            (name.clone(), (check.port, addresses.collect()))
        });
        checks.collect()
    }

    /// What the releases call all addresses. A proxy whose own port is bound to one address binds the others there, too:
    /// the real one does not, but tests are many on one loopback.
    fn anywhere(&self, proxier: usize) -> IpAddr {
        let config = &self.configs[proxier];
        match (config.healthz_address.ip(), config.family) {
            (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Family::Ipv6)
                if config.version.listens_for_health_by_family() =>
            {
                Ipv6Addr::UNSPECIFIED.into()
            }
            (ip, _) => ip,
        }
    }

    fn answer(&self, subject: &Subject, path: &str) -> Response<String> {
        let now = ClockReading {
            since_start: self.start.elapsed(),
            wall: Timestamp::now(),
        };
        let health = self.health.borrow();
        let answer = match subject {
            Subject::Proxy => Health::of_all(&health).of_proxy(&self.configs[0], path, now),
            Subject::Service(proxier, name) => {
                health[*proxier].of_service(&self.configs[*proxier], name, now)
            }
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
