//! `chainbreak versions`: what real clusters are made of, and whether that is still so.

use std::process::ExitCode;

use chainbreak_kind::{
    Checked, Pinned,
    versions::{Version, Versions},
};
use chainbreak_report::text::document;
use serde::Serialize;

use crate::args::{self, Answer};

/// Something that is pinned is not there any more as it was.
const STALE: u8 = 10;
/// Of something it could not be found out.
const UNKNOWN: u8 = 11;

/// All of it, as a document.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Document {
    kind: Kind,
    pins: Vec<Pin>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Kind {
    at_least: Version,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Pin {
    what: &'static str,
    name: String,
    /// Nothing where nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<State>,
    /// Why it is not as it was, or why nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// What became of a pin.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    AsPinned,
    Stale,
    Unknown,
}

/// Prints every pin; with `--check` what became of it. Succeeds when nothing is stale or unknown.
pub(crate) async fn versions(args: &args::Versions) -> anyhow::Result<ExitCode> {
    let versions = Versions::pinned()?;
    let human = args.format == Answer::Human;
    let at_least = versions.kind.at_least;
    if human {
        crate::say(&format!("kind        {at_least} or newer\n"))?;
    }
    let mut pins = Vec::new();
    for pinned in versions.all() {
        let checked = if args.check {
            Some(pinned.check().await)
        } else {
            None
        };
        let pin = Pin::of(pinned, checked);
        if human {
            crate::say(&(pin.line() + "\n"))?;
        }
        pins.push(pin);
    }
    let code = code(&pins);
    if !human {
        let kind = Kind { at_least };
        crate::say_as_it_is(&document(&Document { kind, pins })?)?;
    }
    Ok(ExitCode::from(code))
}

/// What is stale is worse than what nobody knows.
fn code(pins: &[Pin]) -> u8 {
    let any = |state| pins.iter().any(|pin| pin.checked == Some(state));
    if any(State::Stale) {
        STALE
    } else if any(State::Unknown) {
        UNKNOWN
    } else {
        0
    }
}

impl Pin {
    fn of(pinned: Pinned, checked: Option<Checked>) -> Self {
        let (checked, reason) = match checked {
            None => (None, None),
            Some(Checked::AsPinned) => (Some(State::AsPinned), None),
            Some(Checked::Stale(why)) => (Some(State::Stale), Some(why)),
            Some(Checked::Unknown(why)) => (Some(State::Unknown), Some(why)),
        };
        let Pinned { what, name, .. } = pinned;
        Self {
            what,
            name,
            checked,
            reason,
        }
    }

    fn line(&self) -> String {
        let word = match self.checked {
            None => self.what,
            Some(State::AsPinned) => "as pinned",
            Some(State::Stale) => "stale",
            Some(State::Unknown) => "unknown",
        };
        let why = self.reason.iter().map(|why| format!(": {why}"));
        format!("{word:<12}{}{}", self.name, why.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(checked: Option<Checked>) -> Pin {
        let mut pins = Versions::pinned().unwrap().all();
        Pin::of(pins.swap_remove(0), checked)
    }

    #[test]
    fn what_is_stale_is_worse_than_what_nobody_knows() {
        let stale = || Some(Checked::Stale("gone".to_owned()));
        let unknown = || Some(Checked::Unknown("no answer".to_owned()));
        let code = |checked: Vec<Option<Checked>>| {
            let pins: Vec<Pin> = checked.into_iter().map(pin).collect();
            code(&pins)
        };
        assert_eq!(code(vec![None]), 0);
        assert_eq!(code(vec![Some(Checked::AsPinned)]), 0);
        assert_eq!(code(vec![unknown(), Some(Checked::AsPinned)]), UNKNOWN);
        assert_eq!(code(vec![stale(), unknown()]), STALE);
        assert_eq!(code(vec![unknown(), stale()]), STALE);
    }

    #[test]
    fn what_became_of_a_pin_is_told_with_the_reason() {
        let stale = pin(Some(Checked::Stale("the tag is another one".to_owned())));
        let line = stale.line();
        assert!(line.starts_with("stale       "), "{line}");
        assert!(line.ends_with(": the tag is another one"), "{line}");
        let told = serde_json::to_value(&stale).unwrap();
        assert_eq!(told["checked"], "stale");
        assert_eq!(told["reason"], "the tag is another one");
        let unasked = serde_json::to_value(pin(None)).unwrap();
        assert_eq!(unasked.as_object().unwrap().len(), 2, "{unasked}");
    }
}
