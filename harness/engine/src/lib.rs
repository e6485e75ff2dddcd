//! The run loop over the one seam ([`cluster`]): apply manifests, drive traffic, observe, append to
//! the history.

pub mod cluster;
pub mod log;
