//! What everybody who observes is asked to look before.

use std::time::{Duration, Instant};

use chainbreak_model::event::Watched;
use tokio::{
    sync::{broadcast, mpsc},
    time::timeout,
};

/// How long a barrier waits for observers, and an observer for its look: a look takes some milliseconds. What nobody has looked at by then
/// was not watched.
pub(crate) const LOOKED_WITHIN: Duration = Duration::from_secs(2);

/// A point of the run before which every observer looks and every log is read, and the history's answer from each.
#[derive(Debug, Clone)]
pub struct Barrier {
    at: Instant,
    answers: mpsc::UnboundedSender<Option<Watched>>,
}

impl Barrier {
    /// What was there, or was written, before that is to be seen before this is answered.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// The observer has looked, and has watched so far; `None` when it has not. Whether it was in time: a barrier that has gone by
    /// was passed without that look.
    pub fn answer(self, watched: Option<Watched>) -> bool {
        self.answers.send(watched).is_ok()
    }

    /// Returns when it has gone by.
    pub async fn gone_by(&self) {
        self.answers.closed().await;
    }
}

/// What observers answered to a barrier.
pub(super) struct Answers {
    /// What those that answered have watched.
    pub(super) watched: Vec<Option<Watched>>,
    /// How many were asked.
    pub(super) asked: usize,
}

impl Answers {
    pub(super) fn all_answered(&self) -> bool {
        self.watched.len() >= self.asked
    }
}

/// Asks observers, and waits for their answers as long as they have.
pub(super) async fn ask(observers: &broadcast::Sender<Barrier>, at: Instant) -> Answers {
    let (answers, mut answered) = mpsc::unbounded_channel();
    // Without observers there is nothing to wait for.
    let asked = observers.send(Barrier { at, answers }).unwrap_or_default();
    let mut watched = Vec::new();
    let all = async {
        while let Some(answer) = answered.recv().await {
            watched.push(answer);
        }
    };
    // What is missing when the time is over is counted by whoever asks.
    drop(timeout(LOOKED_WITHIN, all).await);
    Answers { watched, asked }
}
