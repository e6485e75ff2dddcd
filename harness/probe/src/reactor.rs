//! What the probe waits for: its schedule, its connections, and the end of its standard input.

use std::{io, os::fd::AsFd, time::Duration};

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
};

use crate::error::ProbeError;

/// Names a connection to epoll. The upper half counts reuses of the lower half's place, so that an event
/// for a connection closed a moment ago finds nobody.
pub(crate) type Token = u64;

const TIMER: Token = u64::MAX;
const CONTROL: Token = u64::MAX - 1;
const BATCH: usize = 256;

/// Something to act on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ready {
    /// A request may be due.
    Timer,
    /// The controlling input has something, or ended.
    Control,
    /// A connection can go on.
    Connection {
        /// Which.
        token: Token,
        /// There is something to read, or the connection's end.
        readable: bool,
    },
}

/// epoll and the timer of the schedule.
#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: Epoll,
    timer: TimerFd,
    events: Vec<EpollEvent>,
}

impl Reactor {
    pub(crate) fn new() -> Result<Self, ProbeError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(ProbeError::system("make an epoll"))?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
            .map_err(ProbeError::system("make a timer"))?;
        epoll
            .add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))
            .map_err(ProbeError::system("watch the timer"))?;
        Ok(Self {
            epoll,
            timer,
            events: vec![EpollEvent::empty(); BATCH],
        })
    }

    /// Watches the controlling input; false when it is of a kind that never has to be waited for (a file).
    pub(crate) fn watch_control(&self, control: impl AsFd) -> Result<bool, ProbeError> {
        let interest = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, CONTROL);
        match self.epoll.add(control, interest) {
            Ok(()) => Ok(true),
            Err(Errno::EPERM) => Ok(false),
            Err(errno) => Err(ProbeError::system("watch standard input")(errno)),
        }
    }

    /// An input that ended would be ready forever.
    pub(crate) fn unwatch_control(&self, control: impl AsFd) -> Result<(), ProbeError> {
        let forgotten = self.epoll.delete(control);
        forgotten.map_err(ProbeError::system("stop watching standard input"))
    }

    /// Wakes at `first_us` on the monotonic clock and every `every_us` after it. The kernel keeps the
    /// schedule: being late once does not move what follows.
    pub(crate) fn schedule(&self, first_us: u64, every_us: u64) -> Result<(), ProbeError> {
        let time = |us| TimeSpec::from_duration(Duration::from_micros(us));
        let every = Expiration::IntervalDelayed(time(first_us), time(every_us));
        self.timer
            .set(every, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            .map_err(ProbeError::system("set the timer"))
    }

    /// No request is due any more.
    pub(crate) fn unschedule(&self) -> Result<(), ProbeError> {
        self.timer
            .unset()
            .map_err(ProbeError::system("stop the timer"))
    }

    /// Watches a connection until it is closed. Edge-triggered: one call for its whole life.
    pub(crate) fn watch(&self, connection: impl AsFd, token: Token) -> io::Result<()> {
        let interest = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        Ok(self
            .epoll
            .add(connection, EpollEvent::new(interest, token))?)
    }

    /// Waits until something is ready, at most `at_most_us`, and fills `ready` with it.
    pub(crate) fn wait(
        &mut self,
        at_most_us: Option<u64>,
        ready: &mut Vec<Ready>,
    ) -> Result<(), ProbeError> {
        ready.clear();
        // Rounded up: what is waited for is over when it wakes. A minute is longer than any deadline here.
        let milliseconds = at_most_us.map(|us| us.div_ceil(1_000).min(60_000));
        let timeout = milliseconds.map_or(EpollTimeout::NONE, |ms| {
            EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::MAX)
        });
        let count = match self.epoll.wait(&mut self.events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(ProbeError::system("wait")(errno)),
        };
        for event in self.events.iter().take(count) {
            ready.push(match event.data() {
                TIMER => {
                    self.rearm()?;
                    Ready::Timer
                }
                CONTROL => Ready::Control,
                token => Ready::Connection {
                    token,
                    // An end or an error is read, too; only "may write" alone is not.
                    readable: event.events() != EpollFlags::EPOLLOUT,
                },
            });
        }
        Ok(())
    }

    /// A read timer goes on; the clock, not the count of expirations, says what is due.
    fn rearm(&self) -> Result<(), ProbeError> {
        match self.timer.wait() {
            Ok(()) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(ProbeError::system("read the timer")(errno)),
        }
    }
}
