//! `run.jsonl`: the whole run, one JSON value a line, appended as it happens. The first line is the
//! header; everything else may come in any order, but a case is planned before its events. There are no
//! verdicts in it: they follow from plan and history, and are judged again when reports are rendered.

use std::io::Write;

use chainbreak_model::{case::Case, event::Event};
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ReportError;

/// The format that this version writes and reads.
pub const FORMAT: u32 = 1;

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
    /// Something happened in a case.
    Event {
        /// The case's id.
        case: String,
        /// What and when.
        event: Event,
    },
    /// A file was kept for a case.
    Artifact {
        /// The case's id.
        case: String,
        /// Relative to the folder of the run.
        path: String,
    },
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

    /// Appends an event of a case.
    pub fn event(&mut self, case: &str, event: &Event) -> Result<(), ReportError> {
        // Borrowed twin of `Line::Event`: events are many and big, none is copied to be written.
        #[derive(Serialize)]
        #[serde(rename_all = "kebab-case")]
        enum Borrowed<'a> {
            Event { case: &'a str, event: &'a Event },
        }
        self.write(&Borrowed::Event { case, event })
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
