//! Waiting: for a condition, with a deadline, and with a last word about what was missing.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use crate::infra_error::InfraError;

/// Distance of the first looks where nothing announces a change. Short against the 300 ms in which a lab starts.
const LOOK: Duration = Duration::from_millis(5);
/// Distance of looks at what takes long, such as a real cluster's pods.
const SELDOM: Duration = Duration::from_millis(500);
/// What is waited for is seen later by at most this part of the time that it took.
const PART: u32 = 20;

/// Looks until `look` says `Ok`, at the latest until `deadline`; then the last `Err` tells what was missing.
pub(crate) async fn until<T>(
    what: &str,
    deadline: Instant,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, InfraError> {
    let begin = Instant::now();
    let mut missing = "not looked yet".to_owned();
    let waiting = async {
        loop {
            match look().await {
                Ok(value) => return value,
                Err(still) => {
                    if still != missing {
                        tracing::debug!(what, missing = still, "waiting");
                    }
                    missing = still;
                }
            }
            let distance = (begin.elapsed() / PART).clamp(LOOK, SELDOM);
            sleep_until(Instant::now() + distance).await;
        }
    };
    match timeout_at(deadline, waiting).await {
        Ok(value) => Ok(value),
        Err(_elapsed) => Err(InfraError::new(format!("wait until {what}"), missing)),
    }
}
