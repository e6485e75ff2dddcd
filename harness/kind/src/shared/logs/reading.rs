//! Reading the log of one container after the other, and knowing up to when it was read. A stream over the API may hang without an error,
//! and what was written may still be on its way. So the log's newest line is asked for by itself, from time to time and when somebody waits:
//! once the stream has come so far, all that was written before the question has been read.

use std::time::Duration;

use chainbreak_engine::{entries::Entries, logbook::Writer};
use chainbreak_model::agent::LogFormat;
use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::continuity::{Container, Continuity};

/// After so long without a line an entry is complete: klog writes one at once.
const PAUSE: Duration = Duration::from_millis(100);
/// Distance of two questions for the newest line: what a moment waits for is asked for at once.
const CHECK: Duration = Duration::from_secs(1);
/// How long the API has for the newest line. A moment waits longer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// After so long without proof that it was read a log is opened again. A stream ends about a second after its container, of which nobody
/// can ask for the newest line any more.
pub(super) const GIVE_UP: Duration = Duration::from_secs(5);

/// A container's log, line by line as it is written, or why it cannot be read.
pub(super) type Lines = BoxStream<'static, Result<String, String>>;
/// The newest line of it; empty where there is none.
pub(super) type Newest = BoxFuture<'static, Result<String, String>>;

/// A log that is read in parts.
pub(super) struct Log {
    /// When what was read last was written.
    last: Timestamp,
    /// Up to when all entries are complete.
    whole: Timestamp,
    entries: Entries,
    writer: Writer,
    continuity: Continuity,
}

/// The reading of one container.
struct Part {
    /// Until it is known that it can be read.
    unopened: Option<Container>,
    /// When the newest line was asked for last.
    asked: Instant,
    /// When that was asked for, and its time, if the stream has not come so far.
    unread: Option<(Instant, Option<Timestamp>)>,
    /// When it was asked for and all before had been read.
    good: Instant,
    /// Why it could not be asked for.
    doubt: Option<String>,
    /// When what was begun is complete.
    pause: Option<Instant>,
}

impl Log {
    /// What is written from that time on is wanted.
    pub(super) fn new(since: Timestamp, format: LogFormat, writer: Writer) -> Self {
        let begun = Instant::now().into_std();
        writer.read_until(begun);
        Self {
            last: since,
            whole: since,
            entries: Entries::new(format),
            writer,
            continuity: Continuity::new(begun),
        }
    }

    /// From when on it is to be read. The API takes whole seconds, and to round up would lose the rest of this one.
    pub(super) fn since(&self) -> Timestamp {
        Timestamp::from_second(self.last.as_second()).unwrap_or(self.last)
    }

    /// No container ran when that was asked.
    pub(super) fn absent(&mut self, asked: Instant) {
        self.continuity.absent(&self.writer);
        self.continuity.read_until(asked.into_std(), &self.writer);
    }

    /// A part has ended: with its container, or for that reason.
    pub(super) fn ended(&mut self, read: Result<(), String>) {
        self.continuity.ended(read, &self.writer);
    }

    /// Reads until the container ends.
    pub(super) async fn read(
        &mut self,
        container: Container,
        mut lines: Lines,
        newest: impl Fn() -> Newest,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let mut part = Part::new(container, begun);
        let mut checks = interval(CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // A question comes first, however many lines there are.
                biased;
                _ = checks.tick() => self.check(&mut part, &newest).await?,
                () = self.writer.wanted(part.asked.into_std()) => {
                    self.check(&mut part, &newest).await?;
                }
                line = lines.next() => match line {
                    Some(line) => self.take(&mut part, &line?)?,
                    None => break,
                },
                () = passed(part.pause) => {
                    part.pause = None;
                    self.pause();
                }
            }
            self.settle(&mut part);
        }
        self.open(&mut part);
        let rest = self.entries.end();
        self.write(rest);
        self.whole = self.last;
        self.continuity.read_until(begun.into_std(), &self.writer);
        Ok(())
    }

    /// Asks for the newest line.
    async fn check(&self, part: &mut Part, newest: &impl Fn() -> Newest) -> Result<(), String> {
        part.asked = Instant::now();
        let answered = timeout(ANSWERS_WITHIN, newest()).await;
        let answered = answered.unwrap_or_else(|_elapsed| Err(unanswered(ANSWERS_WITHIN)));
        match answered.and_then(|text| text.lines().next().map(written).transpose()) {
            Ok(newest) => {
                part.unread = Some((part.asked, newest));
                part.doubt = None;
            }
            Err(why) => part.doubt = Some(why),
        }
        let is_known = matches!(part.unread, Some((_, newest)) if self.has(newest));
        if !is_known && part.asked.duration_since(part.good) > GIVE_UP {
            let stalled = || "what it says last does not come".to_owned();
            return Err(part.doubt.take().unwrap_or_else(stalled));
        }
        Ok(())
    }

    /// What was written before the last question has been read, if the stream has come so far.
    fn settle(&mut self, part: &mut Part) {
        if let Some((asked, _)) = part.unread.take_if(|(_, newest)| self.has(*newest)) {
            self.open(part);
            part.good = asked;
            self.continuity.read_until(asked.into_std(), &self.writer);
        }
    }

    fn has(&self, newest: Option<Timestamp>) -> bool {
        newest.is_none_or(|newest| newest <= self.whole)
    }

    fn open(&mut self, part: &mut Part) {
        if let Some(container) = part.unopened.take() {
            self.continuity.opened(container, &self.writer);
        }
    }

    fn take(&mut self, part: &mut Part, line: &str) -> Result<(), String> {
        let (time, text) = timed(line)?;
        self.open(part);
        part.pause = Some(Instant::now() + PAUSE);
        self.line(time, text);
        Ok(())
    }

    /// Lines that are read once more, because the log was reopened, are known.
    fn line(&mut self, time: Timestamp, text: &str) {
        if time > self.last {
            let before = std::mem::replace(&mut self.last, time);
            let complete = self.entries.line(text);
            if self.entries.is_complete() {
                self.whole = time;
            } else if complete.is_some() {
                self.whole = before;
            }
            self.write(complete);
        }
    }

    /// Nothing has come for a while.
    fn pause(&mut self) {
        let complete = self.entries.pause();
        self.write(complete);
        if self.entries.is_complete() {
            self.whole = self.last;
        }
    }

    fn write(&self, entry: Option<String>) {
        if let Some(entry) = entry {
            self.writer.write(entry);
        }
    }
}

impl Part {
    fn new(container: Container, begun: Instant) -> Self {
        Self {
            unopened: Some(container),
            asked: begun,
            unread: None,
            good: begun,
            doubt: None,
            // An entry may have begun in the part before.
            pause: Some(begun + PAUSE),
        }
    }
}

/// Why something that was not answered is not known.
pub(super) fn unanswered(within: Duration) -> String {
    format!("the API did not answer within {within:?}")
}

/// A line begins with its time. What does not is no line: the kubelet says in place of a log why there is none.
fn timed(line: &str) -> Result<(Timestamp, &str), String> {
    let (time, text) = line.split_once(' ').unwrap_or((line, ""));
    match time.parse() {
        Ok(time) => Ok((time, text)),
        Err(_no_time) => Err(line.to_owned()),
    }
}

/// When a line was written.
fn written(line: &str) -> Result<Timestamp, String> {
    timed(line).map(|(time, _)| time)
}

async fn passed(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
