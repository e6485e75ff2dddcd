//! What a worker says on its standard output, a JSON value a line.

use chainbreak_engine::{log::CaseClock, run::Artifact};
use chainbreak_model::event::Event;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A line as it is said.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    /// First: when the history began.
    Began(CaseClock),
    Event(Event),
    Artifact(Artifact),
}

/// The same as it is heard: the text of an event goes on as it is.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said<'a> {
    Began(CaseClock),
    #[serde(borrow)]
    Event(&'a RawValue),
    Artifact(Artifact),
}
