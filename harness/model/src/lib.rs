//! The scenario language: read, check, plan, history and judge. Pure: no clock, no process, no
//! randomness that it is not given.
//!
//! [`scenario_files`] finds files; [`load`] or [`read`] gives a [`scenario::Scenario`] or every mistake
//! of it; [`plan()`] gives the [`case::Case`]s to run and the ones to skip; [`judge`] gives the
//! [`verdict::Verdict`] of a case's history.

pub mod agent;
pub mod agents;
pub mod case;
pub mod event;
pub mod input;
pub mod matrix;
pub mod mutation;
pub mod names;
pub mod plan;
pub mod pod_network;
pub mod scenario;
pub mod verdict;
pub mod version;

mod diagnostic;
mod felix;
mod files;
mod hidden;
mod judge;
mod language;
mod nearest;
mod proxy_config;
mod read;
mod yaml;

pub use diagnostic::{Diagnostic, Diagnostics};
pub use files::{FolderError, is_yaml, nearest_file, scenario_files};
pub use hidden::is_hidden;
pub use judge::{Asked, Judge, judge};
pub use language::{reference, schema};
pub use nearest::suggest;
pub use plan::{list, plan};
pub use read::{is_name, load, parse_duration, read};
