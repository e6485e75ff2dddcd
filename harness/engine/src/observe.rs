//! Watching what promises speak of: rules, elements and counters of a place. A look before each barrier of the
//! run (its judged time, its marks), a look at the rules after every recorded write on the node, and one
//! from time to time for what no recorder sees. Where a look comes too late, or takes too long, the history says that nobody
//! watched. A look costs a process or more, and is shared with whoever else asks for it ([`crate::looks`]): numbers that only grow
//! (conntrack's, those of /proc/net) are read at barriers alone.

mod attention;
mod findings;
mod seen;
mod watched;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chainbreak_model::{
    case::{Case, Claim, Origin, SourceAddress},
    event::EventKind,
};
use serde::Deserialize;
use tokio::{
    sync::broadcast::{
        self,
        error::{RecvError, TryRecvError},
    },
    time::{interval, timeout},
};

use crate::{
    cluster::{Cluster, Command, Place},
    infra_error::InfraError,
    log::{EventLog, LOOKED_WITHIN, Write},
    looks::Looks,
    output::output,
};
pub(crate) use attention::watching;
use attention::{Attention, Written};
use findings::Findings;
pub(crate) use watched::Watched;

/// What each place is watched for. Without promises that ask for it, nobody is watched.
pub(crate) fn places(case: &Case) -> BTreeMap<Origin, Watched> {
    let mut places: BTreeMap<Origin, Watched> = BTreeMap::new();
    for promise in case.promises.values() {
        let Some(id) = promise.claim.query().and_then(|it| case.query_id(it)) else {
            continue;
        };
        let node = match &promise.claim {
            Claim::HasRule { presence, .. } | Claim::HasElement { presence, .. } => {
                presence.node.clone().map(Origin::Node)
            }
            Claim::Counter { at, .. } => at.clone(),
            _ => continue,
        };
        let all = || case.cluster.node_names().map(Origin::Node).collect();
        let asked: Vec<Origin> = node.map_or_else(all, |place| vec![place]);
        for at in asked {
            let watched = places.entry(at).or_default();
            watched.add(id.clone(), &promise.claim);
        }
    }
    places
}

/// Says the addresses of the places that promises about sources name.
pub(crate) async fn addresses(
    cluster: &dyn Cluster,
    case: &Case,
    log: &EventLog,
) -> Result<(), InfraError> {
    for at in sources(case) {
        let text = output(cluster, &Place::from(&at), &ask_for_addresses()).await?;
        let links: Vec<Link> = serde_json::from_str(&text)
            .map_err(|error| InfraError::new(format!("read the addresses of {at}"), error))?;
        let all = links.into_iter().flat_map(|link| link.addr_info);
        let addresses = all
            .map(|address| address.local)
            .filter(|local| !local.is_loopback());
        let addresses = addresses.collect();
        log.append(EventKind::Addresses { at, addresses });
    }
    Ok(())
}

/// The places that promises about sources name.
pub(crate) fn sources(case: &Case) -> BTreeSet<Origin> {
    let promises = case.promises.values();
    let named = promises.filter_map(|promise| match &promise.claim {
        Claim::Source {
            is: SourceAddress::Of(place),
            ..
        } => Some(place.clone()),
        _ => None,
    });
    named.collect()
}

/// What prints the addresses of a place.
pub(crate) fn ask_for_addresses() -> Command {
    Command::Argv(["ip", "-json", "address"].map(str::to_owned).to_vec())
}

/// An interface as `ip -json address` prints it.
#[derive(Deserialize)]
struct Link {
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: std::net::IpAddr,
}

/// Observes one place until dropped; returns only when looking fails.
pub(crate) async fn observe(
    cluster: Arc<dyn Cluster>,
    looks: Arc<Looks>,
    at: Origin,
    watched: Watched,
    log: EventLog,
) -> InfraError {
    let mut findings = Findings::default();
    let mut attention = Attention::new(&at, cluster.as_ref());
    let (mut writes, mut barriers) = (log.writes(), log.barriers());
    let mut ticks = interval(attention.period());
    let tables = watched.tables();
    let mut wanted = Wanted::All;
    // Nobody asks what was there before the run's first barrier, the beginning of the judged time; a pod may not be
    // there before, and agents that start write a table forty times.
    let mut barrier = barriers.recv().await.ok();
    written_meanwhile(&mut writes, &at, &tables);
    let mut pending: Option<Written> = None;
    loop {
        let asked_us = log.now_us();
        let causes = [
            barrier.as_ref().map(|barrier| log.at(barrier.at())),
            pending.map(Written::last_us),
        ];
        // Somebody else's look that began before does not show what came of them.
        let since_us = causes.into_iter().flatten().max().unwrap_or(asked_us);
        let look = findings.look(&looks, &at, &watched, wanted, since_us);
        match timeout(LOOKED_WITHIN, look).await {
            Ok(Ok(began_us)) => {
                let began_us = began_us.unwrap_or(asked_us);
                attention.looked(pending, began_us, asked_us, &log);
            }
            Ok(Err(trouble)) => return trouble,
            Err(_elapsed) => attention.lost(asked_us, &log),
        }
        findings.tell(&at, &log);
        ticks.reset();
        // Whoever waits for this look goes on.
        if let Some(barrier) = barrier.take()
            && !barrier.answer(attention.watched())
        {
            attention.late(asked_us, &log);
        }
        wanted = Wanted::Tables;
        let first = tokio::select! {
            _ = ticks.tick() => None,
            first = written(&mut writes, &at, &tables) => Some(first),
            told = barriers.recv() => {
                barrier = told.ok();
                wanted = Wanted::All;
                None
            }
        };
        // The look that follows covers them all.
        let rest = written_meanwhile(&mut writes, &at, &tables);
        pending = first.into_iter().chain(rest).reduce(Written::and);
    }
}

