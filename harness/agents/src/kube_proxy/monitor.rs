//! The watch over the canary (`Monitor` of iptables.go).
//!
//! An empty chain stands in three tables. Every sync period the first, mangle, is looked at, and
//! only that: whoever empties nat, or removes every chain but this one, is never noticed. When it is
//! gone, the other two are given five seconds to follow, then everything is synced from scratch.

use std::{convert::Infallible, rc::Rc, time::Duration};

use super::{
    Event,
    config::Config,
    iptables::{Exists, Iptables},
    logs::Logs,
    shared::Shared,
};
use crate::step::Io;

const CANARY: &str = "KUBE-PROXY-CANARY";
const WATCHED: &str = "mangle";
const OTHERS: [&str; 2] = ["nat", "filter"];

/// How long a flush may take that was noticed half-way, and how often that is looked at.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
const FLUSH_POLL: Duration = Duration::from_millis(100);

/// Watches until dropped.
pub(crate) async fn watch(
    io: Io<Event>,
    config: Rc<Config>,
    iptables: Rc<Iptables>,
    logs: Logs,
    shared: Rc<Shared>,
) -> Infallible {
    let monitor = Monitor {
        io,
        period: config.sync_period,
        iptables,
        logs,
    };
    loop {
        while !monitor.set_up().await {
            monitor.pause(monitor.period).await;
        }
        monitor.wait_for_death().await;
        monitor.wait_for_the_others().await;
        monitor.logs.canary_reloading();
        shared.reload().await;
    }
}

struct Monitor {
    io: Io<Event>,
    period: Duration,
    iptables: Rc<Iptables>,
    logs: Logs,
}

impl Monitor {
    async fn pause(&self, pause: Duration) {
        self.io.at(self.io.now() + pause).await;
    }

    async fn set_up(&self) -> bool {
        for table in [WATCHED].iter().chain(&OTHERS) {
            if let Err(error) = self.iptables.ensure_chain(table, CANARY).await {
                self.logs.canary_setup_failed(table, CANARY, &error);
                return false;
            }
        }
        true
    }

    /// The looks are a period apart, however long one takes, as a ticker's are.
    async fn wait_for_death(&self) {
        let mut due = self.io.now();
        loop {
            due = (due + self.period).max(self.io.now());
            self.io.at(due).await;
            match self.iptables.chain_exists(WATCHED, CANARY).await {
                Exists::Yes => {}
                Exists::Busy(failure) => {
                    self.logs.canary_check_failed(WATCHED, CANARY, &failure);
                }
                Exists::No => {
                    self.logs.canary_deleted(WATCHED, CANARY);
                    return;
                }
            }
        }
    }

    async fn wait_for_the_others(&self) {
        let deadline = self.io.now() + FLUSH_TIMEOUT;
        while !self.others_are_gone().await {
            if self.io.now() >= deadline {
                self.logs.canary_inconsistent();
                return;
            }
            self.pause(FLUSH_POLL).await;
        }
    }

    async fn others_are_gone(&self) -> bool {
        for table in OTHERS {
            match self.iptables.chain_exists(table, CANARY).await {
                Exists::Yes | Exists::Busy(_) => return false,
                Exists::No => {}
            }
        }
        true
    }
}
