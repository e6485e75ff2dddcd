//! The schedule of an order's requests, and the account of them, whatever carries them.

use std::{collections::BTreeMap, os::fd::AsFd};

use hdrhistogram::Histogram;

use crate::{
    clock::monotonic_us,
    error::ProbeError,
    output::Output,
    ports::Ports,
    reactor::{Reactor, Ready, Token},
    wire::{Lateness, Order, Outcome, Report, Sample},
};

/// Most requests begun at once.
const BURST: usize = 64;

/// What carries the requests of a course.
pub(crate) trait Carrier {
    fn course(&mut self) -> &mut Course;

    /// The course, when it is over.
    fn into_course(self) -> Course;

    /// Begins the request that is due.
    fn begin(&mut self, due: u64);

    /// Lets a connection go on as far as it can.
    fn go_on(&mut self, token: Token, readable: bool);

    /// Ends what timed out.
    fn expire(&mut self, now: u64);

    /// When the next one times out.
    fn deadline(&self) -> Option<u64>;

    /// Whether every connection may end with this process.
    fn is_idle(&self) -> bool;
}

/// Begins the requests that are due by now, at most [`BURST`] of them: one that fell behind must not stop
/// reading answers, or it falls behind for good.
pub(crate) fn send_due(carrier: &mut impl Carrier) -> Result<(), ProbeError> {
    let now = carrier.course().now();
    for _ in 0..BURST {
        let Some(due) = carrier.course().take_due(now)? else {
            break;
        };
        carrier.begin(due);
    }
    Ok(())
}

/// A running order.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) order: Order,
    pub(crate) reactor: Reactor,
    pub(crate) ports: Ports,
    output: Output,
    start_us: u64,
    /// How many requests became due.
    sent: u64,
    /// How late each was begun that has not ended, by when it was due.
    under_way: BTreeMap<u64, u64>,
    stopped: bool,
    deaf: bool,
    late: Histogram<u64>,
}

impl Course {
    pub(crate) fn new(order: Order, reactor: Reactor, output: Output, start_us: u64) -> Self {
        Self {
            ports: Ports::new(order.number),
            order,
            reactor,
            output,
            start_us,
            sent: 0,
            under_way: BTreeMap::new(),
            stopped: false,
            deaf: false,
            late: Histogram::new(3).expect("three digits are allowed"),
        }
    }

    /// Whether nothing is left to send or to wait for.
    pub(crate) fn is_over(&self, idle: bool) -> bool {
        self.deaf || self.stopped && self.under_way.is_empty() && idle
    }

    /// Sends no more requests; what is under way goes on.
    pub(crate) fn stop(&mut self) -> Result<(), ProbeError> {
        self.stopped = true;
        self.reactor.unschedule()
    }

    pub(crate) fn unwatch_control(&self, control: impl AsFd) -> Result<(), ProbeError> {
        self.reactor.unwatch_control(control)
    }

    /// The due time of the next request if that has come by `now`. It is to be begun at once: what has been too late is the machine's
    /// part.
    pub(crate) fn take_due(&mut self, now: u64) -> Result<Option<u64>, ProbeError> {
        let Some(due) = self.next_due().filter(|due| *due <= now) else {
            return Ok(None);
        };
        let late = self.now().saturating_sub(due);
        self.late
            .record(late)
            .expect("a histogram that grows takes any value");
        self.under_way.insert(due, late);
        self.sent += 1;
        if self.order.count.is_some_and(|count| self.sent >= count) {
            self.stop()?;
        }
        Ok(Some(due))
    }

    /// When the next request is due, unless none is.
    fn next_due(&self) -> Option<u64> {
        let due = self.sent.saturating_mul(self.order.every_us);
        (!self.stopped).then_some(due)
    }

    /// Waits until something is ready or has to be tidied up, or until `deadline`.
    pub(crate) fn wait(
        &mut self,
        deadline: Option<u64>,
        ready: &mut Vec<Ready>,
    ) -> Result<(), ProbeError> {
        let next = [deadline, self.output.due_us()].into_iter().flatten().min();
        let now = self.now();
        // The timer wakes for what is due in time; what is due already must not wait for it.
        let behind = self.next_due().filter(|due| *due <= now);
        let next = behind.or(next);
        self.reactor
            .wait(next.map(|next| next.saturating_sub(now)), ready)
    }

    /// Lets reports go.
    pub(crate) fn flush(&mut self, now: u64) {
        self.deaf = !self.output.flush_if_due(now);
    }

    /// A request came to its end.
    pub(crate) fn end(&mut self, due: u64, outcome: Outcome) {
        let now = self.now();
        let sample = Sample {
            at_us: due,
            took_us: now.saturating_sub(due),
            late_us: self.under_way.remove(&due),
            outcome,
        };
        self.output.say(&Report::Sample(sample), now);
    }

    /// Says that it is over, and waits until everything is written.
    pub(crate) fn finish(mut self) -> Result<(), ProbeError> {
        let lateness = Lateness {
            median_us: self.late.value_at_quantile(0.5),
            p99_us: self.late.value_at_quantile(0.99),
            max_us: self.late.max(),
        };
        let (sent, now) = (self.sent, self.now());
        self.output.say(&Report::Done { sent, lateness }, now);
        self.output.finish()
    }

    pub(crate) fn now(&self) -> u64 {
        monotonic_us().saturating_sub(self.start_us)
    }
}