/// What a look is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Everything that the place is watched for.
    All,
    /// Its tables: what a write may have changed.
    Tables,
}

/// Returns after a write to these tables on this node.
async fn written(writes: &mut broadcast::Receiver<Write>, at: &Origin, tables: &[&str]) -> Written {
    loop {
        match writes.recv().await {
            Ok(write) if concerns(&write, at, tables) => return Written::at(write.at_us()),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return Written::UNKNOWN,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Such writes that are waiting to be heard of, having swallowed all of them.
fn written_meanwhile(
    writes: &mut broadcast::Receiver<Write>,
    at: &Origin,
    tables: &[&str],
) -> Option<Written> {
    let mut all: Option<Written> = None;
    loop {
        let one = match writes.try_recv() {
            Ok(write) if concerns(&write, at, tables) => Written::at(write.at_us()),
            Ok(_) => continue,
            Err(TryRecvError::Lagged(_)) => Written::UNKNOWN,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return all,
        };
        all = Some(all.map_or(one, |all| all.and(one)));
    }
}

fn concerns(write: &Write, at: &Origin, tables: &[&str]) -> bool {
    match at {
        Origin::Node(node) => write.concerns(node, tables),
        Origin::Pod { .. } | Origin::Host(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chainbreak_model::{
        event::{Command as Recorded, Phase},
        names::NodeName,
        verdict::PromiseVerdict,
    };
    use tokio::{
        task::yield_now,
        time::{Instant, sleep_until},
    };

    use futures::future::join_all;

    use super::*;
    use crate::fake::{Commands, Fake, case, judged};

    const NEVER_THERE: &str =
        "{ has-rule: { table: nat, chain: CHAIN, absent: true, always: true } }";

    /// Looks that take so long to begin.
    fn saved(late: Duration) -> Commands {
        let save = "printf '*nat\\n:OTHER - [0:0]\\nCOMMIT\\n'";
        Commands::Shell(save.to_owned(), late)
    }

    /// What comes of the promise when these writes are recorded while it is judged, each so many milliseconds after the last.
    async fn verdict(commands: Commands, writes: &[u64]) -> PromiseVerdict {
        let case = case(NEVER_THERE);
        let (_, cluster) = Fake {
            commands,
            ..Fake::default()
        }
        .cluster();
        let (log, mut events) = EventLog::new();
        log.append(watching(cluster.as_ref()));
        let (at, watched) = places(&case).pop_first().unwrap();
        let looks = Arc::new(Looks::new(Arc::clone(&cluster), log.clone()));
        let observing = observe(cluster, looks, at, watched, log.clone());
        let run = async {
            // It observes before anything happens.
            yield_now().await;
            log.barrier(EventKind::Phase(Phase::Judging)).await;
            for after in writes {
                sleep_until(Instant::now() + Duration::from_millis(*after)).await;
                log.append(EventKind::Command(Recorded {
                    who: "felix".to_owned(),
                    node: NodeName::from("n1"),
                    argv: ["iptables", "-t", "nat", "-N", "CHAIN"]
                        .map(str::to_owned)
                        .to_vec(),
                    input: String::new(),
                    exit: 0,
                    stderr: String::new(),
                    took_us: 1,
                    named: Vec::new(),
                }));
            }
            log.barrier(EventKind::Phase(Phase::Judged)).await;
        };
        tokio::select! {
            trouble = observing => panic!("{trouble}"),
            () = run => {}
        }
        judged(&case, &mut events)
    }

    fn unknown(verdict: PromiseVerdict) -> String {
        match verdict {
            PromiseVerdict::Unknown { cause } => cause,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_was_looked_at_after_each_write_was_watched() {
        let verdict = verdict(saved(Duration::ZERO), &[0, 20]).await;
        assert!(matches!(verdict, PromiseVerdict::Kept(_)), "{verdict:?}");
    }

    #[tokio::test]
    async fn what_was_there_between_two_writes_without_a_look_is_a_gap_that_is_named() {
        let slow = saved(Duration::from_millis(200));
        let cause = unknown(verdict(slow, &[0, 20, 100]).await);
        assert!(
            cause.starts_with("rules and counters of node/n1 not watched for 0.")
                && cause.contains("no look between writes 1"),
            "{cause}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_a_gap_for_all_who_share_it() {
        let case = case(NEVER_THERE);
        let commands = Commands::Hang;
        let (fake, cluster) = Fake {
            commands,
            ..Fake::default()
        }
        .cluster();
        let (log, mut events) = EventLog::new();
        log.append(watching(cluster.as_ref()));
        let looks = Arc::new(Looks::new(Arc::clone(&cluster), log.clone()));
        let observers = [0, 1].map(|_| {
            let (at, watched) = places(&case).pop_first().unwrap();
            let (cluster, looks) = (Arc::clone(&cluster), Arc::clone(&looks));
            observe(cluster, looks, at, watched, log.clone())
        });
        let run = async {
            yield_now().await;
            let meanwhile = async {
                sleep_until(Instant::now() + LOOKED_WITHIN / 2).await;
                assert_eq!(fake.asked().len(), 1);
            };
            tokio::join!(log.barrier(EventKind::Phase(Phase::Judging)), meanwhile);
            log.barrier(EventKind::Phase(Phase::Judged)).await;
        };
        tokio::select! {
            troubles = join_all(observers) => panic!("{troubles:?}"),
            () = run => {}
        }
        let cause = unknown(judged(&case, &mut events));
        assert_eq!(cause, "the rules of n1 were never looked at");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_given_up_and_nothing_was_watched() {
        let cause = unknown(verdict(Commands::Hang, &[]).await);
        assert_eq!(cause, "the rules of n1 were never looked at");
    }
}
