//! The controllers of a world: deployments and their replica sets, daemon sets, the scheduler, the
//! EndpointSlices of services and the addresses of balanced ones, in one task.
//!
//! Each controller is a pure function from what has been [seen](seen) to [writes](write). The loop
//! takes in what the watches tell, asks all controllers, makes their writes and takes in the answers,
//! until nobody wants anything. A write refers to the version it was decided on: when the API knows
//! better it refuses (409, 404), and what made it refuse comes by the watch and is answered then. Any
//! other refusal is said in the history.
//!
//! Left out: adoption of orphans, `minReadySeconds`, pod affinity and topology spread, preemption,
//! topology hints. Garbage collection is the API server's.

mod daemon_set;
mod deployment;
mod endpoint_slices;
mod load_balancer;
mod name_generator;
mod placement;
mod pods;
mod ports;
mod replica_set;
mod rollout;
mod scheduler;
mod seen;
#[cfg(test)]
mod tests;
mod view;
mod write;

use std::{collections::BTreeSet, pin::Pin, time::Duration};

use chainbreak_engine::log::EventLog;
use chainbreak_model::event::EventKind;
use futures::{FutureExt, StreamExt, stream};
use kube::Client;
use tokio::time::timeout;

use self::{
    name_generator::NameGenerator,
    seen::{Changes, Seen},
    view::View,
    write::{Write, Writes},
};

/// Writes under way at a time: enough to hide the way to the API, few enough connections.
const AT_ONCE: usize = 16;
/// A change is settled in five rounds (replica set, pods, their nodes, slices, statuses). Whatever
/// needs more is fighting with itself and waits for the next change.
const ROUNDS: usize = 12;
/// When to look again after the API failed for reasons that no watch will tell of.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs all controllers until dropped. Names given to pods follow from the seed.
pub(crate) async fn run(client: Client, seed: u64, log: EventLog) {
    let mut refusals = Refusals::new(log);
    let mut seen = Seen::default();
    let mut generator = NameGenerator::new(seed);
    let mut changes = seen::follow(&client);
    let mut outcome = Outcome::Settled;
    while take(&mut changes, &mut seen, &outcome).await {
        outcome = settle(&client, &mut seen, &mut generator, &mut refusals).await;
        if outcome == Outcome::Settled && seen.complete() {
            seen.answered();
        }
    }
}

/// How an attempt to do what all controllers want ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Nobody wants anything, or a watch will tell what changed meanwhile.
    Settled,
    /// The API failed.
    Failed,
}

/// Waits for a change and takes in all that have come by then, so that a burst is answered once, but for the end of what began to
/// terminate in it. False when there will be no more.
async fn take(changes: &mut Changes, seen: &mut Seen, outcome: &Outcome) -> bool {
    let first = match outcome {
        Outcome::Settled => changes.next().await,
        Outcome::Failed => match timeout(AGAIN, changes.next()).await {
            Ok(change) => change,
            Err(_elapsed) => return true,
        },
    };
    let Some(first) = first else { return false };
    first.tell(seen);
    loop {
        let next = Pin::new(&mut *changes).peek().now_or_never().flatten();
        if next.is_none_or(|next| next.ends_too_early(seen)) {
            return true;
        }
        let Some(Some(next)) = changes.next().now_or_never() else {
            return true;
        };
        next.tell(seen);
    }
}

async fn settle(
    client: &Client,
    seen: &mut Seen,
    generator: &mut NameGenerator,
    refusals: &mut Refusals,
) -> Outcome {
    if !seen.complete() {
        return Outcome::Settled;
    }
    for _ in 0..ROUNDS {
        let writes = plan(seen, generator);
        if writes.is_empty() {
            return Outcome::Settled;
        }
        let answers = stream::iter(writes).map(|write| attempt(client, write));
        let answers: Vec<_> = answers.buffer_unordered(AT_ONCE).collect().await;
        let mut refused = None;
        for answer in answers {
            match answer {
                Ok(change) => change.tell(seen),
                Err((what, error)) => {
                    tracing::debug!(%error, what, "a controller's write was refused");
                    refused = refused.max(Some(refusals.weigh(&what, &error)));
                }
            }
        }
        if let Some(outcome) = refused {
            return outcome;
        }
    }
    Outcome::Settled
}

async fn attempt(client: &Client, write: Write) -> Result<seen::Change, (String, kube::Error)> {
    let what = write.to_string();
    let done = write.perform(client).await;
    done.map_err(|error| (what, error))
}

/// Writes that the API refused for good. Each is trouble once: what the manifests ask for is not
/// there, and no watch will ever tell why.
#[derive(Debug)]
struct Refusals {
    log: EventLog,
    said: BTreeSet<String>,
}

impl Refusals {
    fn new(log: EventLog) -> Self {
        Self {
            log,
            said: BTreeSet::new(),
        }
    }

    fn weigh(&mut self, what: &str, error: &kube::Error) -> Outcome {
        match error {
            // Decided on an old version: the watch will tell.
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Outcome::Settled,
            kube::Error::Api(status) if (400..500).contains(&status.code) => {
                let text = format!("the API refuses \"{what}\": {}", status.message);
                if self.said.insert(text.clone()) {
                    self.log.append(EventKind::Trouble { text });
                }
                Outcome::Settled
            }
            _ => Outcome::Failed,
        }
    }
}

/// What the controllers want to have written, at most one write for an object.
fn plan(seen: &Seen, generator: &mut NameGenerator) -> Vec<Write> {
    let view = View::of(seen);
    let mut writes = Writes::default();
    deployment::reconcile(&view, &mut writes);
    replica_set::reconcile(&view, generator, &mut writes);
    daemon_set::reconcile(&view, generator, &mut writes);
    scheduler::reconcile(&view, &mut writes);
    endpoint_slices::reconcile(&view, generator, &mut writes);
    load_balancer::reconcile(&view, &mut writes);
    writes.into_vec()
}
