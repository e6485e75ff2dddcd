//! `run.jsonl`: plan, verdicts and end of a run, one JSON value a line, appended as it happens. The first line is the
//! header; everything else may come in any order, but a case is planned before its events. These are in a file of the
//! case, a line an event, or in `run.jsonl` itself, as in format 1. Verdicts follow from plan and history, and are
//! judged again when reports are rendered.

use std::io::Write;

use chainbreak_model::{case::Case, event::Event, verdict::Verdict};
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ReportError;

/// The format that this version writes.
pub const FORMAT: u32 = 2;
/// The oldest format that this version reads: all events in `run.jsonl`, no verdicts.
pub(crate) const OLDEST: u32 = 1;

/// The first line: everything about the run that was known when it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// `chainbreak 0.1.0`.
    pub tool: String,
    /// The run's seed.
    pub seed: u64,
    /// When it began.
    pub started: Timestamp,
    /// Facts about the machine: `kernel`, `iptables`, ….
    #[serde(default)]
    pub host: IndexMap<String, String>,
}

/// A line after the first one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// A case that will run.
    Planned(Box<Case>),
    /// A case that will not run.
    Skipped(Skipped),
    /// A case begins, and its events are in a file.
    History {
        /// The case's id.
        case: String,
        /// Relative to the folder of the run.
        path: String,
    },
    /// Something happened in a case.
    Event {
        /// The case's id.
        case: String,
        /// What and when.
        event: Event,
    },
    /// A case came to its end, and what was judged.
    Judged {
        /// The case's id.
        case: String,
        /// With its evidence.
        verdict: Box<Verdict>,
    },
    /// A file was kept for a case.
    Artifact {
        /// The case's id.
        case: String,
        /// Relative to the folder of the run.
        path: String,
    },
    /// The last case is over: when.
    Finished(Timestamp),
    /// The run ended, and nothing follows. Without this line it was killed.
    Ended(Ended),
}

/// A case that did not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Skipped {
    /// The case's id.
    pub id: String,
    /// The missing capability.
    pub reason: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Every case came to its end.
    Complete,
    /// It was stopped, and by what: `SIGINT`, ….
    Interrupted(String),
}

/// Appends a run to a file as it happens. Each line is written in one piece and flushed, so a reader sees
/// whole lines, but for the last one of a run that was killed.
#[derive(Debug)]
pub struct Recorder<W: Write> {
    sink: W,
}

impl<W: Write> Recorder<W> {
    /// Writes the header.
    pub fn begin(sink: W, header: &Header) -> Result<Self, ReportError> {
        let mut recorder = Self { sink };
        recorder.write(header)?;
        Ok(recorder)
    }

    /// Appends a line.
    pub fn append(&mut self, line: &Line) -> Result<(), ReportError> {
        self.write(line)
    }

    fn write(&mut self, value: &impl Serialize) -> Result<(), ReportError> {
        let record = |source| ReportError::Record { source };
        let mut line = serde_json::to_vec(value).map_err(|error| record(error.into()))?;
        line.push(b'\n');
        self.sink
            .write_all(&line)
            .and_then(|()| self.sink.flush())
            .map_err(record)
    }
}
