//! What an agent lives by: one kind of life after the other, all on the thread of its node.

use std::sync::{Arc, Mutex, PoisonError};

use chainbreak_engine::{
    cluster::Signal,
    supervisor::{Death, LifeControl, LogWriter, Supervised},
};
use futures::future::LocalBoxFuture;

/// One life of an agent, from its start to the exit of its process. It pauses and ends when it is told to.
pub(super) type Life =
    Box<dyn Fn(LogWriter, LifeControl) -> LocalBoxFuture<'static, Option<Death>> + Send>;

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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = life;
    }
}

impl Supervised for Lives {
    type Life = LocalBoxFuture<'static, Option<Death>>;

    /// It runs at once: also a program that cannot be started has run, and its log says why it ended.
    fn begin(&mut self, writer: LogWriter, control: LifeControl) -> Self::Life {
        control.is_so(Signal::Run);
        self.0.lock().unwrap_or_else(PoisonError::into_inner)(writer, control)
    }
}
