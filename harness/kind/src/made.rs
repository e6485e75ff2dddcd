//! Clusters that kind makes, and deletes or keeps for who needs the same one.
//!
//! [`backend::KindBackend`] finds or makes the cluster that a case needs; what is [pinned](crate::versions) decides which. A cluster of ours is
//! known by its name, its [`journal`] entry and a label; no other is ever touched. [`clean`] finds what a killed run left.

mod agents;
mod backend;
mod balancers;
mod clean;
mod end;
mod factory;
mod fitting;
mod iptables_backend;
mod journal;
mod objects;
mod owned_cluster;
mod standing;
mod state;
mod survey;
mod upgrades;

pub(crate) mod calico;
pub(crate) mod config;
pub(crate) mod crds;
pub(crate) mod docker;
pub(crate) mod hosts;
pub(crate) mod images;
pub(crate) mod leftovers;
pub(crate) mod raise;
mod running;
pub(crate) mod spec;

pub use factory::KindFactory;
