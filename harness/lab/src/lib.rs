//! Backend `lab`: a cluster without images or containers, on the real kernel.
//!
//! [`worker`] makes a process the worker of a world of its own; there [`Lab`] raises a case: the
//! [`world`]'s places and their [`wiring`], the Kubernetes API with its controllers, the [`kubelet`]
//! that gives pods places and runs their containers, and the agents, whose commands the [`recorder`]
//! writes down ([`shims`] tell it of those of real ones). [`registry`] looks into a running world from
//! outside. [`machine`] changes what all worlds share, where that was allowed, and sets it back.

mod agents;
mod api;
mod cni;
mod controllers;
mod factory;
mod facts;
pub mod families;
mod hosts;
mod lab;
mod limits;
mod links;
mod neighbours;
mod parts;
mod scheduling;
mod survey;

pub mod addresses;
pub mod ebpf;
pub mod error;
pub mod kubelet;
pub mod machine;
pub mod place;
pub mod pools;
pub mod process;
pub mod recorder;
pub mod registry;
pub mod shims;
pub mod wiring;
pub mod worker;
pub mod world;

pub use worker::group::remove_left as remove_left_cgroups;

pub use agents::identity::{Identity, identify};
pub use factory::LabFactory;
pub use lab::Lab;
