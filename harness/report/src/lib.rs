//! Reports: pure functions of plan, history and verdict. No clock, no process.
//!
//! - [`Recorder`] writes `run.jsonl` as the run goes on, [`Run::read`] reads it back.
//! - [`attribution`] says who did it, by what is missing, and [`walked`] by what becomes of packets,
//!   `astray` where rules lead them that the API no longer names;
//!   [`finding`] has what is found of a promise, [`timeline`] the story: values.
//!   `culprits` holds it against whom the scenario names.
//! - [`drops`] ranks the rules in which packets ended.
//! - [`summary`] puts them beside the verdict, `head` what stands around them. `words` makes lines of them, which
//!   [`term`], [`text_file`] and [`junit`] lay out; `html` (a feature) makes a page of the values, [`SummaryFile`] a JSON document,
//!   [`github`] annotations and the summary of a step.
//! - [`parity`] compares two runs.
//! - [`Progress`] is the live view of a case; [`exit_code`] the last word.

mod astray;
pub mod attribution;
pub mod commands;
mod culprits;
mod deaf;
pub mod deeds;
mod done;
pub mod drops;
pub mod edits;
mod endpoints;
mod error;
mod exit;
mod explain;
mod file;
pub mod finding;
mod flight;
pub mod gaps;
pub mod github;
mod head;
pub mod history;
#[cfg(feature = "html")]
pub mod html;
pub mod junit;
mod led;
pub mod log_finding;
mod meanwhile;
pub mod network;
pub mod outcome;
pub mod parity;
mod presence;
pub mod programs;
mod progress;
mod rebuilt;
mod record;
mod repeats;
mod rounds;
mod ruled;
mod run;
mod spared;
mod standing;
mod sticky;
pub mod summary;
mod summary_file;
pub mod term;
pub mod text;
pub mod text_file;
pub mod timeline;
mod translated;
mod undone;
mod unwritten;
pub mod walked;
mod words;

pub use error::ReportError;
pub use exit::exit_code;
pub use file::{WholeFile, write_atomically};
pub use history::{History, LONGEST};
pub use progress::Progress;
pub use record::{Ended, FORMAT, Header, Line, Recorder, Skipped};
pub use run::{Recorded, Run};
pub use summary_file::SummaryFile;
