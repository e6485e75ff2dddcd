//! Backends `kind` and `cluster`: real clusters in Docker containers, and somebody's own; with the real kube-proxy and, where a case has Calico, the real Felix
//! or its model.
//!
//! [`Kind`] finds or makes the cluster that a case needs; what is [pinned](versions) decides which. A cluster of ours is known by
//! its name, its [`journal`] entry and a label; no other is ever touched. [`clean`] finds what a killed run left.

mod backend;
mod calico;
mod check;
mod cluster;
mod config;
mod crds;
mod docker;
mod factory;
mod felix;
mod felix_config;
mod hash;
mod hosts;
mod images;
mod iptables_backend;
mod leftovers;
mod logs;
mod name;
mod nodes;
mod owned_cluster;
mod pods;
mod program;
mod raise;
mod restart;
#[cfg(test)]
mod served;
mod signal;
mod spec;
mod survey;
mod tool;
mod wait;

pub mod agent;
pub mod clean;
pub mod error;
pub mod existing;
pub mod journal;
pub mod versions;

pub use backend::Kind;
pub use calico::Way;
pub use check::{Checked, Pinned};
pub use factory::KindFactory;
pub use name::ClusterName;
pub use spec::Options;
