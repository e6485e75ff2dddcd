//! A recorded run, read back: everything that reports are made from.

use std::io::BufRead;

use chainbreak_model::{case::Case, event::Event};
use indexmap::IndexMap;

use crate::{
    ReportError,
    record::{Ended, FORMAT, Header, Line, Skipped},
};

/// A run: what was planned, what happened, how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What was known at the beginning.
    pub header: Header,
    /// Cases in the order of the plan, by id.
    pub cases: IndexMap<String, Recorded>,
    /// Cases that were not run.
    pub skipped: Vec<Skipped>,
    /// How it ended; `None` when it was killed, or is not over.
    pub ended: Option<Ended>,
}

/// A case and its history.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The plan.
    pub case: Case,
    /// The history, in order of arrival.
    pub events: Vec<Event>,
    /// Files kept, relative to the folder of the run.
    pub artifacts: Vec<String>,
}

impl Run {
    /// A run that has only just begun.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            cases: IndexMap::new(),
            skipped: Vec::new(),
            ended: None,
        }
    }

    /// Reads a run. A last line without its end is what a killed run leaves: it is dropped. Any other line
    /// that cannot be understood is an error with its number.
    pub fn read(mut source: impl BufRead) -> Result<Self, ReportError> {
        let mut number = 0;
        let mut next = || -> Result<Option<(usize, Vec<u8>)>, ReportError> {
            let mut line = Vec::new();
            source
                .read_until(b'\n', &mut line)
                .map_err(|source| ReportError::Read { source })?;
            number += 1;
            Ok((line.pop() == Some(b'\n')).then_some((number, line)))
        };
        let Some((number, line)) = next()? else {
            return Err(ReportError::Empty);
        };
        let mut run = Self::new(header(number, &line)?);
        while let Some((number, line)) = next()? {
            let add = |line| run.add(line);
            serde_json::from_slice(&line)
                .map_err(|error| error.to_string())
                .and_then(add)
                .map_err(|why| ReportError::Line { line: number, why })?;
        }
        Ok(run)
    }

    /// Adds a line as [`crate::Recorder`] writes it. An error says what is wrong with it.
    pub fn add(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Planned(case) => {
                let recorded = Recorded {
                    case: *case,
                    events: Vec::new(),
                    artifacts: Vec::new(),
                };
                let id = recorded.case.id();
                match self.cases.insert(id.clone(), recorded) {
                    None => Ok(()),
                    Some(_) => Err(format!("case {id} is planned twice")),
                }
            }
            Line::Skipped(skipped) => {
                self.skipped.push(skipped);
                Ok(())
            }
            Line::Event { case, event } => self.case(&case).map(|case| case.events.push(event)),
            Line::Artifact { case, path } => self.case(&case).map(|case| case.artifacts.push(path)),
            Line::Ended(ended) => {
                self.ended = Some(ended);
                Ok(())
            }
        }
    }

    fn case(&mut self, id: &str) -> Result<&mut Recorded, String> {
        self.cases
            .get_mut(id)
            .ok_or_else(|| format!("case {id} was not planned"))
    }
}

/// Looks at the format before anything else, so that a newer header is said to be newer, not broken.
fn header(line: usize, text: &[u8]) -> Result<Header, ReportError> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let wrong = |error: serde_json::Error| ReportError::Line {
        line,
        why: error.to_string(),
    };
    let Format { format } = serde_json::from_slice(text).map_err(wrong)?;
    if format != FORMAT {
        return Err(ReportError::Format {
            found: format,
            known: FORMAT,
        });
    }
    serde_json::from_slice(text).map_err(wrong)
}
