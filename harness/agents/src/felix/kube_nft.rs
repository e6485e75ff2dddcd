//! From v3.31.4 the cleanup deletes the nftables tables of a kube-proxy in nftables mode too
//! (`felix/nftables/table.go`, a table that is disabled). A table that comes back is noticed by the
//! refresh timer only. The real one takes out every element, chain and map in the transaction that deletes
//! the table.

use std::time::Duration;

use super::{Event, Family, apply::say, log::Line};
use crate::step::Io;

/// kube-proxy's nftables table of one family.
#[derive(Debug)]
pub(super) struct KubeNft {
    pub(super) family: Family,
    /// Zero: it is read once.
    pub(super) refresh: Duration,
    /// It is read whenever anything is applied.
    each_time: bool,
    last_read: Option<Duration>,
}

impl KubeNft {
    pub(super) fn new(family: Family, refresh: Duration, each_time: bool) -> Self {
        Self {
            family,
            refresh,
            each_time,
            last_read: None,
        }
    }

    /// Deletes the table if it is due and there is one with a chain; says how long until it is due again.
    pub(super) async fn apply(&mut self, io: &Io<Event>) -> Option<Duration> {
        let began = io.now();
        let due = match self.last_read {
            None => true,
            Some(_) if self.each_time => true,
            Some(read) => !self.refresh.is_zero() && began >= read + self.refresh,
        };
        if due {
            self.last_read = Some(began);
            self.delete(io).await;
        }
        let next = self.last_read? + self.refresh;
        (!self.refresh.is_zero()).then(|| next.saturating_sub(began))
    }

    async fn delete(&self, io: &Io<Event>) {
        let family = self.family.nft();
        let listing = io
            .run(
                &["nft", "list", "table", family, "kube-proxy"],
                String::new(),
            )
            .await;
        if listing.exit != 0 || !listing.stdout.contains("chain ") {
            return;
        }
        let deleted = io
            .run(
                &["nft", "delete", "table", family, "kube-proxy"],
                String::new(),
            )
            .await;
        if deleted.exit != 0 {
            let line = Line::warning(
                "felix/table.go 924",
                "Failed to program nftables, will retry",
            );
            say(io, line.with("error", deleted.stderr.trim_end()));
        }
    }
}
