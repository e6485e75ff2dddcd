//! What the cases of a run have in common: what they wait for, and whether one of them has failed.

use std::sync::OnceLock;

use chainbreak_engine::backend::BackendFactory;
use chainbreak_model::{
    agent::AgentName,
    case::{AgentSource, Case, Fault, Step},
    verdict::CaseVerdict,
};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use crate::pressure::{Bearable, Pressure, processors};

/// So many worlds are kept because their cases failed, at most.
const KEPT: usize = 5;
/// A case that fills conntrack tables keeps a processor busy: it takes the room of so many parts of all.
const FILLING: u32 = 3;

/// And where nobody has said how many may run, one with a real program takes as many as so many with models.
const REAL: u32 = 2;

/// What not every case may have at a time: those that take all of a machine leave each other too little to tell.
#[derive(Debug)]
pub(crate) struct Turns {
    most: u32,
    /// The places of a case with a real program.
    real: u32,
    jobs: Semaphore,
    /// A place for each cluster that may start: [`BackendFactory::starts`].
    starts: Semaphore,
    /// One case fills conntrack tables.
    fills: Semaphore,
    keeps: Semaphore,
    failed: OnceLock<String>,
    pub(crate) pressure: Pressure,
}

/// What a case holds until it is over, or its world is kept.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    _fill: Option<SemaphorePermit<'a>>,
    _jobs: SemaphorePermit<'a>,
}

/// What a case holds until its cluster is ready, or waits for something.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    _permit: SemaphorePermit<'a>,
}

impl Turns {
    /// For so many cases side by side, or as many as the backend takes.
    pub(crate) fn new(factory: &dyn BackendFactory, jobs: Option<u16>) -> Self {
        let most = jobs.map_or_else(|| factory.jobs(), usize::from);
        let most = u32::try_from(most.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self {
            most,
            real: if jobs.is_some() { 1 } else { REAL.min(most) },
            jobs: Semaphore::new(most as usize),
            starts: Semaphore::new(factory.starts()),
            fills: Semaphore::new(1),
            keeps: Semaphore::new(KEPT),
            failed: OnceLock::new(),
            pressure: Pressure::default(),
        }
    }

    /// How many cases run side by side at most.
    pub(crate) fn most(&self) -> usize {
        self.most as usize
    }

    /// Waits until there is room for the case beside those that run. One that changes what all worlds share takes all there is.
    pub(crate) async fn place(&self, case: &Case) -> Result<Place<'_>, AcquireError> {
        let fills = fills(case);
        self.room(fills, self.places(case, fills)).await
    }

    fn places(&self, case: &Case, fills: bool) -> u32 {
        match (is_alone(case), fills) {
            (true, _) => self.most,
            (false, true) => self.most.div_ceil(FILLING),
            (false, false) if has_real(case) => self.real,
            (false, false) => 1,
        }
    }

    async fn room(&self, fills: bool, places: u32) -> Result<Place<'_>, AcquireError> {
        let fill = if fills {
            Some(self.fills.acquire().await?)
        } else {
            None
        };
        let jobs = self.jobs.acquire_many(places).await?;
        if self.are_many(places) {
            self.pressure.eases(|| self.bears(places)).await;
        }
        Ok(Place {
            _fill: fill,
            _jobs: jobs,
        })
    }

    /// What a case that has taken so many places bears of others.
    fn bears(&self, taken: u32) -> Bearable {
        if !self.are_many(taken) {
            Bearable::Anything
        } else if self.fills.available_permits() == 0 {
            Bearable::Quiet
        } else {
            Bearable::Busy
        }
    }

    /// Whether more cases run beside one that has taken so many places than there are processors.
    fn are_many(&self, taken: u32) -> bool {
        let all = self.most() - self.jobs.available_permits();
        all.saturating_sub(taken as usize) >= processors()
    }

    /// Waits until its cluster may start.
    pub(crate) async fn start(&self) -> Result<Start<'_>, AcquireError> {
        Ok(Start {
            _permit: self.starts.acquire().await?,
        })
    }

    /// A case is over. Whether it has failed.
    pub(crate) fn over(&self, case: &Case, verdict: CaseVerdict) -> bool {
        let failed = verdict != CaseVerdict::AsExpected;
        if failed {
            self.failed.get_or_init(|| case.id());
        }
        failed
    }

    /// The first case that has failed.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Whether one more world may be kept because its case failed. It counts as kept to the end of the run.
    pub(crate) fn keep(&self) -> bool {
        self.keeps
            .try_acquire()
            .map(SemaphorePermit::forget)
            .is_ok()
    }
}

