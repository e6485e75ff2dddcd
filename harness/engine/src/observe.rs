//! Watching the rules that promises speak of: a look after every recorded write on the node, and one
//! from time to time for writes that no recorder sees.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chainbreak_model::{
    case::{Case, Promise, RuleQuery},
    event::{RulesSeen, What},
    names::NodeName,
};
use tokio::{
    sync::broadcast::error::{RecvError, TryRecvError},
    time::{MissedTickBehavior, interval},
};

use crate::{
    cluster::{Cluster, Command, Place},
    log::{EventLog, Write},
    output::output,
    trouble::Trouble,
};

/// Distance of two looks without a recorded write.
const LOOK: Duration = Duration::from_millis(250);

/// The rules that the case's promises ask for.
pub(crate) fn queries(case: &Case) -> Vec<RuleQuery> {
    let mut queries: Vec<RuleQuery> = case
        .promises
        .values()
        .filter_map(|promise| match promise {
            Promise::HasRule { rule, .. } => Some(rule.clone()),
            _ => None,
        })
        .collect();
    queries.sort();
    queries.dedup();
    queries
}

/// Observes one node until dropped; returns only when looking fails.
pub(crate) async fn node(
    cluster: Arc<dyn Cluster>,
    node: NodeName,
    queries: Vec<RuleQuery>,
    log: EventLog,
) -> Trouble {
    let mut seen = BTreeMap::new();
    let tables: BTreeSet<&str> = queries.iter().map(|query| query.table.as_str()).collect();
    let tables: Vec<&str> = tables.into_iter().collect();
    let mut writes = log.writes();
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = written(&mut writes, &node, &tables) => ticks.reset(),
        }
        if let Err(trouble) =
            look(cluster.as_ref(), &node, &tables, &queries, &log, &mut seen).await
        {
            return trouble;
        }
    }
}

/// Returns after a write to these tables on this node, having swallowed those that one look covers.
async fn written(
    writes: &mut tokio::sync::broadcast::Receiver<Write>,
    node: &NodeName,
    tables: &[&str],
) {
    loop {
        match writes.recv().await {
            Ok(write) if !write.concerns(node, tables) => {}
            Ok(_) | Err(RecvError::Lagged(_)) => break,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
    while !matches!(
        writes.try_recv(),
        Err(TryRecvError::Empty | TryRecvError::Closed)
    ) {}
}

async fn look(
    cluster: &dyn Cluster,
    node: &NodeName,
    tables: &[&str],
    queries: &[RuleQuery],
    log: &EventLog,
    seen: &mut BTreeMap<RuleQuery, usize>,
) -> Result<(), Trouble> {
    let place = Place::Node(node.clone());
    for &table in tables {
        let argv = ["iptables-save", "-t", table].map(str::to_owned).to_vec();
        // The rules are as old as the command is young: the time before it started would be too
        // early for what it found, the time after it a few milliseconds late. Late is honest: a rule
        // is never said to be missing before it was.
        let text = output(cluster, &place, &Command::Argv(argv)).await?;
        let rules = chainbreak_netfilter::Ruleset::parse(&text)
            .map_err(|error| Trouble::new(format!("read the rules of {place}"), error))?;
        for query in queries.iter().filter(|query| query.table == table) {
            let count = rules.count(&query.table, &query.chain, query.jump.as_deref());
            if seen.insert(query.clone(), count) != Some(count) {
                let query = query.to_string();
                log.append(What::Rules(RulesSeen {
                    node: node.clone(),
                    query,
                    count,
                }));
            }
        }
    }
    Ok(())
}
