//! Backend `lab`: a cluster of network namespaces on the real kernel.

pub mod addresses;
pub mod error;
pub mod kubelet;
pub mod place;
pub mod recorder;
pub mod wiring;
pub mod worker;
pub mod world;
