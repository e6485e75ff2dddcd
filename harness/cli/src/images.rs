//! Images of agents: which one a version comes in, and what is pulled when.

#[cfg(feature = "images")]
mod pulled;

#[cfg(feature = "images")]
pub(crate) use pulled::{Images, named, of_version, pull};

/// What becomes of an image that is named and is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Its agent has the version that is written: nothing runs.
    Left,
    /// It is pulled.
    Pulled,
}
