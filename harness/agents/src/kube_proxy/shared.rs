//! What the sync loop and the monitor share: the one lock around iptables that kube-proxy's
//! processes-within-a-process have (`runner.mu` of iptables.go), and the monitor's call for a
//! reload, which returns when the sync is over.
//!
//! Every change that can let the other side go on is counted, so that whoever polls both knows when
//! to poll again.

use std::{cell::Cell, future::poll_fn, task::Poll};

#[derive(Debug, Default)]
pub(crate) struct Shared {
    stirred: Cell<u64>,
    locked: Cell<bool>,
    reload: Cell<bool>,
}

impl Shared {
    /// Changes whenever one side may have let the other go on.
    pub(crate) fn stirred(&self) -> u64 {
        self.stirred.get()
    }

    /// The lock around iptables, held until the guard is dropped.
    pub(crate) async fn lock(&self) -> Lock<'_> {
        wait_until(|| !self.locked.replace(true)).await;
        Lock { shared: self }
    }

    /// Asks for a forced sync and waits for its end.
    pub(crate) async fn reload(&self) {
        self.reload.set(true);
        self.stir();
        wait_until(|| !self.reload.get()).await;
    }

    /// Waits until a forced sync is asked for.
    pub(crate) async fn reload_asked(&self) {
        wait_until(|| self.reload.get()).await;
    }

    /// The forced sync is over.
    pub(crate) fn reloaded(&self) {
        self.reload.set(false);
        self.stir();
    }

    fn stir(&self) {
        self.stirred.set(self.stirred.get() + 1);
    }
}

async fn wait_until(mut holds: impl FnMut() -> bool) {
    poll_fn(|_| {
        if holds() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[must_use = "dropping it gives the lock back"]
pub(crate) struct Lock<'a> {
    shared: &'a Shared,
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.shared.locked.set(false);
        self.shared.stir();
    }
}
