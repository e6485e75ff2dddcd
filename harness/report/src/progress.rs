//! The live view of one case: what it is doing in a short line, and the turns worth a line of their own.

use chainbreak_model::event::{Event, EventKind, Phase};

use std::collections::BTreeMap;

use crate::{
    edits::RuleEdit,
    log_finding::LogFinding,
    text::{count, cut, one_line, percent},
};

/// What is known of a running case, event by event.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    phase: Option<Phase>,
    sent: usize,
    answered: usize,
    lost_in_a_row: usize,
    /// What came after the phase began.
    latest: Option<String>,
    now_us: u64,
    told: BTreeMap<String, usize>,
}

/// What agents do and say is cut to this many characters: the whole of it is in the history.
const NEWS: usize = 140;

/// So many requests lost one after the other are worth a line: one or two are bad luck.
const SILENCE: usize = 5;

impl Progress {
    /// Takes an event. The answer is a line for those who see no live view; `None` when the event changes
    /// nothing that a person would want to read now, or is of a kind that was told before.
    pub fn observe(&mut self, event: &Event) -> Option<String> {
        self.now_us = self.now_us.max(event.at_us);
        let mut kind = None;
        let news = match &event.what {
            EventKind::Phase(phase) => {
                self.phase = Some(*phase);
                phase_words(*phase).to_owned()
            }
            EventKind::Step { text } => one_line(text),
            EventKind::Trouble { text } => one_line(text.lines().next().unwrap_or_default()),
            EventKind::Sample { sample, .. } => self.sample(sample.outcome.is_answered())?,
            EventKind::Command(_) => {
                let (what, news) = deleted(event)?;
                kind = Some(what);
                cut(&news, NEWS)
            }
            EventKind::Log(entry) => {
                let said = LogFinding::of(&entry.text)?;
                kind = Some(format!("{} logs: {}", entry.agent, said.gist()));
                let news = format!("{} on {} logs: {said}", entry.agent, entry.node);
                cut(&one_line(&news), NEWS)
            }
            _ => return None,
        };
        let is_phase = matches!(event.what, EventKind::Phase(_));
        self.latest = (!is_phase).then(|| news.clone());
        if let Some(kind) = kind {
            let times = self.told.entry(kind).or_default();
            *times += 1;
            if *times > 1 {
                return None;
            }
        }
        Some(news)
    }

    fn sample(&mut self, answered: bool) -> Option<String> {
        self.sent += 1;
        if answered {
            self.answered += 1;
            let lost = std::mem::take(&mut self.lost_in_a_row);
            return (lost >= SILENCE)
                .then(|| format!("requests are answered again, {lost} were lost"));
        }
        self.lost_in_a_row += 1;
        (self.lost_in_a_row == SILENCE).then(|| "requests are not answered any more".to_owned())
    }

    /// What was told once and happened again, a line for each kind: `felix deleted rules of others in nat:
    /// 11 times more`.
    pub fn repeated(&self) -> Vec<String> {
        let again = self.told.iter().filter(|&(_, &times)| times > 1);
        let line =
            |(kind, times): (&String, &usize)| format!("{kind}: {} more", count(times - 1, "time"));
        again.map(line).collect()
    }

    /// The case in a short line: phase, time, answered requests, the latest news.
    pub fn line(&self) -> String {
        let phase = self.phase.map_or("waiting", phase_words);
        let mut line = format!("{phase} {:.1} s", self.now_us as f64 / 1e6);
        if self.sent > 0 {
            line.extend([" · ", &percent(self.answered, self.sent), " answered"]);
        }
        if let Some(latest) = &self.latest {
            line.extend([" · ", latest]);
        }
        line
    }
}

/// An agent takes away what is another's, the news of this program: its kind and its words.
fn deleted(event: &Event) -> Option<(String, String)> {
    let edit = RuleEdit::of(event)?;
    let outcome = edit.outcome();
    let who = &edit.command.who;
    let cuts = outcome.cuts_others(who).then(|| outcome.cuts()).flatten()?;
    let tables = outcome.cut_tables().join(" and ");
    Some((
        format!("{who} deleted rules of others in {tables}"),
        format!("{who} on {} {cuts}", edit.command.node),
    ))
}

fn phase_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Raising => "raising",
        Phase::Ready => "ready",
        Phase::Judging => "judging",
        Phase::Judged => "judged",
        Phase::Held => "waiting for the verdict",
        Phase::Kept => "the world is kept",
        Phase::Destroyed => "destroyed",
    }
}
