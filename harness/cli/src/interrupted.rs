//! What ends a run early: a signal, or a disk that takes nothing more.

use std::{io, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{Instant, sleep_until},
};

/// What was given up gets so long to set back what it changed, and what is on its way to the disk to get there.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// What asked the run to end, as `stop` is told. After that, whatever it was, a signal tells `give_up`: cases are not waited for any more.
pub(crate) async fn interrupted(
    stop: watch::Sender<bool>,
    give_up: watch::Sender<bool>,
    mut failed: watch::Receiver<Option<String>>,
) -> String {
    let Ok(mut signals) = Signals::new() else {
        return std::future::pending().await;
    };
    let why = tokio::select! {
        name = signals.next() => {
            crate::note(&format!("{name}: ending the run, reports follow; once more to give up"));
            name.to_owned()
        }
        Ok(failed) = failed.wait_for(Option::is_some) => {
            let why = failed.clone().unwrap_or_default();
            crate::note(&format!("{why}: ending the run"));
            why
        }
    };
    stop.send_replace(true);
    tokio::spawn(async move {
        let name = signals.next().await;
        crate::note(&format!("{name}: given up"));
        give_up.send_replace(true);
        sleep_until(Instant::now() + GIVEN_UP).await;
        #[expect(
            clippy::exit,
            reason = "the person gave up on an orderly end; worlds die with us"
        )]
        std::process::exit(130)
    });
    why
}

/// The signals that ask for an end.
struct Signals {
    int: Signal,
    term: Signal,
    /// The terminal is gone.
    hup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.int.recv() => "SIGINT",
            _ = self.term.recv() => "SIGTERM",
            _ = self.hup.recv() => "SIGHUP",
        }
    }
}
