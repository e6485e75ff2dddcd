//! The two ends of an agent: from outside it is told what to be, and its life does that and says so.

use tokio::sync::watch;

use crate::cluster::{Signal, SignalError};

/// What signals an agent.
#[derive(Debug, Clone)]
pub struct AgentHandle {
    wish: watch::Sender<Signal>,
    state: watch::Receiver<Option<Signal>>,
}

/// What receives those signals, where the agent lives.
#[derive(Debug, Clone)]
pub struct LifeControl {
    wish: watch::Receiver<Signal>,
    /// `None` while it starts.
    state: watch::Sender<Option<Signal>>,
    /// The wish that is there could not be fulfilled.
    refused: bool,
}

/// Both ends for an agent that is to run, and does not live yet.
pub fn agent_handle() -> (AgentHandle, LifeControl) {
    let (wish, wished) = watch::channel(Signal::Run);
    let (state, seen) = watch::channel(Some(Signal::Stop));
    let control = LifeControl {
        wish: wished,
        state,
        refused: false,
    };
    (AgentHandle { wish, state: seen }, control)
}

impl AgentHandle {
    /// Sends the signal, and returns when it is obeyed.
    pub async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.wish.send_replace(signal);
        let mut state = self.state.clone();
        let reached = state.wait_for(|state| *state == Some(signal)).await;
        let dead = |_gone| SignalError("it is dead for good".to_owned());
        reached.map(drop).map_err(dead)
    }

    /// Has it end, and does not wait.
    pub fn kill(&self) {
        self.wish.send_replace(Signal::Stop);
    }
}

impl LifeControl {
    /// Returns when the agent may live. From then on it starts.
    pub(super) async fn may_live(&mut self) {
        // Without the other end there is nothing that could stop it.
        drop(self.wish.wait_for(|wish| *wish != Signal::Stop).await);
        self.state.send_replace(None);
    }

    /// Whether the agent is not to live.
    pub(super) fn is_to_stop(&self) -> bool {
        *self.wish.borrow() == Signal::Stop
    }

    /// The next wish that is not yet so; while it starts, only that it ends. The life is to end, or to do it and say so
    /// ([`Self::is_so`]), or to say that it cannot ([`Self::refuse`]).
    pub async fn next(&mut self) -> Signal {
        if self.refused {
            // Without the other end there is no other wish.
            if self.wish.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            self.refused = false;
        }
        let state = *self.state.borrow();
        let other = |wish: &Signal| state.map_or(*wish == Signal::Stop, |state| *wish != state);
        let wish = self.wish.wait_for(other).await.map(|wish| *wish);
        match wish {
            Ok(wish) => wish,
            Err(_gone) => std::future::pending().await,
        }
    }

    /// The wish is fulfilled. Also what a life says when it has started: it runs.
    pub fn is_so(&self, signal: Signal) {
        self.state.send_replace(Some(signal));
    }

    /// The wish that came last cannot be fulfilled: it counts for nothing until it is told again, or another one is.
    pub fn refuse(&mut self) {
        self.refused = true;
    }

    /// Returns when the agent is not to pause any more.
    pub async fn resumed(&mut self) {
        drop(self.wish.wait_for(|wish| *wish != Signal::Pause).await);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn an_agent_that_starts_hears_only_that_it_is_to_end() {
        let (handle, mut control) = agent_handle();
        control.may_live().await;
        assert!(control.next().now_or_never().is_none(), "it starts to run");
        assert!(handle.signal(Signal::Pause).now_or_never().is_none());
        assert!(control.next().now_or_never().is_none());
        assert!(handle.signal(Signal::Stop).now_or_never().is_none());
        assert_eq!(control.next().await, Signal::Stop);
        assert!(handle.signal(Signal::Pause).now_or_never().is_none());
        control.is_so(Signal::Run);
        assert_eq!(control.next().await, Signal::Pause);
    }

    #[tokio::test]
    async fn a_signal_that_cannot_be_obeyed_is_not_tried_again_until_the_next_one() {
        let (handle, mut control) = agent_handle();
        control.is_so(Signal::Run);
        for _ in 0..2 {
            assert!(handle.signal(Signal::Pause).now_or_never().is_none());
            assert_eq!(control.next().await, Signal::Pause);
            control.refuse();
            assert!(control.next().now_or_never().is_none());
        }
        handle.signal(Signal::Run).await.unwrap();
        assert!(control.next().now_or_never().is_none(), "it runs already");
        handle.kill();
        assert_eq!(control.next().await, Signal::Stop);
    }
}
