//! Waiting: for a condition, with a deadline, and with a last word about what was missing.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::trouble::Trouble;

/// Distance of two looks where nothing announces a change. Short against the 300 ms in which a lab starts.
const LOOK: Duration = Duration::from_millis(5);

/// Looks until `look` says `Ok`, at the latest until `deadline`; then the last `Err` tells what was missing.
pub(crate) async fn until<T>(
    what: &str,
    deadline: Instant,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, Trouble> {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missing = "not looked yet".to_owned();
    let waiting = async {
        loop {
            ticks.tick().await;
            match look().await {
                Ok(value) => return value,
                Err(still) => {
                    if still != missing {
                        tracing::debug!(what, missing = still, "waiting");
                    }
                    missing = still;
                }
            }
        }
    };
    match timeout_at(deadline, waiting).await {
        Ok(value) => Ok(value),
        Err(_elapsed) => Err(Trouble::new(format!("wait until {what}"), missing)),
    }
}
