//! The counters of `nfnetlink_acct` that rules count with, and the requests over netlink that make them (from 1.31,
//! `pkg/proxy/util/nfacct` and metrics.go).
//!
//! Whether the kernel has that subsystem is asked once, at the start. Whether `iptables` has the match is never
//! asked: where it is missing, the whole restore fails. Nobody ever deletes a counter.

use std::collections::BTreeSet;

use crate::{
    driver::netlink::PROGRAM,
    kube_proxy::{Event, config::Config, logs::Logs},
    step::Io,
};

/// Packets dropped because conntrack calls them invalid.
pub(crate) const INVALID: &str = "ct_state_invalid_dropped_pkts";
/// Packets that reached a node port over the loopback.
pub(crate) const LOCALHOST: &str = "localhost_nps_accepted_pkts";

/// No counter has it: a kernel that can answer says so.
const NOBODYS: &str = "IMayExist";
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;

/// Which counters rules may use.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    available: bool,
    made: BTreeSet<&'static str>,
}

impl Counters {
    /// Asks the kernel.
    pub(super) async fn probe(&mut self, io: &Io<Event>, config: &Config, logs: &Logs) {
        if !config.version.counts_by_nfacct() {
            return;
        }
        let answer = ask(io, "get", NOBODYS).await;
        self.available = matches!(answer, Ok(()) | Err((ENOENT, _)));
        if !self.available {
            logs.no_nfacct();
        }
    }

    /// Makes those that are missing, as every full sync does.
    pub(super) async fn ensure(&mut self, io: &Io<Event>, logs: &Logs) {
        if !self.available {
            return;
        }
        for name in [INVALID, LOCALHOST] {
            let mut there = ask(io, "get", name).await;
            if matches!(there, Err((ENOENT, _))) {
                there = ask(io, "new", name).await;
            }
            match there {
                Ok(()) => drop(self.made.insert(name)),
                Err((errno, text)) => {
                    self.made.remove(name);
                    logs.counter_failed(name, &worded(errno, &text));
                }
            }
        }
    }

    /// The words that make a rule count, behind a space; none where there is no such counter.
    pub(crate) fn counting(&self, name: &'static str) -> String {
        if self.made.contains(name) {
            return format!(" -m nfacct --nfacct-name {name}");
        }
        String::new()
    }

    /// Whether rules may use it.
    pub(crate) fn has(&self, name: &'static str) -> bool {
        self.made.contains(name)
    }
}

async fn ask(io: &Io<Event>, what: &str, name: &str) -> Result<(), (i32, String)> {
    let output = io
        .run(&[PROGRAM, "nfacct", what, name], String::new())
        .await;
    match output.exit {
        0 => Ok(()),
        errno => Err((errno, output.stderr)),
    }
}

fn worded(errno: i32, text: &str) -> String {
    match errno {
        ENOENT => "object not found".to_owned(),
        EBUSY => "object already exists".to_owned(),
        _ => format!("unexpected error: {text}"),
    }
}
