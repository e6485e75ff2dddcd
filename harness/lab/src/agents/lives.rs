//! What an agent lives by: one kind of life after the other, all on the thread of its node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chainbreak_agents::step::Command;
use chainbreak_engine::{
    cluster::Signal,
    supervisor::{Death, LifeControl, LogWriter, Supervised},
};
use futures::future::LocalBoxFuture;

/// One life of an agent, from its start to the exit of its process. It pauses and ends when it is told to.
type Live = Box<dyn Fn(LogWriter, LifeControl) -> LocalBoxFuture<'static, Option<Death>> + Send>;

/// How an agent lives in one version of it.
pub(super) struct Life {
    live: Live,
    lost_with_pod: Option<Command>,
}

impl Life {
    pub(super) fn new(
        live: impl Fn(LogWriter, LifeControl) -> LocalBoxFuture<'static, Option<Death>> + Send + 'static,
    ) -> Self {
        Self {
            live: Box::new(live),
            lost_with_pod: None,
        }
    }

    /// A model's: what the end of its pod does to the node, where what it pins is in a file system of the pod's own.
    pub(super) fn losing(self, lost_with_pod: Option<Command>) -> Self {
        Self {
            lost_with_pod,
            ..self
        }
    }
}

/// What an agent lives by, which another version of it replaces.
#[derive(Clone)]
pub(super) struct Lives(Arc<Mutex<Life>>);

impl std::fmt::Debug for Lives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lives")
    }
}

impl Lives {
    pub(super) fn new(life: Life) -> Self {
        Self(Arc::new(Mutex::new(life)))
    }

    /// The next life is this one.
    pub(super) fn replace(&self, life: Life) {
        *self.life() = life;
    }

    /// What is lost with the pod as long as the life is this one.
    pub(super) fn lost_with_pod(&self) -> Option<Command> {
        self.life().lost_with_pod.clone()
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervised for Lives {
    type Life = LocalBoxFuture<'static, Option<Death>>;

    /// It runs at once: also a program that cannot be started has run, and its log says why it ended.
    fn begin(&mut self, writer: LogWriter, control: LifeControl) -> Self::Life {
        control.is_so(Signal::Run);
        (self.life().live)(writer, control)
    }
}
