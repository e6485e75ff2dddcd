//! `--exclude`: cells of the matrix that are left out, with the reason.

use std::fmt;

use crate::{case::Case, matrix::MatrixKey, version::Range};

/// Cells that are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclude {
    /// All of them hold for a cell that is left out.
    terms: Vec<Term>,
    reason: String,
}

/// What holds of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    /// An agent's version lies within these bounds.
    Version(MatrixKey, Range),
    /// The setting has this value.
    Value(MatrixKey, String),
}

impl Exclude {
    /// Reads `KEY… KEY…: REASON`, as in `kube-proxy>=1.31 calico<v3.28: nobody tested them together`: a version's key is
    /// followed by a range of versions, any other key by `=` and a value. An error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (terms, reason) = text.split_once(": ").unwrap_or((text, ""));
        if reason.trim().is_empty() {
            return Err("the reason is missing: write it after a colon and a space".to_owned());
        }
        let terms = terms.split_whitespace().map(Term::parse);
        let terms = terms.collect::<Result<Vec<_>, _>>()?;
        if terms.is_empty() {
            return Err("nothing stands before the colon: write what is left out".to_owned());
        }
        let reason = reason.trim().to_owned();
        Ok(Self { terms, reason })
    }

    /// The reason, for a case that is left out.
    pub(super) fn leaves_out(&self, case: &Case) -> Option<String> {
        let all = self.terms.iter().all(|term| term.holds(case));
        all.then(|| format!("excluded ({self}): {}", self.reason))
    }
}

impl fmt::Display for Exclude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            match term {
                Term::Version(key, range) => write!(f, "{space}{key}{range}")?,
                Term::Value(key, value) => write!(f, "{space}{key}={value}")?,
            }
        }
        Ok(())
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let end = text.find(['<', '>', '=']);
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        let key = MatrixKey::named(word)?;
        if key.is_version() {
            let range = Range::parse(rest, |version| key.check(version))?;
            return Ok(Self::Version(key, range));
        }
        let value = rest
            .strip_prefix('=')
            .ok_or_else(|| format!("{text:?}: write {key}=VALUE"))?;
        key.check(value)?;
        Ok(Self::Value(key, value.to_owned()))
    }

    fn holds(&self, case: &Case) -> bool {
        match self {
            Self::Version(key, range) => key
                .version(&case.cluster)
                .is_some_and(|version| range.contains(version)),
            Self::Value(key, value) => key.value(&case.cluster).as_deref() == Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_as_it_was_written() {
        for text in ["kube-proxy>=1.31,<1.34 calico<v3.28", "iptables=nft"] {
            let exclude = Exclude::parse(&format!("{text}: no reason")).unwrap();
            assert_eq!(exclude.to_string(), text);
            assert_eq!(exclude.reason, "no reason");
        }
    }

    #[test]
    fn what_cannot_be_left_out_is_told_with_the_way_to_write_it() {
        let cases = [
            ("kube-proxy>=1.31", "the reason is missing"),
            ("kube-proxy>=1.31: ", "the reason is missing"),
            (" : why", "nothing stands before the colon"),
            ("kubelet=1.31: why", "the matrix cannot vary \"kubelet\""),
            ("kube-proxy1.31: why", "the matrix cannot vary"),
            ("kube-proxy>=one: why", "no version of kube-proxy"),
            ("iptables>nft: why", "write iptables=VALUE"),
            ("iptables=both: why", "legacy or nft"),
        ];
        for (text, said) in cases {
            let why = Exclude::parse(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
