//! What a container says, heard while it runs.

use std::{sync::Arc, time::Duration};

use tokio::{
    process::{ChildStderr, ChildStdout},
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use super::{
    containers::{Container, hear},
    pod::Ending,
};

/// How much of what a container says on standard error is kept for the case that it fails.
const WORDS: usize = 4096;
/// How long what an ended container said may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a container says; of what it says on standard error the last is told when it fails.
pub(super) struct Words {
    reading: JoinHandle<String>,
    /// Dropped when nobody wants to hear more.
    enough: oneshot::Sender<()>,
}

impl Words {
    pub(super) fn of(
        streams: (Option<ChildStdout>, Option<ChildStderr>),
        known: Arc<Container>,
    ) -> Self {
        let (enough, told) = oneshot::channel();
        let reading = tokio::spawn(async move { words(streams, &known, told).await });
        Self { reading, enough }
    }

    /// What the ended container said last. A process that left the container's group outlives it and may hold
    /// its standard error open: the wait has a limit, and ends when the container is told to end.
    pub(super) async fn last(mut self, end: &mut watch::Receiver<Ending>) -> String {
        tokio::select! {
            words = &mut self.reading => return words.unwrap_or_default(),
            () = sleep_until(Instant::now() + LAST_WORDS) => {}
            _ = end.wait_for(|end| *end != Ending::Not) => {}
        }
        drop(self.enough);
        self.reading.await.unwrap_or_default()
    }
}

/// The last of what comes on standard error, until the end or until it is enough.
async fn words(
    (stdout, stderr): (Option<ChildStdout>, Option<ChildStderr>),
    known: &Container,
    enough: oneshot::Receiver<()>,
) -> String {
    let mut words = Vec::new();
    let output = async {
        if let Some(stdout) = stdout {
            hear(stdout, known, |_| ()).await;
        }
    };
    let errors = async {
        if let Some(stderr) = stderr {
            let keep = |bytes: &[u8]| {
                words.extend_from_slice(bytes);
                words.drain(..words.len().saturating_sub(WORDS));
            };
            hear(stderr, known, keep).await;
        }
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(output, errors) } => {}
        _ = enough => {}
    }
    String::from_utf8_lossy(&words).into_owned()
}
