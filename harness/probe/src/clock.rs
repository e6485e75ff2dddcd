//! The one clock that every process of a machine shares.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, in microseconds: what [`crate::wire::Report::Started`] carries.
pub fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC can be read");
    let micros = now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000;
    u64::try_from(micros).expect("CLOCK_MONOTONIC is not negative")
}
