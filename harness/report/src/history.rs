//! The history of a case in a run: in memory while it is short or old, else in a file of its own.

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use chainbreak_model::{
    event::{Event, EventKind},
    input,
};

use crate::ReportError;

/// So long may the events of a case be, or a line of a run: they are read as a whole.
pub const LONGEST: u64 = 256 << 20;

/// The events of a case, in order of arrival.
#[derive(Debug, Clone, PartialEq)]
pub enum History {
    /// All of them, in memory: they were in `run.jsonl`.
    Here(Vec<Event>),
    /// In a folder the file of that plain path, a line an event. They are read each time they are asked for: of a run with
    /// thousands of cases one case is in memory at a time.
    In(PathBuf, PathBuf),
}

impl Default for History {
    fn default() -> Self {
        Self::Here(Vec::new())
    }
}

impl History {
    /// Reads them. A last line without its end is what a killed run leaves: it is dropped.
    pub fn events(&self) -> Result<Cow<'_, [Event]>, ReportError> {
        match self {
            Self::Here(events) => Ok(Cow::Borrowed(events)),
            Self::In(folder, path) => each(folder, path)?
                .collect::<Result<_, _>>()
                .map(Cow::Owned),
        }
    }

    /// Reads them as far as they can be read; that there are more is the last of them, as trouble. Of a run with thousands of
    /// cases one is inconclusive then, and the others have their verdicts.
    pub(crate) fn readable(&self) -> Cow<'_, [Event]> {
        match self {
            Self::Here(events) => Cow::Borrowed(events),
            Self::In(folder, path) => Cow::Owned(readable(folder, path)),
        }
    }

    /// Whether its case has begun: it has a file then, or said something.
    pub fn has_begun(&self) -> bool {
        *self != Self::default()
    }

    /// Adds an event that is in `run.jsonl`. An error says that the others are elsewhere.
    pub(crate) fn push(&mut self, event: Event) -> Result<(), String> {
        match self {
            Self::Here(events) => {
                events.push(event);
                Ok(())
            }
            Self::In(_, path) => Err(format!("its case's events are in {}", path.display())),
        }
    }
}

fn readable(folder: &Path, path: &Path) -> Vec<Event> {
    let mut events = Vec::new();
    let trouble = match each(folder, path) {
        Ok(mut lines) => lines.find_map(|event| event.map(|event| events.push(event)).err()),
        Err(error) => Some(error),
    };
    if let Some(error) = trouble {
        let at_us = events.iter().map(|event: &Event| event.at_us).max();
        let text = error.to_string();
        events.push(Event {
            at_us: at_us.unwrap_or(0),
            what: EventKind::Trouble { text },
        });
    }
    events
}

/// The events in a case's file of that plain path in a folder, one after the other.
pub fn each(
    folder: &Path,
    path: &Path,
) -> Result<impl Iterator<Item = Result<Event, ReportError>> + use<>, ReportError> {
    let opened = input::open_below(folder, path, LONGEST);
    let path = folder.join(path);
    let file = match opened {
        Ok(file) => file,
        Err(source) => return Err(ReportError::History { path, source }),
    };
    let event = move |(number, line): (usize, Vec<u8>)| {
        serde_json::from_slice(&line).map_err(|error| ReportError::Event {
            path: path.clone(),
            line: number,
            why: unreadable(&error),
        })
    };
    let lines = Lines::of(BufReader::new(file));
    Ok(lines.map(move |line| line.and_then(&event)))
}

/// Why a line is no JSON, or not what it must be. It is the only one that was read: what the library says of lines is about others.
pub(crate) fn unreadable(error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    let place = format!(" at line {} column {column}", error.line());
    match text.strip_suffix(&place) {
        Some(what) => format!("{what} (column {column})"),
        None => text,
    }
}

/// The whole lines of a file with their numbers, from 1.
pub(crate) struct Lines<R> {
    source: R,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn of(source: R) -> Self {
        Self { source, number: 0 }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<(usize, Vec<u8>), ReportError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        let mut bounded = self.source.by_ref().take(LONGEST);
        if let Err(source) = bounded.read_until(b'\n', &mut line) {
            return Some(Err(ReportError::Read { source }));
        }
        if line.len() as u64 == LONGEST {
            let source = io::Error::other(format!("a line has more than {LONGEST} bytes"));
            return Some(Err(ReportError::Read { source }));
        }
        self.number += 1;
        (line.pop() == Some(b'\n')).then_some(Ok((self.number, line)))
    }
}
