//! The run of one case: raise, apply, wait, drive traffic through the timeline, destroy. Whatever
//! happens, the history says so and the cluster is destroyed.

use std::{future::pending, sync::Arc, time::Duration};

use chainbreak_model::{
    case::{Case, Versions},
    event::{EventKind, Phase},
    names::AgentName,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::{
    answered_by,
    backend::Backend,
    census::Census,
    cluster::{Cluster, nodes},
    dumps, endpoints,
    faults::Faults,
    follow,
    infra_error::InfraError,
    log::EventLog,
    looks::Looks,
    manifests,
    nat_maps::NatMaps,
    network, observe, ready,
    starvation::Starvation,
    timeline, traffic,
};

/// How long the cluster may take from nothing to ready when nobody says otherwise.
pub const READY_WITHIN: Duration = Duration::from_secs(60);

/// What is kept of a case beside its history.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Artifact {
    /// A file name, unique in the case.
    pub name: String,
    /// The file's text.
    pub text: String,
}

/// What becomes of the cluster after the run.
#[derive(Debug)]
pub enum After {
    /// It is destroyed.
    Destroy,
    /// It is kept until `stop` turns true, then destroyed.
    Keep,
    /// As is told after [`Phase::Held`]. Nobody who could tell it: it is destroyed.
    Told(oneshot::Receiver<Fate>),
}

/// What a case came to, and what becomes of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It came out as expected, and its cluster goes.
    AsExpected,
    /// It may be that it did not, and its cluster goes.
    Doubtful,
    /// The same, and its cluster is kept.
    Kept,
}

impl After {
    async fn fate(self, log: &EventLog) -> Fate {
        match self {
            Self::Destroy => Fate::Doubtful,
            Self::Keep => Fate::Kept,
            Self::Told(told) => {
                log.append(EventKind::Phase(Phase::Held));
                told.await.unwrap_or(Fate::Doubtful)
            }
        }
    }
}

/// Runs one case to its end. `stop` turning true ends it early, and so does a cluster that is not ready
/// within `ready_within`: the history says so.
pub async fn run(
    backend: &dyn Backend,
    case: &Case,
    log: &EventLog,
    ready_within: Duration,
    stop: watch::Receiver<bool>,
    after: After,
) -> Vec<Artifact> {
    log.append(EventKind::Phase(Phase::Raising));
    let deadline = Instant::now() + ready_within;
    let raised = tokio::select! {
        raised = raise(backend, case, log, ready_within) => raised,
        () = stopped(stop.clone()) => Err(interrupted()),
    };
    let artifacts = match raised {
        Ok(cluster) => on_cluster(&cluster, case, log, deadline, stop, after).await,
        Err(trouble) => {
            log.append(EventKind::Trouble {
                text: trouble.to_string(),
            });
            Vec::new()
        }
    };
    log.append(EventKind::Phase(Phase::Destroyed));
    artifacts
}

async fn raise(
    backend: &dyn Backend,
    case: &Case,
    log: &EventLog,
    within: Duration,
) -> Result<Arc<dyn Cluster>, InfraError> {
    match tokio::time::timeout(within, backend.raise(case, log, within)).await {
        Ok(raised) => raised
            .map(Arc::from)
            .map_err(|error| InfraError::new(error.what, error.source)),
        Err(_elapsed) => {
            let why = format!("it took more than {within:?}");
            Err(InfraError::new("raise the cluster", why))
        }
    }
}

async fn on_cluster(
    cluster: &Arc<dyn Cluster>,
    case: &Case,
    log: &EventLog,
    deadline: Instant,
    stop: watch::Receiver<bool>,
    after: After,
) -> Vec<Artifact> {
    let mut faults = Faults::new(cluster, case.seed, log).with(Versions::of(&case.cluster));
    let ended = tokio::select! {
        ended = exercise(cluster, case, log, deadline, &mut faults) => match ended {
            Ok(()) => Ok(()),
            Err(trouble) => Err(explained(cluster.as_ref(), trouble).await),
        },
        () = stopped(stop.clone()) => Err(interrupted()),
    };
    faults.heal_all().await;
    if let Err(trouble) = ended {
        log.append(EventKind::Trouble {
            text: trouble.to_string(),
        });
    }
    let (artifacts, fate) = listed(cluster.as_ref(), case, after, stop.clone(), log).await;
    if fate == Fate::Kept {
        let kept = async {
            cluster.keep().await;
            log.append(EventKind::Phase(Phase::Kept));
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = stopped(stop) => {}
            () = kept => {}
        }
    }
    if let Err(leftovers) = cluster.destroy().await {
        log.append(EventKind::Trouble {
            text: leftovers.to_string(),
        });
    }
    artifacts
}

