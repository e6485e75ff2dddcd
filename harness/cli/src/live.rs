//! Progress while cases run: in a terminal a line for each case that is over, above one that moves; elsewhere only the lines. Each begins
//! with the seconds since the run began.

use std::{
    io::IsTerminal,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use chainbreak_engine::{log::micros, timeline};
use chainbreak_model::{case::Case, event::Event, verdict::CaseVerdict};
use chainbreak_report::{
    Progress,
    text::{clock, cut_within, length, shown},
};
use indexmap::IndexMap;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::course::Amount;

/// How often a terminal's line is drawn.
const DRAW: Duration = Duration::from_millis(100);
/// A case's name is not cut shorter than this; then the line is as long as it is.
const NAME: usize = 24;

/// What stands before the moving line, and a column that stays free.
const SPINNER: usize = 3;

/// Where progress goes.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    /// None says nothing.
    amount: Option<Amount>,
    bar: Option<ProgressBar>,
    state: Arc<Mutex<State>>,
}

/// How far the run is.
#[derive(Debug)]
struct State {
    began: Instant,
    planned: Cases,
    over: Cases,
    failed: usize,
    /// What runs, the oldest first, each with what it is doing.
    running: IndexMap<String, String>,
}

/// How many, and for how long they are judged together.
#[derive(Debug, Default)]
struct Cases {
    number: usize,
    length: Duration,
}

impl Cases {
    fn add(&mut self, length: Duration) {
        self.number += 1;
        self.length += length + BESIDE;
    }
}

/// What a case takes beside the time in which it is judged, about.
const BESIDE: Duration = Duration::from_secs(3);

impl Live {
    /// As much as is asked for, from now on: none is nothing.
    pub(crate) fn new(amount: Option<Amount>) -> Self {
        let moves = amount.is_some() && std::io::stderr().is_terminal();
        let bar = moves.then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_invalid| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(DRAW);
            bar
        });
        let state = State {
            began: Instant::now(),
            planned: Cases::default(),
            over: Cases::default(),
            failed: 0,
            running: IndexMap::new(),
        };
        Self {
            amount,
            bar,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Cases that will run, as long as each is judged.
    pub(crate) fn plan(&self, lengths: impl IntoIterator<Item = Duration>) {
        let mut state = self.state();
        lengths.into_iter().for_each(|it| state.planned.add(it));
    }

    /// The display of one case, from its start on.
    pub(crate) fn case(&self, case: &Case) -> CaseLive {
        let id = case.id();
        let progress = Progress::default();
        self.state().running.insert(id.clone(), progress.line());
        CaseLive {
            id,
            length: timeline::length(&case.timeline),
            progress,
            live: self.clone(),
        }
    }

    /// A line that stays.
    fn tell(&self, text: &str) {
        if self.amount.is_none() {
            return;
        }
        let since = clock(micros(self.state().began.elapsed()));
        let line = format!("{since:>8}  {text}");
        match &self.bar {
            Some(bar) => bar.println(shown(&line)),
            None => crate::note(&line),
        }
    }

    fn draw(&self) {
        if let Some(bar) = &self.bar {
            let state = self.state();
            bar.set_message(shown(&state.line(state.began.elapsed(), width())));
        }
    }

    /// Nothing moves any more.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `3/14 · 1 failed · 40 s left · case: judging 2.1 s`: of what runs, the oldest is what is waited for.
    fn line(&self, since: Duration, width: Option<usize>) -> String {
        let mut line = format!("{}/{}", self.over.number, self.planned.number);
        if self.failed > 0 {
            line.extend([" · ", &self.failed.to_string(), " failed"]);
        }
        if let Some(left) = self.left(since) {
            line.extend([" · ", &length(micros(left)), " left"]);
        }
        if let Some((id, doing)) = self.running.first() {
            let beside = SPINNER + line.chars().count() + " · ".chars().count() + ": ".len();
            let id = within(id, width, beside + doing.chars().count());
            line.extend([" · ", &id, ": ", doing]);
        }
        line
    }

    /// What is left to do, at the speed up to now, in whole seconds.
    fn left(&self, since: Duration) -> Option<Duration> {
        let done = self.over.length.as_secs_f64();
        let all = self.planned.length.as_secs_f64();
        let seconds = since.as_secs_f64() * (all - done) / done;
        let seconds = Duration::try_from_secs_f64(seconds.ceil()).ok()?;
        (self.over.number < self.planned.number).then_some(seconds)
    }
}

