//! Waiting for what the cluster is to become: with a deadline, with the last word about what was missing, and with
//! evidence.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::error::KindError;

/// Distance of two looks. What is waited for here takes seconds, but a case waits for a dozen things.
const LOOK: Duration = Duration::from_millis(100);

/// Looks until `look` says `Ok`. After `within` the last `Err` says what was missing, and `evidence` what is known
/// of it.
pub(crate) async fn until<T, L, E>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> L,
    evidence: impl FnOnce() -> E,
) -> Result<T, KindError>
where
    L: Future<Output = Result<T, String>>,
    E: Future<Output = String>,
{
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missing = "not looked yet".to_owned();
    let waiting = async {
        loop {
            ticks.tick().await;
            match look().await {
                Ok(value) => return value,
                Err(still) => missing = still,
            }
        }
    };
    match timeout(within, waiting).await {
        Ok(value) => Ok(value),
        Err(_elapsed) => Err(KindError::Wait {
            what: what.to_owned(),
            within,
            missing,
            evidence: evidence().await,
        }),
    }
}

/// How long it is until then.
pub(crate) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// What is known where nothing is, beside what was missing.
pub(crate) async fn nothing() -> String {
    String::new()
}