/// What nodes hold when a case is over, and what becomes of them, as soon as that is told. Rules come first, since what is kept of a case is bounded.
async fn listed(
    cluster: &dyn Cluster,
    case: &Case,
    after: After,
    stop: watch::Receiver<bool>,
    log: &EventLog,
) -> (Vec<Artifact>, Fate) {
    let mut artifacts = dumps::rules(cluster, case).await;
    let fate = tokio::select! {
        // Nothing is kept of a run that is to end.
        biased;
        () = stopped(stop) => Fate::Doubtful,
        fate = after.fate(log) => fate,
    };
    if fate != Fate::AsExpected {
        artifacts.extend(dumps::maps(cluster, case).await);
    }
    (artifacts, fate)
}

/// The trouble that is behind it: nothing that is done on a node that is gone can succeed.
async fn explained(cluster: &dyn Cluster, trouble: InfraError) -> InfraError {
    let silent = cluster.silent_nodes().await;
    if silent.is_empty() {
        return trouble;
    }
    let why = format!("{}\n{trouble}", silent.join("\n"));
    InfraError::new("go on: not everything answers any more", why)
}

fn interrupted() -> InfraError {
    InfraError::new("finish", "the run was interrupted")
}

/// Returns when `stop` turns true, at once if it is.
pub async fn stopped(mut stop: watch::Receiver<bool>) {
    // A sender that is gone can no longer stop anything.
    if stop.wait_for(|stop| *stop).await.is_err() {
        pending::<()>().await;
    }
}

async fn exercise(
    cluster: &Arc<dyn Cluster>,
    case: &Case,
    log: &EventLog,
    deadline: Instant,
    faults: &mut Faults,
) -> Result<(), InfraError> {
    log.append(observe::watching(cluster.as_ref()));
    let looks = Arc::new(Looks::new(Arc::clone(cluster), log.clone()));
    let (ready, endpoints) = watch::channel(endpoints::Ready::new());
    let mut background = follow(cluster, &looks, case, &ready, log);
    let foreground = async {
        let api = cluster.api();
        let manifests = cluster.dressed(&case.manifests);
        let apply = manifests::apply(&api, &manifests);
        let ready = Box::pin(ready::wait(cluster.as_ref(), case, log, deadline, apply));
        tokio::select! {
            ready = ready => ready?,
            () = log.troubled() => {
                let why = "there was trouble already";
                return Err(InfraError::new("wait until the cluster is ready", why));
            }
        }
        let flows = traffic::begin(cluster.as_ref(), &case.traffic, log).await?;
        answered_by::tell(cluster.as_ref(), case, &flows, deadline, log).await?;
        observe::addresses(cluster.as_ref(), case, log).await?;
        network::tell(cluster.as_ref(), log).await;
        log.append(EventKind::Phase(Phase::Ready));
        let mut maps = NatMaps::of(cluster, case, &flows, endpoints);
        judge(cluster, (&looks, maps.as_mut()), case, faults, log).await?;
        network::tell(cluster.as_ref(), log).await;
        traffic::end(flows).await
    };
    tokio::select! {
        ended = foreground => ended,
        Some(trouble) = background.next() => Err(trouble),
    }
}

/// Plays the timeline, and looks meanwhile what is dropped and where Felix's programs lead, and to the end of what is judged whether the machine has time for it.
async fn judge(
    cluster: &Arc<dyn Cluster>,
    (looks, mut maps): (&Arc<Looks>, Option<&mut NatMaps>),
    case: &Case,
    faults: &mut Faults,
    log: &EventLog,
) -> Result<(), InfraError> {
    let (nodes, felix) = (nodes(cluster.as_ref()), cluster.felix_program());
    let mut census = Census::new(Arc::clone(looks), nodes, case, felix.as_ref());
    census.begin(log).await;
    if let Some(maps) = &mut maps {
        maps.look(log).await;
    }
    let watch_maps = async {
        match maps {
            Some(maps) => maps.watch(log).await,
            None => pending().await,
        }
    };
    log.barrier(EventKind::Phase(Phase::Judging)).await;
    let api = cluster.api();
    let mut starvation = Starvation::new(cluster);
    let judged = async {
        tokio::select! {
            played = timeline::play(&api, faults, &case.timeline, log) => played?,
            () = census.watch(log) => {}
            () = watch_maps => {}
        }
        census.end(log).await;
        log.barrier(EventKind::Phase(Phase::Judged)).await;
        Ok(())
    };
    tokio::select! {
        judged = judged => judged?,
        () = starvation.watch(log) => {}
    }
    starvation.end(log).await;
    Ok(())
}

