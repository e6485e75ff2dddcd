//! Watching what promises speak of: rules, elements and counters of a place. A look before each moment of the
//! run (its judged time, its marks), a look at the rules after every recorded write on the node, and one
//! from time to time for what no recorder sees. A look costs a process or more: numbers that only grow
//! (conntrack's, those of /proc/net) are read at moments alone.

mod source;
mod watched;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chainbreak_model::{
    case::{Case, Claim, From, SourceAddress},
    event::{RulesSeen, What},
    names::NodeName,
};
use chainbreak_netfilter::Tally;
use serde::Deserialize;
use tokio::{
    sync::broadcast::error::{RecvError, TryRecvError},
    time::interval,
};

use crate::{
    cluster::{Cluster, Command, Place},
    log::{EventLog, Write},
    output::output,
    trouble::Trouble,
};
use source::{Seen, Source};
use watched::Packets;
pub(crate) use watched::Watched;

/// Distance of two looks at rules without a recorded write, where a backend records writes.
const LOOK: Duration = Duration::from_secs(2);
/// Distance of two looks at rules where nobody records who writes.
const LOOK_UNTOLD: Duration = Duration::from_millis(250);

/// What each place is watched for. Without promises that ask for it, nobody is watched.
pub(crate) fn places(case: &Case) -> BTreeMap<From, Watched> {
    let mut places: BTreeMap<From, Watched> = BTreeMap::new();
    for promise in case.promises.values() {
        let node = match &promise.claim {
            Claim::HasRule { presence, .. } | Claim::HasElement { presence, .. } => {
                presence.node.clone().map(From::Node)
            }
            Claim::Counter { at, .. } => at.clone(),
            _ => continue,
        };
        let all = || case.cluster.node_names().map(From::Node).collect();
        let asked: Vec<From> = node.map_or_else(all, |place| vec![place]);
        for at in asked {
            places.entry(at).or_default().add(&promise.claim);
        }
    }
    places
}

/// Says the addresses of the places that promises about sources name.
pub(crate) async fn addresses(
    cluster: &dyn Cluster,
    case: &Case,
    log: &EventLog,
) -> Result<(), Trouble> {
    let named = case
        .promises
        .values()
        .filter_map(|promise| match &promise.claim {
            Claim::Source {
                is: SourceAddress::Of(place),
                ..
            } => Some(place.clone()),
            _ => None,
        });
    for at in named.collect::<BTreeSet<From>>() {
        let argv = ["ip", "-json", "address"].map(str::to_owned).to_vec();
        let text = output(cluster, &Place::from(&at), &Command::Argv(argv)).await?;
        let links: Vec<Link> = serde_json::from_str(&text)
            .map_err(|error| Trouble::new(format!("read the addresses of {at}"), error))?;
        let all = links.into_iter().flat_map(|link| link.addr_info);
        let addresses = all
            .map(|address| address.local)
            .filter(|local| !local.is_loopback());
        let addresses = addresses.collect();
        log.append(What::Addresses { at, addresses });
    }
    Ok(())
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
    at: From,
    watched: Watched,
    log: EventLog,
) -> Trouble {
    let mut looks = Looks::default();
    let (mut writes, mut moments) = (log.writes(), log.moments());
    let mut ticks = interval(if cluster.records() { LOOK } else { LOOK_UNTOLD });
    let tables = watched.tables();
    let mut wanted = Wanted::All;
    // Nobody asks what was there before the run's first moment, the beginning of the judged time; a pod may not be
    // there before, and agents that start write a table forty times.
    let mut moment = moments.recv().await.ok();
    loop {
        for source in watched.sources(wanted) {
            let known = looks.tables.contains(source);
            match source.look(cluster.as_ref(), &at, known).await {
                Ok(seen) => looks.take(&watched, source, &seen),
                Err(trouble) => return trouble,
            }
        }
        looks.tell(&at, &log);
        ticks.reset();
        // Whoever waits for this look goes on.
        drop(moment.take());
        wanted = tokio::select! {
            _ = ticks.tick() => Wanted::Tables,
            () = written(&mut writes, &at, &tables) => Wanted::Tables,
            told = moments.recv() => {
                moment = told.ok();
                Wanted::All
            }
        };
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

/// Returns after a write to these tables on this node, having swallowed those that one look covers.
async fn written(writes: &mut tokio::sync::broadcast::Receiver<Write>, at: &From, tables: &[&str]) {
    let node: Option<&NodeName> = match at {
        From::Node(node) => Some(node),
        From::Pod { .. } | From::Host(_) => None,
    };
    loop {
        match writes.recv().await {
            Ok(write) if !node.is_some_and(|node| write.concerns(node, tables)) => {}
            Ok(_) | Err(RecvError::Lagged(_)) => break,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
    while !matches!(
        writes.try_recv(),
        Err(TryRecvError::Empty | TryRecvError::Closed)
    ) {}
}

/// What the looks at one place came to so far.
#[derive(Debug, Default)]
struct Looks {
    /// What was found of each rule and element.
    found: BTreeMap<String, usize>,
    /// What of this was not told yet.
    untold: Vec<(String, usize)>,
    counters: Counters,
    told: Option<Counters>,
    tallies: BTreeMap<String, Tally>,
    /// Tables that were there.
    tables: BTreeSet<Source>,
}

/// The values of counters, by their names.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counters {
    values: BTreeMap<String, u64>,
    rewritten: BTreeMap<String, u64>,
    unmatched: BTreeMap<String, String>,
}

impl Looks {
    fn take(&mut self, watched: &Watched, source: &Source, seen: &Seen) {
        if matches!(seen, Seen::Table(Some(_))) && !self.tables.contains(source) {
            self.tables.insert(source.clone());
        }
        for (query, count) in watched.found(source, seen) {
            if self.found.insert(query.clone(), count) != Some(count) {
                self.untold.push((query, count));
            }
        }
        self.counters.values.extend(watched.numbers(source, seen));
        for Packets {
            counter,
            look,
            unmatched,
        } in watched.counted(source, seen)
        {
            self.counters.unmatched.remove(&counter);
            let unmatched = unmatched.map(|text| (counter.clone(), text));
            self.counters.unmatched.extend(unmatched);
            let tally = self.tallies.entry(counter.clone()).or_default();
            tally.see(look);
            self.counters
                .values
                .insert(counter.clone(), tally.packets());
            if tally.rewritten() > 0 {
                self.counters.rewritten.insert(counter, tally.rewritten());
            }
        }
    }

    /// The rules are as old as their command is young: the time before it started would be too early for what
    /// it found, the time after it a few milliseconds late. Late is honest: a rule is never said to be
    /// missing before it was.
    fn tell(&mut self, at: &From, log: &EventLog) {
        if let From::Node(node) = at {
            for (query, count) in self.untold.drain(..) {
                let node = node.clone();
                log.append(What::Rules(RulesSeen { node, query, count }));
            }
        }
        if self.counters != Counters::default() && self.told.as_ref() != Some(&self.counters) {
            let Counters {
                values,
                rewritten,
                unmatched,
            } = self.counters.clone();
            let at = at.clone();
            log.append(What::Counters {
                at,
                values,
                rewritten,
                unmatched,
            });
            self.told = Some(self.counters.clone());
        }
    }
}