/// The display of one case.
#[derive(Debug)]
pub(crate) struct CaseLive {
    id: String,
    length: Duration,
    progress: Progress,
    live: Live,
}

impl CaseLive {
    /// Shows what an event changed.
    pub(crate) fn see(&mut self, event: &Event) {
        let news = self.progress.observe(event);
        if let Some(news) = news.filter(|_| self.live.amount == Some(Amount::Everything)) {
            self.tell(&format!("{}: {news}", self.id));
        }
        if self.live.bar.is_some() {
            let doing = self.progress.line();
            if let Some(running) = self.live.state().running.get_mut(&self.id) {
                *running = doing;
            }
            self.live.draw();
        }
    }

    /// A line that stays.
    pub(crate) fn tell(&self, text: &str) {
        self.live.tell(text);
    }

    /// Shows how the case came out, and nothing of it any more.
    pub(crate) fn end(self, verdict: CaseVerdict) {
        let Self { id, live, .. } = &self;
        let failed = verdict != CaseVerdict::AsExpected;
        {
            let mut state = live.state();
            state.running.shift_remove(id);
            state.over.add(self.length);
            state.failed += usize::from(failed);
        }
        if live.amount == Some(Amount::Everything) {
            for line in self.progress.repeated() {
                self.tell(&format!("{id}: {line}"));
            }
        }
        if failed || live.amount != Some(Amount::Failures) {
            self.tell(&over(id, verdict, live.bar.is_some()));
        }
        live.draw();
    }
}

/// How a case came out, in a line that a terminal shows whole.
fn over(id: &str, verdict: CaseVerdict, in_terminal: bool) -> String {
    let mark = match verdict {
        CaseVerdict::AsExpected => '✓',
        CaseVerdict::NotAsExpected => '✗',
        CaseVerdict::Inconclusive => '?',
    };
    let verdict = verdict.to_string();
    let beside = 10 + 2 + 2 + verdict.chars().count() + 1;
    let id = within(id, width().filter(|_| in_terminal), beside);
    format!("{mark} {id}: {verdict}")
}

/// How many columns the terminal has.
fn width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| usize::from(width.0))
}

/// A case's name, cut in its middle to what a line has left beside so many other characters.
fn within(id: &str, width: Option<usize>, beside: usize) -> String {
    match width {
        Some(width) => cut_within(id, width.saturating_sub(beside).max(NAME)),
        None => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moving_line_says_how_far_the_run_is_and_what_it_waits_for() {
        let ten = Duration::from_secs(10);
        let mut state = State {
            began: Instant::now(),
            planned: Cases::default(),
            over: Cases::default(),
            failed: 0,
            running: IndexMap::new(),
        };
        for _ in 0..3 {
            state.planned.add(ten);
        }
        let doing = |it: &str| it.to_owned();
        state
            .running
            .insert("s/a".to_owned(), doing("raising 0.1 s"));
        state
            .running
            .insert("s/b".to_owned(), doing("judging 2.0 s"));
        assert_eq!(state.line(ten, None), "0/3 · s/a: raising 0.1 s");
        state.running.shift_remove("s/a");
        state.over.add(ten);
        state.failed = 1;
        let line = "1/3 · 1 failed · 20.0 s left · s/b: judging 2.0 s";
        assert_eq!(state.line(ten, None), line);
    }

    #[test]
    fn the_moving_line_shows_at_80_columns_what_is_waited_for() {
        let id = "services-stay-dead-after-a-nat-flush/kube-proxy-restarted[iptables=legacy]";
        let doing = "judging 2.0 s".to_owned();
        let state = State {
            began: Instant::now(),
            planned: Cases::default(),
            over: Cases::default(),
            failed: 0,
            running: IndexMap::from([(id.to_owned(), doing)]),
        };
        let line = state.line(Duration::ZERO, Some(80));
        assert!(line.ends_with("[iptables=legacy]: judging 2.0 s"), "{line}");
        assert_eq!(line.chars().count(), 77, "{line}");
    }
}
