//! Reports of constructed histories, as their readers see them.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

mod astray;
mod by;
mod culprits;
mod findings;
mod golden;
mod history;
mod junit;
mod led;
mod lost_updates;
#[cfg(feature = "html")]
mod page;
mod parity;
mod presence;
mod programs;
mod progress;
mod recording;
mod removals;
mod spared;
mod standing;
mod sticky;
mod summary_file;
mod terminal;
mod text_file;
mod translated;
mod turned;
mod unwritten;
