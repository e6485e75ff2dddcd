//! The rules behind a promise about where requests come from, how they are spread, or whether somebody is asked at all.

use std::fmt;

use chainbreak_model::{
    case::{Case, Claim},
    event::Event,
    verdict::{Evidence, Span},
};
use serde::Serialize;

use crate::{
    edits::EditIndex,
    led::{self, Led},
    spared::{self, Spared},
    sticky::{self, Sticky},
    translated::{self, Translator},
};

/// What rules did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ruled {
    /// One gave requests another source.
    Translated(Translator),
    /// They led to some of the endpoints alone.
    Spared(Spared),
    /// They kept each client with an endpoint.
    Sticky(Sticky),
    /// They led requests elsewhere than where these were sent.
    Led(Led),
}

impl Ruled {
    /// Who wrote them, by the commands.
    pub(crate) fn who(&self) -> &str {
        match self {
            Self::Translated(it) => &it.who,
            Self::Spared(it) => &it.who,
            Self::Sticky(it) => &it.who,
            Self::Led(it) => &it.who,
        }
    }
}

impl fmt::Display for Ruled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Translated(it) => it.fmt(f),
            Self::Spared(it) => it.fmt(f),
            Self::Sticky(it) => it.fmt(f),
            Self::Led(it) => it.fmt(f),
        }
    }
}

/// Those behind a promise that was broken, in the time of which it is.
pub(crate) fn behind(
    material: (&Case, &[Event], &EditIndex<'_>),
    (claim, time): (Option<&Claim>, Option<Span>),
    evidence: &Evidence,
) -> Option<Ruled> {
    match evidence {
        Evidence::Sources(sources) => {
            translated::of_sources(material, sources).map(Ruled::Translated)
        }
        Evidence::Balance(spread) => {
            let time = time?;
            let spared = spared::of_spread(material, spread, time).map(Ruled::Spared);
            spared.or_else(|| sticky::of_spread(material, spread, time).map(Ruled::Sticky))
        }
        Evidence::Counter(counted) => {
            led::of_counter(material, claim?, counted, time?).map(Ruled::Led)
        }
        Evidence::Requests(_)
        | Evidence::Log(_)
        | Evidence::Rule(_)
        | Evidence::Ports(_)
        | Evidence::Resets(_)
        | Evidence::Recovery(_) => None,
    }
}
