//! Whether a real Felix says of itself that it works: what the readiness probe of its DaemonSet asks (v3.28.1, v3.32.1: `calico-node
//! -felix-ready`). Its first line about the dataplane comes before that of its eBPF programs.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use chainbreak_engine::cluster::SignalError;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::world::Node;

/// Its `HealthPort`, on a node's loopback.
const FELIX: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9099);
/// What it may take: Felix v3.32.1 takes seconds to load its programs on a busy machine. Below what a step may (30 s), so that the error says
/// what is missing.
const WITHIN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);
/// What an answer may take: others wait for the node's thread.
const ANSWER: Duration = Duration::from_millis(250);
/// The most of an answer that is read: it names what is not ready.
const LONGEST: u64 = 4096;

/// Waits until the Felix on a node is ready. What it says that is not is in the error.
pub(crate) async fn felix_is_ready(node: &Node) -> Result<(), SignalError> {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missing = "it was not asked yet".to_owned();
    let waiting = async {
        loop {
            ticks.tick().await;
            match node.place.run(|| ask(FELIX)).await {
                Ok(None) => return,
                Ok(Some(said)) => missing = said,
                Err(error) => missing = format!("it does not answer: {error}"),
            }
        }
    };
    let Err(_elapsed) = timeout(WITHIN, waiting).await else {
        return Ok(());
    };
    Err(SignalError(format!(
        "felix on {} is not ready within {WITHIN:?}: {missing}",
        node.name
    )))
}

/// What it says that is not ready; nothing where all is.
fn ask(at: SocketAddr) -> io::Result<Option<String>> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /readiness HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    Ok(lacking(&answer))
}

/// An answer that is not of success, without its headers.
fn lacking(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split_whitespace().nth(1).unwrap_or("no status");
    if status.starts_with('2') {
        return None;
    }
    let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(format!("{status} {body}").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    #[test]
    fn it_is_ready_when_it_answers_with_success_and_else_says_what_is_not() {
        for (answer, lacks) in [
            ("HTTP/1.0 200 OK\r\n\r\n", None),
            ("HTTP/1.0 204 No Content\r\n\r\n", None),
            (
                "HTTP/1.0 503 Service Unavailable\r\nX: y\r\n\r\n+---+\n| int_dataplane | reporting non-ready |\n",
                Some("503 +---+ | int_dataplane | reporting non-ready |"),
            ),
            ("", Some("no status")),
        ] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let at = listener.local_addr().unwrap();
            let serves = thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                client.read_exact(&mut [0; 27]).unwrap();
                client.write_all(answer.as_bytes()).unwrap();
            });
            assert_eq!(ask(at).unwrap().as_deref(), lacks, "{answer}");
            serves.join().unwrap();
            assert!(ask(at).is_err(), "nobody is there any more");
        }
    }
}