/// What runs beside the timeline: the agents' logs, the observed places, and the endpoints that are ready. An item is a failure.
fn follow(
    cluster: &Arc<dyn Cluster>,
    looks: &Arc<Looks>,
    case: &Case,
    ready: &watch::Sender<endpoints::Ready>,
    log: &EventLog,
) -> FuturesUnordered<BoxFuture<'static, InfraError>> {
    let background = FuturesUnordered::new();
    for (at, watched) in observe::places(case) {
        let (cluster, looks) = (Arc::clone(cluster), Arc::clone(looks));
        let observing = observe::observe(cluster, looks, at, watched, log.clone());
        background.push(observing.boxed());
    }
    for node in nodes(cluster.as_ref()) {
        for agent in agents(case) {
            let following = follow::log(Arc::clone(cluster), agent, node.clone(), log.clone());
            background.push(following.boxed());
        }
    }
    for service in endpoints::services(case) {
        let following = endpoints::follow(cluster.api(), service, ready.clone(), log.clone());
        background.push(following.boxed());
    }
    background
}

/// The agents that the case's cluster has.
pub fn agents(case: &Case) -> Vec<AgentName> {
    case.cluster.agents().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, Commands, Fake};

    const PROMISE: &str = "{ has-rule: { table: nat, chain: CHAIN, absent: true, always: true } }";

    #[tokio::test]
    async fn a_run_that_is_to_end_keeps_no_cluster() {
        let (_, cluster) = Fake::default().cluster();
        let (log, _events) = EventLog::new();
        for (stops, fate) in [(false, Fate::Kept), (true, Fate::Doubtful)] {
            let (_stop, stop) = watch::channel(stops);
            let case = fake::case(PROMISE);
            let (_, became) = listed(cluster.as_ref(), &case, After::Keep, stop, &log).await;
            assert_eq!(became, fate, "to end: {stops}");
        }
    }

    /// Whether maps are listed of a case with programs of which that is told, or nothing.
    async fn lists_maps(told: Option<Fate>) -> bool {
        let (_, cluster) = Fake {
            commands: Commands::Shell("echo it".to_owned(), Duration::ZERO),
            has_programs: true,
            ..Fake::default()
        }
        .cluster();
        let mut case = fake::case(PROMISE);
        fake::switch_to_ebpf(&mut case);
        let (log, mut events) = EventLog::new();
        let (tell, fate) = oneshot::channel();
        // Who is gone tells nothing.
        match told {
            Some(told) => tell.send(told).unwrap(),
            None => drop(tell),
        }
        let (_stop, stop) = watch::channel(false);
        let after = After::Told(fate);
        let (artifacts, became) = listed(cluster.as_ref(), &case, after, stop, &log).await;
        assert_eq!(became, told.unwrap_or(Fate::Doubtful));
        let held = events.try_recv().map(|event| event.what);
        assert_eq!(held, Ok(EventKind::Phase(Phase::Held)));
        let is = |name: &str| artifacts.iter().any(|it| it.name == name);
        assert!(is("n1.iptables-save"));
        is("n1.bpf-nat")
    }

    #[tokio::test]
    async fn maps_of_programs_are_listed_unless_a_case_is_known_to_be_as_expected() {
        assert!(!lists_maps(Some(Fate::AsExpected)).await);
        for doubtful in [Some(Fate::Doubtful), Some(Fate::Kept), None] {
            assert!(lists_maps(doubtful).await, "{doubtful:?}");
        }
    }

    #[tokio::test]
    async fn a_last_look_that_takes_long_does_not_make_the_harness_late() {
        let fake = Fake {
            commands: Commands::Hang,
            ..Fake::default()
        };
        let (_, cluster) = fake.cluster();
        let case = fake::case(PROMISE);
        let (log, mut events) = EventLog::new();
        let looks = Arc::new(Looks::new(Arc::clone(&cluster), log.clone()));
        let mut faults = Faults::new(&cluster, case.seed, &log);
        let judged = judge(&cluster, (&looks, None), &case, &mut faults, &log).await;
        judged.expect("nothing fails");
        let told = std::iter::from_fn(|| events.try_recv().ok());
        let told: Vec<String> = told.map(|event| format!("{:?}", event.what)).collect();
        let of = |what: &str| told.iter().any(|told| told.contains(what));
        assert!(of("the last look was not over"), "{told:?}");
        assert!(!of("Starved"), "{told:?}");
    }
}
