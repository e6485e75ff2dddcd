//! Versions as scenarios write them, the oldest ones whose behaviour is known, and ranges of them.

use std::{cmp::Ordering, fmt};

/// Accepts kube-proxy versions, `1.32` or `1.32.4`.
pub(crate) fn kube_proxy(text: &str) -> Result<(), String> {
    of_kubernetes("kube-proxy", text)
}

/// Accepts Kubernetes versions, which are written as kube-proxy's.
pub(crate) fn kubernetes(text: &str) -> Result<(), String> {
    of_kubernetes("Kubernetes", text)
}

fn of_kubernetes(what: &str, text: &str) -> Result<(), String> {
    let known =
        exact(text).filter(|n| matches!(n.as_slice(), [1, minor] | [1, minor, _] if *minor >= 20));
    known.map(|_| ()).ok_or_else(|| {
        format!("{text:?} is no version of {what}: write 1.32 or 1.32.4; the oldest is 1.20")
    })
}

/// Whether kube-proxy of that version has the nftables mode that is known: 1.29 and 1.30 have another.
pub(crate) fn has_nftables(version: &str) -> bool {
    compare(version, &[1, 31]).is_ge()
}

/// Accepts Calico versions, `v3.28` or `v3.28.1`.
pub(crate) fn calico(text: &str) -> Result<(), String> {
    let known = text.strip_prefix('v').and_then(exact);
    let known =
        known.filter(|n| matches!(n.as_slice(), [3, minor] | [3, minor, _] if *minor >= 25));
    known.map(|_| ()).ok_or_else(|| {
        format!("{text:?} is no version of Calico: write v3.28 or v3.28.1; the oldest is v3.25")
    })
}

/// The numbers of a version that has nothing else.
fn exact(text: &str) -> Option<Vec<u16>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

/// The numbers that a version begins with, whatever follows: a real one calls itself `v1.20.2`,
/// `v1.32.3+k3s1` or `v3.28.1-4-gabcdef`.
fn numbers(text: &str) -> Vec<u16> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let numbers = text.split(|c: char| c != '.' && !c.is_ascii_digit()).next();
    let parts = numbers.unwrap_or_default().split('.');
    parts.map_while(|part| part.parse().ok()).collect()
}

/// How a version stands to a written one, as far as that is written: 1.27.3 equals 1.27. Who writes a minor version means its
/// last patch, which is what a model of it does: 1.27 is later than 1.27.3. What is no version is older than any.
fn compare(version: &str, written: &[u16]) -> Ordering {
    let mut numbers = numbers(version);
    let lacking = if numbers.is_empty() { 0 } else { u16::MAX };
    numbers.resize(written.len(), lacking);
    numbers.as_slice().cmp(written)
}

/// The minor versions from one to another of the same major version, both included, written as they are. Patch
/// versions have no place there.
pub(crate) fn minors(first: &str, last: &str) -> Result<Vec<String>, String> {
    match (numbers(first).as_slice(), numbers(last).as_slice()) {
        ([major, from], [same, to]) if major == same && from <= to => {
            let v = if first.starts_with('v') { "v" } else { "" };
            Ok((*from..=*to)
                .map(|minor| format!("{v}{major}.{minor}"))
                .collect())
        }
        _ => Err(format!(
            "{first}..{last} is no range: write minor versions, the older one first"
        )),
    }
}

/// Whether a version is the written one, or one of its patch versions: 1.20.2 is 1.20.
pub(crate) fn is(version: &str, written: &str) -> bool {
    compare(version, &numbers(written)).is_eq()
}

/// The newest patch of `1.34`, or of Calico's `v3.31`, among the pinned ones, the oldest of which comes first; `None` where a patch is
/// written already, or none of it is pinned.
pub(crate) fn pinned<'a>(written: &str, pins: &'a [String]) -> Option<&'a str> {
    let plain = written.strip_prefix('v').unwrap_or(written);
    let minor = exact(plain).is_some_and(|numbers| numbers.len() == 2);
    let newest = || pins.iter().rfind(|pin| is(pin, written));
    minor.then(newest).flatten().map(String::as_str)
}

