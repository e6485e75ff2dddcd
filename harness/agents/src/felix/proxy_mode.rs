//! Whether kube-proxy is in nftables mode, and what Felix makes of it (v3.32.1: `int_dataplane.go`,
//! `useNftables` and `monitorKubeProxyNftablesMode`; `felix/nftables/utils.go`).
//!
//! With `NFTablesMode: Auto`, the default from v3.32 on, Felix uses nftables itself when kube-proxy's table has a chain at the
//! start, looks again every 15 s, and restarts when that has changed: also when it is Felix that deleted the table.

use std::time::Duration;

use super::{Event, Family, apply::say, log::Line, params::Params, version::Version};
use crate::step::Io;

/// Between two looks. No setting changes it.
const PERIOD: Duration = Duration::from_secs(15);

/// kube-proxy's mode as one life knows it.
#[derive(Debug)]
pub(super) struct ProxyMode {
    /// Whether kube-proxy was in nftables mode when the life began.
    nftables: bool,
    /// When to look again; `None` when the mode is not to be followed.
    due: Option<Duration>,
}

impl ProxyMode {
    /// Looks, and says what Felix will use.
    pub(super) async fn detect(io: &Io<Event>, params: &Params, version: Version) -> Self {
        if !version.follows_kube_proxys_mode() {
            return Self {
                nftables: false,
                due: None,
            };
        }
        let mode = params.word("NFTablesMode");
        let nftables = has_table(io).await;
        let uses = match mode {
            "Auto" => nftables,
            mode => mode == "Enabled",
        };
        let message = "Determined whether or not to use nftables";
        let line = Line::info("felix/int_dataplane.go 1514", message)
            .text("calicoMode", mode)
            .with("kubeProxyEnabled", nftables)
            .with("useNftables", uses);
        say(io, line);
        Self {
            nftables,
            due: (mode == "Auto").then(|| io.now() + PERIOD),
        }
    }

    /// When to call [`Self::look`].
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Looks again when it is due; what to say before the restart when it has changed.
    pub(super) async fn look(&mut self, io: &Io<Event>) -> Option<Line> {
        let due = self.due.as_mut().filter(|due| **due <= io.now())?;
        *due += PERIOD;
        let current = has_table(io).await;
        let message = "kube-proxy nftables mode changed. Restart felix.";
        (current != self.nftables).then(|| {
            Line::info("felix/int_dataplane.go 1907", message)
                .with("previous", self.nftables)
                .with("current", current)
        })
    }
}

/// Whether a table of kube-proxy's, of either family, has a chain.
async fn has_table(io: &Io<Event>) -> bool {
    for family in [Family::V4, Family::V6] {
        let words = [
            "nft",
            "--json",
            "--terse",
            "list",
            "table",
            family.nft(),
            "kube-proxy",
        ];
        let listing = io.run(&words, String::new()).await;
        if listing.exit == 0 && listing.stdout.contains("\"chain\": {") {
            return true;
        }
    }
    false
}
