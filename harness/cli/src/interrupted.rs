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
    /// A terminal that was closed; `None` where `nohup` says that this ends nothing.
    hup: Option<Signal>,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let hup = (!is_ignored(SignalKind::hangup()))
            .then(|| signal(SignalKind::hangup()))
            .transpose()?;
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup,
        })
    }

    async fn next(&mut self) -> &'static str {
        let Self { int, term, hup } = self;
        let closed = async {
            match hup {
                Some(hup) => hup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = int.recv() => "SIGINT",
            _ = term.recv() => "SIGTERM",
            _ = closed => "SIGHUP",
        }
    }
}

/// Whether a signal was to be ignored when this process was started.
fn is_ignored(signal: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set & (1 << (signal.as_raw_value() - 1)) != 0)
}
