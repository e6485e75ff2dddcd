//! Which incident a node is like: what holds of the signs by which a scenario knows its own.

mod node;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use chainbreak_model::{
    case::{Sign, Which},
    scenario::Scenario,
};
use serde::Serialize;

use self::node::{Node, Seen};
use crate::{Evidence, Finding, Observed};

/// How much of what is seen of a node is as in an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Likeness {
    /// Signs that are there.
    #[serde(rename = "for")]
    pub seen: Vec<Sight>,
    /// Signs that are not.
    pub against: Vec<String>,
    /// Signs of which nothing that was attached tells.
    pub unknown: Vec<String>,
    /// How much speaks for it: a finding, an entry of a log and a counter more than how something is set up.
    pub weight: u32,
    /// Whether it is more than how something is set up.
    #[serde(skip)]
    is_out_of_order: bool,
    /// How many signs speak for it.
    #[serde(skip)]
    speak: usize,
    /// How many of the unknown ones would.
    #[serde(skip)]
    doubts: usize,
}

/// A sign that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sight {
    /// The sign.
    pub sign: String,
    /// Where it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

impl Likeness {
    /// Of a node, beside what somebody sees of requests, and each scenario's incident; none where that is not seen in it.
    pub fn of_each<'a>(
        evidence: &'a Evidence,
        findings: &'a [Finding],
        observed: Observed,
        scenarios: &'a [Scenario],
    ) -> impl Iterator<Item = (&'a Scenario, Self)> {
        let node = Node::new(evidence, findings);
        scenarios.iter().filter_map(move |scenario| {
            let likeness = Self::of_signs(&node, &scenario.signature);
            Some((scenario, likeness.beside(observed, scenario)?))
        })
    }

    fn beside(mut self, observed: Observed, scenario: &Scenario) -> Option<Self> {
        if observed.is_any() {
            if !observed.is_of(scenario) {
                return None;
            }
            self.is_out_of_order = true;
            self.seen.push(Sight {
                sign: observed.to_string(),
                seen: None,
            });
        }
        Some(self)
    }

    fn of_signs(node: &Node<'_>, signature: &[Sign]) -> Self {
        let mut likeness = Self {
            seen: Vec::new(),
            against: Vec::new(),
            unknown: Vec::new(),
            weight: 0,
            is_out_of_order: false,
            speak: 0,
            doubts: 0,
        };
        for sign in signature {
            match node.shows(sign) {
                Seen::At(leaf, seen) => likeness.take(leaf, seen),
                Seen::Not => likeness.against.push(sign.to_string()),
                Seen::Unknown => {
                    likeness.doubts += usize::from(weight(sign) > 0);
                    likeness.unknown.push(sign.to_string());
                }
            }
        }
        likeness
    }

    /// A sign counts once, however many of the signature's it answers.
    fn take(&mut self, sign: &Sign, seen: Option<String>) {
        let sight = Sight {
            sign: sign.to_string(),
            seen,
        };
        if self.seen.contains(&sight) {
            return;
        }
        self.seen.push(sight);
        let weight = weight(sign);
        self.weight += weight;
        self.speak += usize::from(weight > 0);
        self.is_out_of_order |= weight >= OUT_OF_ORDER;
    }

    /// The more alike, the less: first what less speaks against, then what more speaks for, of which what is not known takes away.
    pub fn rank(&self) -> impl Ord + use<> {
        let doubts = UNKNOWN.saturating_mul(u32::try_from(self.doubts).unwrap_or(u32::MAX));
        (
            self.against.len(),
            Reverse(self.weight.saturating_sub(doubts)),
        )
    }

    /// Whether something is seen that is not as it should be, and more is known than is not.
    pub fn is_worth_a_word(&self) -> bool {
        self.is_out_of_order && self.speak > self.doubts
    }

    /// Whether it is, and nothing speaks against it.
    pub fn is_likely(&self) -> bool {
        self.is_worth_a_word() && self.against.is_empty()
    }
}

/// What weighs so much is not as it should be.
const OUT_OF_ORDER: u32 = 3;
/// What a sign takes away of which nothing tells.
const UNKNOWN: u32 = 2;

/// Of several the heaviest, which is how much of it is in doubt where nothing tells.
fn weight(sign: &Sign) -> u32 {
    match sign {
        Sign::Found(_)
        | Sign::Logged { .. }
        | Sign::Rule {
            which: Which::Counted,
            ..
        } => OUT_OF_ORDER,
        Sign::Object(_) | Sign::Felix(_) => 2,
        Sign::Rule { .. } => 1,
        Sign::Any(signs) => signs.iter().map(weight).max().unwrap_or(0),
        // What is not there is so in most nodes.
        Sign::Not(_) => 0,
    }
}
