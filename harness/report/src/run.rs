//! A recorded run, read back: everything that reports are made from.

use std::{io::BufRead, path::Path, sync::Arc};

use chainbreak_model::{
    case::{Case, Shared},
    input,
    verdict::Verdict,
};
use indexmap::IndexMap;
use jiff::Timestamp;

use crate::{
    ReportError,
    history::{History, Lines, unreadable},
    record::{Ended, FORMAT, Header, Line, OLDEST, Skipped},
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
    /// When its last case was over; `None` when it was killed, or is not over, and of an older run.
    pub finished: Option<Timestamp>,
    /// How it ended; `None` when it was killed, or is not over.
    pub ended: Option<Ended>,
    shared: Memory,
}

/// What its cases have in common, to have it once. It is no part of what a run is: a case that was not run after all is remembered, too.
#[derive(Debug, Clone, Default)]
struct Memory(Shared);

impl PartialEq for Memory {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// A case and its history.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The plan.
    pub case: Arc<Case>,
    /// What happened.
    pub history: History,
    /// What was judged when the case ended; older runs do not say.
    pub verdict: Option<Box<Verdict>>,
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
            finished: None,
            ended: None,
            shared: Memory::default(),
        }
    }

    /// Reads a run whose files are in that folder. A last line without its end is what a killed run leaves: it is
    /// dropped. Any other line that cannot be understood is an error with its number.
    pub fn read(source: impl BufRead, folder: &Path) -> Result<Self, ReportError> {
        let mut lines = Lines::of(source);
        let Some((number, line)) = lines.next().transpose()? else {
            return Err(ReportError::Empty);
        };
        let mut run = Self::new(header(number, &line)?);
        for line in lines {
            let (number, line) = line?;
            let add = |line| run.add(line, folder);
            serde_json::from_slice(&line)
                .map_err(|error| unreadable(&error))
                .and_then(add)
                .map_err(|why| ReportError::Line { line: number, why })?;
        }
        Ok(run)
    }

    /// Adds a line as [`crate::Recorder`] writes it, of a run whose files are in that folder. An error says what is wrong
    /// with it.
    pub fn add(&mut self, line: Line, folder: &Path) -> Result<(), String> {
        match line {
            Line::Planned(mut case) => {
                self.shared.0.take(&mut case);
                let recorded = Recorded {
                    case: Arc::from(case),
                    history: History::default(),
                    verdict: None,
                    artifacts: Vec::new(),
                };
                let id = recorded.case.id();
                if self.skipped.iter().any(|skipped| skipped.id == id) {
                    return Err(format!("case {id} was skipped before it was planned"));
                }
                match self.cases.insert(id.clone(), recorded) {
                    None => Ok(()),
                    Some(_) => Err(format!("case {id} is planned twice")),
                }
            }
            Line::Skipped(skipped) => {
                // One that was planned first was not run because of what another came to.
                self.cases.shift_remove(&skipped.id);
                self.skipped.push(skipped);
                Ok(())
            }
            Line::History { case, path } => {
                let inside = plain(&path)?;
                let recorded = self.case(&case)?;
                recorded.history = History::In(folder.to_owned(), inside.to_owned());
                Ok(())
            }
            Line::Event { case, event } => self.case(&case)?.history.push(event),
            Line::Judged { case, verdict } => {
                self.case(&case)?.verdict = Some(verdict);
                Ok(())
            }
            Line::Artifact { case, path } => {
                plain(&path)?;
                self.case(&case)?.artifacts.push(path);
                Ok(())
            }
            Line::Finished(at) => {
                self.finished = Some(at);
                Ok(())
            }
            Line::Ended(ended) => {
                self.ended = Some(ended);
                Ok(())
            }
        }
    }

    /// The cases that have begun.
    pub fn begun(&self) -> impl Iterator<Item = (&String, &Recorded)> {
        let cases = self.cases.iter();
        cases.filter(|(_, recorded)| recorded.history.has_begun())
    }

    /// From its beginning to the end of its last case in microseconds, where that is known; 0 where the clock was set back meanwhile.
    pub fn took_us(&self) -> Option<u64> {
        let began = self.header.started.as_microsecond();
        let took = self.finished?.as_microsecond().saturating_sub(began);
        Some(u64::try_from(took).unwrap_or(0))
    }

    fn case(&mut self, id: &str) -> Result<&mut Recorded, String> {
        self.cases
            .get_mut(id)
            .ok_or_else(|| format!("case {id} was not planned"))
    }
}

/// A path that leads nowhere but into the run's folder.
fn plain(path: &str) -> Result<&Path, String> {
    let inside = Path::new(path);
    if !input::is_plain(inside) {
        return Err(format!("{path} is not in the folder of the run"));
    }
    Ok(inside)
}

/// Looks at the format before anything else, so that a newer header is said to be newer, not broken.
fn header(line: usize, text: &[u8]) -> Result<Header, ReportError> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let wrong = |error: serde_json::Error| ReportError::Line {
        line,
        why: unreadable(&error),
    };
    let Format { format } = serde_json::from_slice(text).map_err(wrong)?;
    if !(OLDEST..=FORMAT).contains(&format) {
        return Err(ReportError::Format {
            found: format,
            known: FORMAT,
        });
    }
    serde_json::from_slice(text).map_err(wrong)
}
