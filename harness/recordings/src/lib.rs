//! What a real kube-proxy did in random worlds, kept, and played again against its model.
//!
//! - [`file`] is how a recording is kept: the worlds of one release and mode, compressed.
//! - [`Standing`] is what stands in the kernel, place by place; [`differences`] compares two of them as far as kube-proxy
//!   itself decides it.
//! - [`replay`] lets the model live through a recorded world, in virtual time and on a kernel in memory
//!   ([`Kernel`]), and says where the two part.
//! - [`choose`] picks the worlds that are worth keeping by what they show of the model.
//!
//! Pure but for reading and writing files: no process, no clock and no socket is used, so recordings are
//! replayed where no real kube-proxy can be had.

pub mod choose;
mod compare;
pub mod file;
mod kernel;
pub mod logs;
mod replay;
mod shape;
mod stage;
mod standing;
mod world;

pub use self::{
    compare::{BY_CIDRS, Spelling, differences},
    kernel::Kernel,
    replay::{Difference, Outcome, replay},
    standing::{Delta, Standing},
    world::{IptablesBackend, Mode, Operation, Round, Setup, World},
};
