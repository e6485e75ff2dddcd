//! What can fail in the probe itself. What fails on the network is an [`crate::wire::Outcome`].

use std::io;

/// The probe could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No line came, or it is no order.
    #[error("could not read the order: {source}")]
    Order {
        /// Why.
        source: serde_json::Error,
    },
    /// An order that nobody can carry out.
    #[error("the order's {field} must be between 1 µs and 1 h, not {value} µs")]
    OutOfRange {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A system call that never fails failed.
    #[error("could not {what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Nobody reads the reports any more.
    #[error("could not write reports: {source}")]
    Output {
        /// Why.
        source: io::Error,
    },
}

impl ProbeError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(nix::Error) -> Self {
        move |errno| Self::System {
            what,
            source: errno.into(),
        }
    }
}
