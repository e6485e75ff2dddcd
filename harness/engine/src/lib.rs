//! The run loop over the one seam ([`cluster`]): apply manifests, drive traffic, observe, append to
//! the history.

mod answered_by;
pub mod backend;
mod census;
pub mod cluster;
mod dumps;
mod endpoints;
pub mod entries;
pub mod evidence;
#[cfg(test)]
mod fake;
mod faults;
mod felix_config;
mod first_sync;
pub mod fnv;
mod follow;
pub mod gate;
mod infra_error;
pub mod load_balancer;
pub mod log;
pub mod logbook;
mod looks;
pub mod manifests;
mod nat_maps;
mod network;
pub mod nginx;
mod observe;
mod output;
mod ready;
pub mod rehearsal;
pub mod run;
pub mod shell;
pub mod standing_shell;
mod starvation;
pub mod supervisor;
pub mod timeline;
mod traffic;
pub mod vpc_cni;
mod wait;
