//! Progress while cases run: a line for each running case in a terminal, plain lines elsewhere.

use std::{io::IsTerminal, time::Duration};

use chainbreak_model::event::Event;
use chainbreak_report::{Progress, text::shown};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often a terminal's lines are drawn.
const DRAW: Duration = Duration::from_millis(100);

/// Where progress goes.
#[derive(Debug, Clone)]
pub(crate) enum Live {
    Terminal(MultiProgress),
    Lines,
    Silent,
}

impl Live {
    /// A terminal on standard error gets moving lines; a log gets lines that stay.
    pub(crate) fn new(silent: bool) -> Self {
        match silent {
            true => Self::Silent,
            false if std::io::stderr().is_terminal() => Self::Terminal(MultiProgress::new()),
            false => Self::Lines,
        }
    }

    /// The display of one case, from its start on.
    pub(crate) fn case(&self, id: &str) -> CaseLive {
        let bar = match self {
            Self::Terminal(all) => {
                let bar = all.add(ProgressBar::new_spinner());
                let style = ProgressStyle::with_template("{spinner} {prefix}  {wide_msg}");
                bar.set_style(style.unwrap_or_else(|_invalid| ProgressStyle::default_spinner()));
                bar.set_prefix(id.to_owned());
                bar.enable_steady_tick(DRAW);
                Some(bar)
            }
            Self::Lines | Self::Silent => None,
        };
        let lines = matches!(self, Self::Lines);
        CaseLive {
            id: id.to_owned(),
            progress: Progress::default(),
            bar,
            lines,
        }
    }
}

/// The display of one case.
#[derive(Debug)]
pub(crate) struct CaseLive {
    id: String,
    progress: Progress,
    bar: Option<ProgressBar>,
    lines: bool,
}

impl CaseLive {
    /// Shows what an event changed.
    pub(crate) fn see(&mut self, event: &Event) {
        let news = self.progress.observe(event);
        if let Some(bar) = &self.bar {
            bar.set_message(shown(&self.progress.line()));
        } else if let Some(news) = news.filter(|_| self.lines) {
            crate::note(&format!("{}: {news}", self.id));
        }
    }

    /// Shows how the case came out, and nothing of it any more.
    pub(crate) fn end(self, outcome: &str) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        if self.lines {
            for line in self.progress.repeated() {
                crate::note(&format!("{}: {line}", self.id));
            }
            crate::note(&format!("{}: {outcome}", self.id));
        }
    }
}
