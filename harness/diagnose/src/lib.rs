//! What is wrong with a node, by what people attach of it: listings of rules, connections, routes and settings, agents' logs, Kubernetes
//! objects. Pure: what is read, nobody here reads from anywhere.
//!
//! - [`Evidence`] is what was attached, recognised by what is in it.
//! - [`writers`] says who wrote the rules, in which mode and by which releases.
//! - [`examine`] says what does not fit together.
//! - [`Likeness`] says how much of it is as in an incident that is known by its signs.
//! - [`Reproduction`] is a scenario of it.

mod checks;
mod evidence;
mod finding;
mod hints;
mod likeness;
mod logs;
mod nat_map;
mod objects;
mod observed;
mod printed;
mod reproduction;
mod services;
mod tables;
mod writers;

pub use checks::{Examined, examine, last_beginning};
pub use evidence::Evidence;
pub use finding::{Complaint, Finding, Weight};
pub use likeness::{Likeness, Sight};
pub use logs::Log;
pub use nat_map::has_model_of_programs;
pub use objects::{Objects, Places};
pub use observed::{Fate, Observed, Whose, seen};
pub use reproduction::Reproduction;
pub use writers::{Writer, writers};
