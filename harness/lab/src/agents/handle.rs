//! The handle of an agent: from outside it is stopped, started and paused, and on its thread that is done.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::Arc,
    task::{Context, Wake},
    thread::{self, Thread},
};

use chainbreak_engine::cluster::{Signal, SignalError};
use chainbreak_model::names::{AgentName, NodeName};
use tokio::sync::watch;

/// The handles of all agents.
pub(crate) type AgentHandles = BTreeMap<(AgentName, NodeName), AgentHandle>;

/// What signals an agent, held by the lab.
#[derive(Debug, Clone)]
pub(crate) struct AgentHandle {
    wish: watch::Sender<Signal>,
    state: watch::Receiver<Signal>,
}

/// What receives those signals, on the agent's thread.
#[derive(Debug, Clone)]
pub(super) struct AgentControl {
    wish: watch::Receiver<Signal>,
    state: watch::Sender<Signal>,
}

/// Both ends for an agent that is to run.
pub(super) fn agent_handle() -> (AgentHandle, AgentControl) {
    let (wish, wished) = watch::channel(Signal::Run);
    let (state, seen) = watch::channel(Signal::Run);
    let control = AgentControl {
        wish: wished,
        state,
    };
    (AgentHandle { wish, state: seen }, control)
}

impl AgentHandle {
    /// Sends the signal, and returns when it is obeyed.
    pub(crate) async fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.wish.send_replace(signal);
        let mut state = self.state.clone();
        let reached = state.wait_for(|state| *state == signal).await;
        let dead = |_gone| SignalError("it is dead for good".to_owned());
        reached.map(drop).map_err(dead)
    }

    /// Has it end, and does not wait.
    pub(super) fn kill(&self) {
        self.wish.send_replace(Signal::Stop);
    }
}

impl AgentControl {
    /// Returns when the agent may live, and says so.
    pub(super) async fn may_live(&mut self) {
        if *self.wish.borrow() == Signal::Stop {
            self.state.send_replace(Signal::Stop);
        }
        // Without the other end nobody stops anything any more.
        drop(self.wish.wait_for(|wish| *wish != Signal::Stop).await);
        self.state.send_replace(Signal::Run);
    }

    /// Returns when the agent is to end.
    pub(super) async fn stopped(&mut self) {
        if self
            .wish
            .wait_for(|wish| *wish == Signal::Stop)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// The next wish that is not yet so, of pausing and going on. [`Self::is_so`] is to follow.
    pub(super) async fn next(&mut self) -> Signal {
        let so = *self.state.borrow();
        let other = |wish: &Signal| *wish != so && *wish != Signal::Stop;
        let wish = self.wish.wait_for(other).await.map(|wish| *wish);
        match wish {
            Ok(wish) => wish,
            Err(_gone) => std::future::pending().await,
        }
    }

    /// The wish is fulfilled.
    pub(super) fn is_so(&self, signal: Signal) {
        self.state.send_replace(signal);
    }

    /// Runs a model. While it is paused its whole thread stands still, as the threads of a process do:
    /// nothing that it has spawned goes on either.
    pub(super) async fn run_pausable<T>(mut self, model: impl Future<Output = T>) -> T {
        let mut model = pin!(model);
        loop {
            tokio::select! {
                biased;
                wish = self.next() => {
                    self.is_so(wish);
                    if wish == Signal::Pause {
                        self.stand_still();
                    }
                }
                ended = &mut model => return ended,
            }
        }
    }

    fn stand_still(&mut self) {
        let mut over = pin!(self.wish.wait_for(|wish| *wish != Signal::Pause));
        let waker = Arc::new(Unpark(thread::current())).into();
        let mut context = Context::from_waker(&waker);
        while over.as_mut().poll(&mut context).is_pending() {
            thread::park();
        }
    }
}

/// Wakes a thread that stands still.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::time::{interval, timeout};

    use super::*;

    /// A model on a thread of its own that counts, and so does what it has spawned.
    fn counts() -> (AgentHandle, Arc<AtomicUsize>, thread::JoinHandle<()>) {
        let (handle, mut control) = agent_handle();
        let count = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&count);
        let thread = thread::spawn(move || {
            super::super::run(async move {
                let beat = async move |count: Arc<AtomicUsize>| {
                    let mut ticks = interval(Duration::from_millis(1));
                    loop {
                        ticks.tick().await;
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                };
                tokio::spawn(beat(Arc::clone(&counting)));
                let running = control.clone().run_pausable(beat(counting));
                tokio::select! { () = running => {}, () = control.stopped() => {} }
            });
        });
        (handle, count, thread)
    }

    async fn goes_on(count: &AtomicUsize) {
        let so_far = count.load(Ordering::SeqCst);
        let mut ticks = interval(Duration::from_millis(1));
        let rises = async {
            while count.load(Ordering::SeqCst) == so_far {
                ticks.tick().await;
            }
        };
        timeout(Duration::from_secs(10), rises).await.unwrap();
    }

    #[tokio::test]
    async fn a_paused_model_does_nothing_at_all_until_it_may_go_on() {
        let (handle, count, thread) = counts();
        goes_on(&count).await;
        handle.signal(Signal::Pause).await.unwrap();
        // It says so just before it stands still.
        let mut ticks = interval(Duration::from_millis(30));
        ticks.tick().await;
        ticks.tick().await;
        let paused = count.load(Ordering::SeqCst);
        for _ in 0..3 {
            ticks.tick().await;
            assert_eq!(count.load(Ordering::SeqCst), paused);
        }
        handle.signal(Signal::Run).await.unwrap();
        goes_on(&count).await;
        handle.signal(Signal::Pause).await.unwrap();
        // A paused one can be ended.
        handle.kill();
        thread.join().unwrap();
    }
}
