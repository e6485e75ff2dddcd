//! Reports on their way out: collected for a moment, then written by a thread of their own, so that a
//! reader that is slow for a while delays no request.

use std::{
    io::{self, Write},
    mem,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use serde::Serialize;

use crate::{error::ProbeError, wire::Report};

/// Writes a report at once, unbuffered: for low-volume output.
pub(crate) fn say(out: &mut impl Write, report: &impl Serialize) -> Result<(), ProbeError> {
    let mut line = serde_json::to_vec(report).expect("reports are plain JSON");
    line.push(b'\n');
    let written = out.write_all(&line).and_then(|()| out.flush());
    written.map_err(|source| ProbeError::Output { source })
}

/// Reports are at most this old when they are written.
const FLUSH_US: u64 = 20_000;

/// Writes reports as JSON lines.
#[derive(Debug)]
pub(crate) struct Output {
    lines: Vec<u8>,
    /// When the oldest line came, while there is one.
    since_us: Option<u64>,
    /// A sample was said.
    began: bool,
    chunks: mpsc::Sender<Vec<u8>>,
    writer: JoinHandle<io::Result<()>>,
}

impl Output {
    /// Starts the writing thread.
    pub(crate) fn new(mut out: impl Write + Send + 'static) -> Self {
        let (chunks, received) = mpsc::channel::<Vec<u8>>();
        let writer = thread::spawn(move || {
            for chunk in received {
                out.write_all(&chunk)?;
                out.flush()?;
            }
            Ok(())
        });
        Self {
            lines: Vec::new(),
            since_us: None,
            began: false,
            chunks,
            writer,
        }
    }

    /// Appends a report.
    pub(crate) fn say(&mut self, report: &Report, now_us: u64) {
        serde_json::to_writer(&mut self.lines, report).expect("reports are plain JSON");
        self.lines.push(b'\n');
        self.since_us.get_or_insert(now_us);
        // Whoever started the run waits to see that it goes: the first sample is due at once.
        if !self.began && matches!(report, Report::Sample(_)) {
            self.began = true;
            self.since_us = Some(0);
        }
    }

    /// When lines must be handed over at the latest.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.since_us.map(|since| since + FLUSH_US)
    }

    /// Hands lines over for writing if they are old enough; false when nobody reads any more.
    pub(crate) fn flush_if_due(&mut self, now_us: u64) -> bool {
        match self.due_us() {
            Some(due) if due <= now_us => self.flush(),
            _ => true,
        }
    }

    /// Hands all lines over for writing; false when nobody reads any more.
    pub(crate) fn flush(&mut self) -> bool {
        self.since_us = None;
        let capacity = self.lines.capacity();
        let lines = mem::replace(&mut self.lines, Vec::with_capacity(capacity));
        self.chunks.send(lines).is_ok()
    }

    /// Waits until everything is written.
    pub(crate) fn finish(mut self) -> Result<(), ProbeError> {
        self.flush();
        drop(self.chunks);
        let written = self
            .writer
            .join()
            .expect("the writing thread does not panic");
        written.map_err(|source| ProbeError::Output { source })
    }
}
