//! `promises:`.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a table's function takes any lifetime, a method's path has one"
)]

mod chains;
mod rules;
mod samples;
mod window;

use std::time::Duration;

use indexmap::IndexMap;
use window::WINDOW;

use super::{
    fields::{Fields, duration, entries, note, number, percent, regex, text, word},
    is_name,
    timeline::only_entry,
    traffic::World,
};
use crate::{
    case::{Claim, Limits, Promise, Step, Traffic},
    diagnostic::Gathered,
    language::{Choice, Field, Kind, Mapping, default, needed, optional, words},
    names::{AgentName, PromiseName, TrafficName},
    nearest::suggest,
    yaml::{Entry, Node},
};

const GAP: (Duration, Duration) = (Duration::from_micros(1), Duration::from_secs(3600));

/// A promise: a mapping with one entry, which says what kind it is.
pub(super) static PROMISE: Choice = Choice {
    called: "a promise",
    doc: "A health criterion over the run, or over a part of it.",
    words: || promises().map(|word| &word.field).collect(),
    beside: &[],
};

/// A word that a promise can be, and its reader.
struct Word {
    field: Field,
    mapping: &'static Mapping,
    read: fn(&Reading<'_>, &Fields<'_>) -> Option<Promise>,
}

const fn promise(
    word: &'static str,
    mapping: &'static Mapping,
    doc: &'static str,
    read: fn(&Reading<'_>, &Fields<'_>) -> Option<Promise>,
) -> Word {
    Word {
        field: optional(word, Kind::Fields(mapping), doc),
        mapping,
        read,
    }
}

/// All words, in the order in which they are documented.
fn promises() -> impl Iterator<Item = &'static Word> {
    let of_agents = PROMISES.iter().chain(&rules::PROMISES);
    of_agents.chain(&samples::PROMISES)
}

/// Whether a promise can be that.
pub(super) fn is_promise(word: &str) -> bool {
    promises().any(|known| known.field.word == word)
}

static PROMISES: [Word; 3] = [
    promise(
        "available",
        &AVAILABLE,
        "At least that share of the requests was answered, and no stretch without any answer was longer.",
        |it, fields| it.available(fields),
    ),
    promise(
        "no-log",
        &LOG,
        "No entry of that agent's log, on any node, matches.",
        |it, fields| it.log(fields, |agent, matches| Claim::NoLog { agent, matches }),
    ),
    promise(
        "has-log",
        &LOG,
        "Some entry of that agent's log matches.",
        |it, fields| it.log(fields, |agent, matches| Claim::HasLog { agent, matches }),
    ),
];

static AVAILABLE: Mapping = Mapping {
    called: "available",
    doc: "",
    fields: &[
        &[
            TRAFFIC,
            default(
                "at-least",
                Kind::Percent,
                "100%",
                "Least share of answered requests.",
            ),
            optional(
                "longest-gap",
                Kind::Time,
                "Longest allowed stretch without an answer to any request: from the first unanswered request to the next answered one.",
            ),
        ],
        &WINDOW,
    ],
};

static LOG: Mapping = Mapping {
    called: "a log promise",
    doc: "",
    fields: &[
        &[
            needed(
                "agent",
                Kind::Word(|| words(&AgentName::WORDS)),
                "Whose log.",
            ),
            needed(
                "matches",
                Kind::Text,
                "A regular expression (Rust's syntax).",
            ),
        ],
        &WINDOW,
    ],
};

const TRAFFIC: Field = needed("traffic", Kind::Name, "Which traffic.");

/// `at-least` and `at-most`.
static LIMITS: [Field; 2] = [
    optional("at-least", Kind::Whole(0, u64::MAX), "The least allowed."),
    optional("at-most", Kind::Whole(0, u64::MAX), "The most allowed."),
];

/// What promises can refer to.
pub(super) struct Known<'a> {
    pub(super) world: &'a World<'a>,
    /// Names of traffic, also of such that could not be read.
    pub(super) names: &'a [&'a str],
    /// `None` when some could not be read.
    pub(super) traffic: Option<&'a IndexMap<TrafficName, Traffic>>,
    /// `None` when it could not be read: then no mark is doubted.
    pub(super) timeline: Option<&'a [Step]>,
}

/// Reads `promises:`; a promise that a variant sets to `none` is left out.
pub(super) fn read(
    gathered: &Gathered,
    node: &Node,
    known: &Known<'_>,
) -> Option<IndexMap<PromiseName, Promise>> {
    let entries = entries(gathered, node, "promises")?;
    let mut promises = IndexMap::new();
    let mut complete = true;
    for (name, Entry { key, node }) in entries {
        if node.text() == Some("none") {
            continue;
        }
        if !is_name(name) {
            let hint = Some(super::NAME.into());
            note(
                gathered,
                key,
                format!("a promise cannot be named {name:?}"),
                hint,
            );
        }
        match read_one(gathered, node, known) {
            Some(promise) => drop(promises.insert(PromiseName::from(name.as_str()), promise)),
            None => complete = false,
        }
    }
    if complete && promises.is_empty() {
        note(
            gathered,
            &node.place,
            "without a promise there is nothing to judge",
            None,
        );
    }
    complete.then_some(promises)
}

