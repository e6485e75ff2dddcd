//! Runs a core live: watches the API, keeps the time, starts the commands and prints the log.
//!
//! A core runs on one thread, in the network namespace of its node: whoever calls [`drive`] has put
//! the thread there, so that watches and commands leave from the node as the real agent's would.

pub mod command;
pub mod feed;
mod felix;
pub mod header;
mod health;
mod kube_proxy;
pub mod netlink;
mod watcher_cache;

pub use felix::{InterfaceName, felix};
pub use kube_proxy::{concerns, kube_proxy, selectors};

use std::{fmt, rc::Rc, time::Instant};

use futures::{
    FutureExt, StreamExt,
    future::LocalBoxFuture,
    stream::{FuturesUnordered, LocalBoxStream},
};
use tokio::time::sleep_until;

use crate::step::{Command, LogLine, Output, Reply, RequestId, Stepper, Wanted};

/// Runs the commands of one agent on its node.
pub trait Exec: fmt::Debug {
    /// Runs a command to its end. What cannot be started is an [`Output`] with exit code 127.
    fn run(&self, command: Command) -> LocalBoxFuture<'static, Output>;

    /// Ready when the agent may go on from a point that it reached. Nobody holds it there unless told to.
    fn point(&self, _name: &'static str) -> LocalBoxFuture<'static, ()> {
        std::future::ready(()).boxed_local()
    }
}

/// Takes an agent's log entries, header and all.
pub trait LogSink {
    /// Takes one entry, which may have several lines.
    fn entry(&mut self, line: LogLine);
}

impl<F: FnMut(LogLine)> LogSink for F {
    fn entry(&mut self, line: LogLine) {
        self(line);
    }
}

/// Runs one life of a core until it exits and returns the reason. Events that arrive while commands
/// run are handed over at once: whether to wait is the core's to decide, as in the real program.
pub async fn drive<E>(
    mut stepper: Stepper<E>,
    mut events: LocalBoxStream<'static, E>,
    exec: Rc<dyn Exec>,
    log: &mut dyn LogSink,
) -> String {
    let start = Instant::now();
    let mut running = FuturesUnordered::new();
    let mut reply = Reply::Tick;
    loop {
        let wanted = stepper.step(start.elapsed(), reply);
        let Wanted {
            run,
            points,
            logs,
            wake_at,
            exited,
        } = wanted;
        for line in logs {
            log.entry(line);
        }
        if let Some(reason) = exited {
            return reason;
        }
        for (id, command) in run {
            let output = exec.run(command).map(move |output| (id, output));
            running.push(output.boxed_local());
        }
        for (id, name) in points {
            let passed = exec.point(name).map(move |()| (id, Output::default()));
            running.push(passed.boxed_local());
        }
        reply = next_reply(&mut running, &mut events, wake_at.map(|at| start + at)).await;
    }
}

async fn next_reply<E>(
    running: &mut FuturesUnordered<impl Future<Output = (RequestId, Output)>>,
    events: &mut LocalBoxStream<'static, E>,
    wake_at: Option<Instant>,
) -> Reply<E> {
    let wake = async {
        match wake_at {
            Some(at) => sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        Some((id, output)) = running.next() => Reply::Ran(id, output),
        Some(event) = events.next() => Reply::Event(event),
        () = wake => Reply::Tick,
    }
}
