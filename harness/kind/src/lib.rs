//! Backends `kind` and `cluster`: real clusters in Docker containers, and somebody's own; with the real kube-proxy and, where a case has Calico, the real Felix
//! or its model.
//!
//! [`made`] has the clusters that kind makes, [`existing`] somebody's cluster, and `shared` what real clusters share.

mod check;
#[cfg(test)]
mod fake_programs;
mod hash;
mod name;
#[cfg(test)]
mod served;
mod shared;
mod tool;
mod wait;

pub mod agent;
pub mod error;
pub mod existing;
pub mod held;
pub mod made;
pub mod versions;

pub use check::{Checked, Pinned};
pub use name::ClusterName;
