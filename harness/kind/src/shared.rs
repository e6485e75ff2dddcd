//! What real clusters share, whoever made them: nodes and pods that are entered, agents that are stopped and restarted, their logs,
//! and the cluster behind the engine's seam.

pub(crate) mod cluster;
pub(crate) mod connect;
pub(crate) mod felix;
pub(crate) mod felix_config;
pub(crate) mod first_sync;
pub(crate) mod holding;
pub(crate) mod iptables_backend;
pub(crate) mod killing;
pub(crate) mod logs;
pub(crate) mod nodes;
pub(crate) mod pods;
pub(crate) mod program;
pub(crate) mod restart;
pub(crate) mod shells;
pub(crate) mod signal;
pub(crate) mod survey;
pub(crate) mod telling;
