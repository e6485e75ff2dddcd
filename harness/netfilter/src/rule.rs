//! One rule: its words after the chain's name, kept as the text in which they came.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use crate::{normal, words::words};

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Counters {
    /// How many packets.
    pub packets: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Counters {
    /// Reads `[12:3456]`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (packets, bytes) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
        Some(Self {
            packets: packets.parse().ok()?,
            bytes: bytes.parse().ok()?,
        })
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:{}]", self.packets, self.bytes)
    }
}

/// One rule. Two rules are equal when text and counters are; [`Rule::same`] asks the kernel's question.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rule {
    /// Matches and target as written, quotes included: `-s 10.0.0.1/32 -m comment --comment "a b" -j DROP`.
    pub text: String,
    /// Its counters, when asked for (`iptables-save -c`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

impl Rule {
    /// A rule of this text, without counters.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            counters: None,
        }
    }

    /// Its words, unquoted.
    pub fn words(&self) -> impl Iterator<Item = Cow<'_, str>> {
        words(&self.text)
    }

    /// Where it jumps or goes: a chain, or a target such as `DROP`. A rule that only counts has none.
    pub fn target(&self) -> Option<Cow<'_, str>> {
        self.value(&["-j", "--jump", "-g", "--goto"])
    }

    /// Its first comment.
    pub fn comment(&self) -> Option<Cow<'_, str>> {
        self.value(&["--comment"])
    }

    /// Whether the kernel would call both the same rule: order of matches, long options, default masks and
    /// number formats do not matter, counters neither.
    pub fn same(&self, other: &Self) -> bool {
        self.text == other.text || self.normal() == other.normal()
    }

    /// The form that two rules share exactly when [`Rule::same`] holds.
    pub fn normal(&self) -> String {
        normal::form(&self.text)
    }

    /// What stands behind the first of these options, which are names of one: `-d` and `--destination`.
    pub fn value(&self, options: &[&str]) -> Option<Cow<'_, str>> {
        let mut words = self.words();
        while let Some(word) = words.next() {
            if options.contains(&&*word) {
                return words.next();
            }
            if let Some((option, value)) = word.split_once('=')
                && option.starts_with("--")
                && options.contains(&option)
            {
                return Some(Cow::Owned(value.to_owned()));
            }
            // A comment's words are nobody's options.
            if word == "--comment" {
                words.next();
            }
        }
        None
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_not_looked_for_in_comments() {
        let rule = Rule::new(r#"-m comment --comment "-j" --comment -j --jump KUBE-SVC-X"#);
        assert_eq!(rule.comment().as_deref(), Some("-j"));
        assert_eq!(rule.target().as_deref(), Some("KUBE-SVC-X"));
        assert_eq!(
            Rule::new("--goto=cali-x").target().as_deref(),
            Some("cali-x")
        );
        assert_eq!(Rule::new("-m comment --comment x").target(), None);
    }
}
