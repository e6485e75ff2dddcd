//! What a promise speaks of.

use super::{Claim, Counter, RuleChain, RuleQuery};
use crate::{case::Family, names::TrafficName};

/// What each IP family has of its own.
pub(crate) enum OfFamily<'a> {
    Traffic(&'a mut TrafficName),
    /// Of which packets the rules or elements are.
    Tables(&'a mut Family),
}

impl Claim {
    /// What it looks for by its text.
    pub(crate) fn texts(&self) -> Vec<&str> {
        match self {
            Self::HasRule { rule, .. }
            | Self::Counter {
                counter: Counter::Rule(rule),
                ..
            } => rule.texts(),
            Self::NoLog { matches, .. } | Self::HasLog { matches, .. } => vec![matches],
            Self::HasElement { element, .. } => vec![&element.element],
            Self::Available { .. }
            | Self::Counter { .. }
            | Self::Source { .. }
            | Self::SourcePorts { .. }
            | Self::Balance { .. }
            | Self::Resets { .. }
            | Self::Unreachable { .. }
            | Self::Recovers { .. } => Vec::new(),
        }
    }

    /// The traffic that it is about.
    pub fn traffic(&self) -> Option<&TrafficName> {
        match self {
            Self::Available { traffic, .. }
            | Self::Source { traffic, .. }
            | Self::SourcePorts { traffic, .. }
            | Self::Balance { traffic, .. }
            | Self::Resets { traffic, .. }
            | Self::Unreachable { traffic }
            | Self::Recovers { traffic, .. } => Some(traffic),
            Self::NoLog { .. }
            | Self::HasLog { .. }
            | Self::HasRule { .. }
            | Self::HasElement { .. }
            | Self::Counter { .. } => None,
        }
    }

    /// What it looks at that each IP family has of its own, to be replaced.
    pub(crate) fn of_family(&mut self) -> Option<OfFamily<'_>> {
        match self {
            Self::Available { traffic, .. }
            | Self::Source { traffic, .. }
            | Self::SourcePorts { traffic, .. }
            | Self::Balance { traffic, .. }
            | Self::Resets { traffic, .. }
            | Self::Unreachable { traffic }
            | Self::Recovers { traffic, .. } => Some(OfFamily::Traffic(traffic)),
            Self::HasRule { rule, .. }
            | Self::Counter {
                counter: Counter::Rule(rule),
                ..
            } => Some(OfFamily::Tables(&mut rule.family)),
            Self::HasElement { element, .. } => Some(OfFamily::Tables(&mut element.family)),
            Self::NoLog { .. } | Self::HasLog { .. } | Self::Counter { .. } => None,
        }
    }
}

impl RuleQuery {
    fn texts(&self) -> Vec<&str> {
        let chain = match &self.chain {
            RuleChain::Named(name) => Some(name.as_str()),
            RuleChain::OfService { .. } => None,
        };
        let jump = self.jump.as_deref();
        let matches = self.matches.as_deref();
        [chain, jump, matches].into_iter().flatten().collect()
    }
}
