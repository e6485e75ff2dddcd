//! What can go wrong with reports.

use std::{io, path::PathBuf};

/// A report could not be written, or a recorded run not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A line of a recorded run is not what it must be.
    #[error("line {line} of the run: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The file with a case's events is not there, or cannot be read.
    #[error(
        "could not read {path}: {source} (a run is its whole folder: run.jsonl names the files of its cases)"
    )]
    History {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of a case's events is not what it must be.
    #[error("{path}, line {line}: {why}")]
    Event {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The run's format is newer than this program, or not a run at all.
    #[error(
        "the run has format {found}, this chainbreak reads formats {} to {known}",
        crate::record::OLDEST
    )]
    Format {
        /// What the header says.
        found: u32,
        /// What can be read.
        known: u32,
    },
    /// There is not even a header.
    #[error("the run is empty: not even its header was written")]
    Empty,
    /// The run could not be read.
    #[error("could not read the run: {source}")]
    Read {
        /// Why.
        source: io::Error,
    },
    /// The run could not be recorded.
    #[error("could not record the run: {source}")]
    Record {
        /// Why.
        source: io::Error,
    },
    /// A report file could not be written.
    #[error("could not write {path}: {source}")]
    Write {
        /// The file that was to be.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A value could not be written as JSON.
    #[error("could not render the summary: {source}")]
    Summary {
        /// Why.
        source: serde_json::Error,
    },
    /// The JUnit library refused.
    #[error("could not render JUnit: {source}")]
    Junit {
        /// Why.
        source: junit_report::Error,
    },
}
