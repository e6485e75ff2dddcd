//! The endpoints of a Service, as the API had them from one moment to the next.

use std::collections::BTreeSet;

use chainbreak_model::event::{Event, EventKind};

/// What the API said of a Service, and from when on.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) at_us: u64,
    /// Nothing where that was not known.
    pub(crate) ready: Option<&'a BTreeSet<String>>,
    pub(crate) draining: &'a BTreeSet<String>,
}

impl Told<'_> {
    /// Whether kube-proxy may rightly lead there.
    pub(crate) fn has(&self, address: &str) -> bool {
        self.ready.is_none_or(|ready| ready.contains(address)) || self.draining.contains(address)
    }
}

/// What it had said last by then.
pub(crate) fn latest<'t, 'a>(told: &'t [Told<'a>], at_us: u64) -> Option<&'t Told<'a>> {
    told.iter().rev().find(|told| told.at_us <= at_us)
}

/// Since when all that it said has been so, at that moment; none where the last of it is not.
pub(crate) fn since(
    told: &[Told<'_>],
    at_us: u64,
    is_so: impl Fn(&Told<'_>) -> bool,
) -> Option<u64> {
    let before = told.iter().rev().filter(|told| told.at_us <= at_us);
    let so = before.take_while(|told| is_so(told));
    so.last().map(|told| told.at_us)
}

/// All that it said, in order of time; nothing in older histories.
pub(crate) fn told<'a>(events: &'a [Event], service: &str) -> Vec<Told<'a>> {
    let told = events.iter().filter_map(|event| match &event.what {
        EventKind::Endpoints {
            service: of,
            ready,
            draining,
        } if of == service => Some(Told {
            at_us: event.at_us,
            ready: ready.as_ref(),
            draining,
        }),
        _ => None,
    });
    told.collect()
}