fn read_one(gathered: &Gathered, node: &Node, known: &Known<'_>) -> Option<Promise> {
    let words: Vec<&Word> = promises().collect();
    let (word, entry) = only_entry(gathered, node, &PROMISE)?;
    let word = words.get(word)?;
    let fields = Fields::of(gathered, &entry.node, word.mapping)?;
    let reading = Reading { gathered, known };
    (word.read)(&reading, &fields)
}

/// What reading a promise needs at hand.
#[derive(Clone, Copy)]
struct Reading<'a> {
    gathered: &'a Gathered,
    known: &'a Known<'a>,
}

impl Reading<'_> {
    /// Notes that nothing could break the promise: it would prove nothing.
    fn proves_nothing(&self, node: &Node, why: &str, hint: &str) {
        let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
        note(
            self.gathered,
            &node.place,
            format!("{why}: nothing can break this"),
            hint,
        );
    }

    fn available(&self, fields: &Fields<'_>) -> Option<Promise> {
        let gathered = self.gathered;
        let traffic = self.traffic(fields);
        let at_least = fields.or_default("at-least", |node| percent(gathered, node, "at-least"));
        let longest_gap = fields.maybe("longest-gap", |node| {
            duration(gathered, node, "longest-gap", GAP)
        });
        let window = self.window(fields);
        let (at_least, longest_gap) = (at_least?, longest_gap?);
        if let Some(node) = fields
            .get("at-least")
            .filter(|_| at_least <= 0.0 && longest_gap.is_none())
        {
            self.proves_nothing(
                node,
                "0% is always answered",
                "promise more, or a longest-gap",
            );
        }
        // Of a share something is promised as well.
        if let Some(gap) = longest_gap.filter(|_| at_least <= 0.0) {
            let mark = window.as_ref().and_then(|window| window.from.as_ref());
            self.too_long(fields.get("longest-gap"), gap, mark);
        }
        let claim = Claim::Available {
            traffic: traffic?,
            at_least,
            longest_gap,
        };
        let window = window?;
        Some(Promise { claim, window })
    }

    fn log(
        &self,
        fields: &Fields<'_>,
        claim: impl Fn(AgentName, String) -> Claim,
    ) -> Option<Promise> {
        let agent = fields.need("agent", |node| {
            word(self.gathered, node, "agent", &AgentName::WORDS)
        });
        let matches = fields.need("matches", |node| self.pattern(node, "every entry"));
        let window = self.window(fields);
        let claim = claim(agent?, matches?);
        let window = window?;
        Some(Promise { claim, window })
    }

    /// A regular expression; one that the empty text matches is found in everything.
    fn pattern(&self, node: &Node, everything: &str) -> Option<String> {
        let pattern = regex(self.gathered, node, "matches")?;
        if regex::Regex::new(&pattern).is_ok_and(|regex| regex.is_match("")) {
            let message = format!("{everything} matches {pattern:?}: it says nothing");
            note(self.gathered, &node.place, message, None);
            return None;
        }
        Some(pattern)
    }

    fn traffic(&self, fields: &Fields<'_>) -> Option<TrafficName> {
        let gathered = self.gathered;
        fields.need("traffic", |node| {
            let name = text(gathered, node, "traffic")?;
            if !self.known.names.contains(&name) {
                let hint = suggest(name, self.known.names.iter().copied());
                let message = format!("unknown traffic {name:?}");
                note(gathered, &node.place, message, hint);
            }
            Some(TrafficName::from(name))
        })
    }

    /// `at-least` and `at-most`: one of them is needed, and something must lie outside.
    fn limits(&self, fields: &Fields<'_>) -> Option<Limits> {
        let gathered = self.gathered;
        let bound = |name: &'static str| {
            fields.maybe(name, |node| number(gathered, node, name, (0, u64::MAX)))
        };
        let (at_least, at_most) = (bound("at-least"), bound("at-most"));
        let limits = Limits {
            at_least: at_least?,
            at_most: at_most?,
        };
        match (limits.at_least, limits.at_most) {
            (None, None) => {
                let hint = "write at-least, at-most or both".to_owned();
                note(
                    gathered,
                    &fields.node.place,
                    "how much is promised?",
                    Some(hint),
                );
                return None;
            }
            (Some(0), None) => {
                let node = fields.get("at-least")?;
                self.proves_nothing(
                    node,
                    "no number is below 0",
                    "promise at least 1, or at-most",
                );
            }
            (Some(least), Some(most)) if least > most => {
                let node = fields.get("at-least")?;
                note(gathered, &node.place, "at-least is more than at-most", None);
            }
            _ => {}
        }
        Some(limits)
    }
}
