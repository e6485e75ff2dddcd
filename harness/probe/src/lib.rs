//! Traffic: what a probe is told and says ([`wire`]), and the probe itself ([`main`], [`run`]).
//!
//! Where it makes requests, the probe is one thread over epoll. Its schedule is absolute: request n is due
//! at start + n × distance,
//! whatever happened to the requests before. See `probe.rs` for how connections are used and closed, `asker.rs` for UDP.
//! `craft.rs` sends segments into connections of others, `conntrack.rs` makes up connections.

#[cfg(feature = "bin")]
mod answer;
#[cfg(feature = "bin")]
mod asker;
#[cfg(feature = "bin")]
pub mod clock;
#[cfg(feature = "bin")]
mod connection;
#[cfg(feature = "bin")]
mod conntrack;
#[cfg(feature = "bin")]
mod course;
#[cfg(feature = "bin")]
mod craft;
#[cfg(feature = "bin")]
mod datagram;
#[cfg(feature = "bin")]
mod error;
#[cfg(feature = "bin")]
mod output;
#[cfg(feature = "bin")]
mod ports;
#[cfg(feature = "bin")]
mod probe;
#[cfg(feature = "bin")]
mod reactor;
#[cfg(feature = "bin")]
mod socket;
#[cfg(feature = "bin")]
mod start;
pub mod wire;

#[cfg(feature = "bin")]
pub use error::ProbeError;
#[cfg(feature = "bin")]
pub use start::{main, run};