/// `1.32` of `1.32.4`.
pub(crate) fn minor(version: &str) -> String {
    let mut numbers = numbers(version);
    numbers.resize(2, 0);
    let numbers: Vec<String> = numbers.iter().map(u16::to_string).collect();
    numbers.join(".")
}

/// Versions between bounds: `>=1.27`, `>=1.26,<1.33`, `=1.32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    bounds: Vec<(Comparator, Vec<u16>)>,
    written: String,
}

type Comparator = fn(Ordering) -> bool;

/// Comparators by the sign that they are written with; a sign that begins with another one comes first.
const COMPARATORS: [(&str, Comparator); 5] = [
    (">=", Ordering::is_ge),
    ("<=", Ordering::is_le),
    (">", Ordering::is_gt),
    ("<", Ordering::is_lt),
    ("=", Ordering::is_eq),
];

impl Range {
    /// Reads comparators joined by commas; `check` accepts the versions.
    pub(crate) fn parse(
        text: &str,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<Self, String> {
        let bound = |part: &str| {
            let part = part.trim();
            let found = COMPARATORS
                .iter()
                .find_map(|(sign, holds)| Some((*holds, part.strip_prefix(sign)?.trim())));
            let (holds, version) = found.ok_or_else(|| {
                format!(
                    "{part:?} is no range of versions: write >=, >, <, <= or = before a version"
                )
            })?;
            check(version)?;
            Ok::<_, String>((holds, numbers(version)))
        };
        let bounds = text.split(',').map(bound).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            bounds,
            written: text.to_owned(),
        })
    }

    /// Whether a version lies within every bound. A bound says nothing of what it does not write:
    /// 1.27.3 is not `>1.27`.
    pub fn contains(&self, version: &str) -> bool {
        let mut bounds = self.bounds.iter();
        bounds.all(|(holds, written)| holds(compare(version, written)))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minor_versions_between_two_are_written_as_they_are() {
        assert_eq!(minors("1.28", "1.30").unwrap(), ["1.28", "1.29", "1.30"]);
        assert_eq!(minors("v3.28", "v3.28").unwrap(), ["v3.28"]);
        for (first, last) in [("1.30", "1.28"), ("1.28.1", "1.30"), ("1.28", "2.30")] {
            assert!(minors(first, last).is_err(), "{first}..{last}");
        }
    }

    #[test]
    fn a_range_holds_the_versions_within_its_bounds_as_far_as_they_are_written() {
        let held = [
            (">=1.27", "1.27"),
            (">=1.27", "1.27.3"),
            (">=1.27", "v1.32.3+k3s1"),
            ("<1.27", "1.26.15"),
            ("<=1.27", "1.27.3"),
            ("=1.20", "v1.20.2"),
            (">=1.26, <1.33", "1.32.13"),
            (">=1.27.2", "1.27"),
        ];
        for (range, version) in held {
            let range = Range::parse(range, kube_proxy).unwrap();
            assert!(range.contains(version), "{range} {version}");
        }
        let left_out = [
            (">=1.27", "1.26.15"),
            (">=1.27", "v1.9"),
            (">1.27", "1.27.3"),
            ("<1.27", "1.27.0"),
            ("=1.20", "1.2"),
            ("=1.20.2", "1.20.15"),
            (">=1.26,<1.33", "1.33"),
            ("<1.27.2", "1.27"),
            (">=1.27", "unknown"),
        ];
        for (range, version) in left_out {
            let range = Range::parse(range, kube_proxy).unwrap();
            assert!(!range.contains(version), "{range} {version}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused_with_what_to_write() {
        for text in [
            "",
            "1.27",
            "~1.27",
            ">=1.27,",
            ">=",
            "> =1.27",
            ">=1.27 <1.30",
        ] {
            let why = Range::parse(text, kube_proxy).unwrap_err();
            assert!(why.contains("write "), "{text}: {why}");
        }
    }
}