/// Whether a case fills conntrack tables.
pub(crate) fn fills(case: &Case) -> bool {
    let timeline = &mut case.timeline.iter();
    timeline.any(|step| step.fills_conntrack() || loads(step))
}

/// Whether a third party's command loads a listing into conntrack: 64,512 entries take `conntrack -R` 1.2 s of a processor.
fn loads(step: &Step) -> bool {
    let Step::Fault {
        fault: Fault::Run(run),
        ..
    } = step
    else {
        return false;
    };
    run.argv.iter().any(|it| it.contains("conntrack -R"))
}

/// Whether a program of upstream's plays in a case: it takes more of a machine than its model.
fn has_real(case: &Case) -> bool {
    let is_real = |agent: &AgentName| {
        let source = case.cluster.source(*agent);
        source.is_some_and(|it| *it != AgentSource::Model)
    };
    AgentName::ALL.iter().any(is_real)
}

/// Whether a case changes what all worlds share.
pub(crate) fn is_alone(case: &Case) -> bool {
    !case.cluster.host_sysctls.is_empty()
}

#[cfg(test)]
mod tests {
    use chainbreak_lab::LabFactory;
    use std::path::Path;

    use chainbreak_model::{
        case::{Capabilities, Run},
        load, plan,
        plan::{Choice, Planned},
    };
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn of_cases_that_fill_conntrack_one_runs_at_a_time_and_others_beside_it() {
        let turns = Turns::new(&LabFactory, Some(6));
        let filling = turns.room(true, 2).await.unwrap();
        assert!(turns.room(true, 2).now_or_never().is_none());
        let room = |_| {
            turns.pressure.looks();
            turns.room(false, 1).now_or_never()
        };
        let others: Vec<_> = (0..4).map(room).collect();
        assert!(others.iter().all(Option::is_some));
        assert!(turns.room(false, 1).now_or_never().is_none());
        drop(filling);
        assert!(turns.room(true, 2).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_case_that_is_to_be_alone_waits_until_no_other_runs() {
        let turns = Turns::new(&LabFactory, Some(3));
        let other = turns.room(false, 1).await.unwrap();
        assert!(turns.room(false, turns.most).now_or_never().is_none());
        drop(other);
        assert!(turns.room(false, turns.most).now_or_never().is_some());
    }

    #[test]
    fn a_case_with_a_real_program_takes_two_places_unless_somebody_says_how_many_run() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/ground/short.yaml");
        let scenario = load(&file).unwrap();
        let planned = |able: &_| plan(&scenario, &Choice::default(), able).swap_remove(0);
        let Planned::Skip(skipped) = planned(&Capabilities::default()) else {
            panic!("it needs an iptables");
        };
        let needs = skipped.missing.into_iter().map(|it| it.capability);
        let able = Capabilities(needs.map(|it| (it, Ok(()))).collect());
        let Planned::Run(mut case) = planned(&able) else {
            panic!("what it needs is there");
        };
        let places = |case: &Case, jobs| Turns::new(&LabFactory, jobs).places(case, false);
        assert_eq!(places(&case, None), 1);
        let kube_proxy = case.cluster.agent_mut(AgentName::KubeProxy).unwrap();
        *kube_proxy.source = AgentSource::Path("/kube-proxy".into());
        assert_eq!([None, Some(9)].map(|jobs| places(&case, jobs)), [2, 1]);
    }

    #[test]
    fn a_command_that_loads_a_listing_fills_conntrack() {
        let step = |command: &str| Step::Fault {
            fault: Fault::Run(Run {
                at: None,
                who: "pods".to_owned(),
                argv: ["sh", "-c", command].map(str::to_owned).to_vec(),
            }),
            duration: None,
        };
        assert!(loads(&step("awk x | conntrack -R -")));
        assert!(!loads(&step("conntrack -L")));
        assert!(!loads(&Step::MoveApi));
    }

    #[test]
    fn worlds_are_kept_of_the_first_cases_that_fail() {
        let turns = Turns::new(&LabFactory, None);
        let kept = (0..2 * KEPT).filter(|_| turns.keep());
        assert_eq!(kept.count(), KEPT);
    }
}
