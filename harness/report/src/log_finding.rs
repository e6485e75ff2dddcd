//! Findings in agents' logs, warnings and errors, without what makes them long.

use std::fmt;

use serde::Serialize;

use crate::{attribution, text::clean};

/// What an entry finds wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LogFinding {
    /// Its first line without the header.
    pub message: String,
    /// The line that names a missing chain, where it is a further one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl LogFinding {
    /// Of an entry of klog (`E0610 … file.go:1] …`) or Felix (`… [ERROR][53] felix/table.go 7: …`). `None` below a
    /// warning.
    pub fn of(entry: &str) -> Option<Self> {
        let first = entry.lines().next()?;
        let digit = |at: usize| first.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        let klog = first.starts_with(['W', 'E', 'F']) && digit(1) && digit(4);
        let felix = ["[WARNING]", "[ERROR]", "[FATAL]", "[PANIC]"];
        let message = if klog {
            first.split_once("] ").map_or(first, |(_, message)| message)
        } else {
            let (_, rest) = felix.iter().find_map(|level| first.split_once(level))?;
            rest.split_once(": ").map_or(rest, |(_, message)| message)
        };
        let message = without_lists(message.strip_suffix("err=<").unwrap_or(message).trim());
        let names = |line: &&str| attribution::missing_chain(line).is_some();
        let missing = entry.lines().skip(1).find(names);
        Some(Self {
            message: clean(&message),
            missing: missing.map(|line| clean(without_program(line))),
        })
    }

    /// What makes findings the same: the words before the first `field=`, whatever was missing.
    pub fn gist(&self) -> &str {
        let Some((before, _value)) = self.message.split_once('=') else {
            return &self.message;
        };
        before
            .rsplit_once(' ')
            .map_or(before, |(words, _name)| words)
    }

    /// Whether it speaks of that chain.
    pub fn names(&self, chain: &str) -> bool {
        let mut lines = std::iter::once(&self.message).chain(&self.missing);
        lines.any(|line| line.contains(chain))
    }
}

impl fmt::Display for LogFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.missing
            .iter()
            .try_for_each(|line| write!(f, " … {line}"))
    }
}

/// Fields of Felix's entries that repeat what the history has in full: rules as hashes, inputs of a hundred
/// lines.
const LISTS: [&str; 5] = [
    "actualRuleIDs",
    "expectedRuleIDs",
    "input",
    "output",
    "ipVersion",
];

/// An entry without the fields of [`LISTS`].
fn without_lists(message: &str) -> String {
    // Says nothing about what failed, and stands before what does.
    let mut message = message.replace("Ignoring deprecated --wait-interval option.\\n", "");
    for name in LISTS {
        let field = format!(" {name}=");
        while let Some((before, value)) = message.split_once(&field) {
            message = format!("{before}{}", after_value(value));
        }
    }
    message
}

/// What follows a value: a quoted text, a list in braces, or a word.
fn after_value(value: &str) -> &str {
    let mut quoted = false;
    let mut escaped = false;
    let mut depth = 0_usize;
    for (at, c) in value.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth = depth.saturating_sub(1),
            ' ' if !quoted && depth == 0 => return value.get(at..).unwrap_or_default(),
            _ => {}
        }
    }
    ""
}

/// A line of iptables without `iptables-restore v1.8.9 (legacy): ` in front.
pub(crate) fn without_program(line: &str) -> &str {
    let line = line.trim();
    let message = line
        .split_once("):")
        .filter(|(program, _)| program.contains("tables"));
    message.map_or(line, |(_, message)| message.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_of_felix_is_without_its_lists_and_inputs() {
        let entry = "2025-06-10 10:00:00.000 [WARNING][53] felix/table.go 7: Detected out-of-sync \
            inserts, marking for resync actualRuleIDs=[]string{\"\", \"a b\"} chainName=\"INPUT\" \
            expectedRuleIDs=[]string{\"x\"} ipVersion=0x4 table=\"filter\"";
        let said = LogFinding::of(entry).unwrap();
        assert_eq!(
            said.to_string(),
            "Detected out-of-sync inserts, marking for resync chainName=\"INPUT\" table=\"filter\""
        );
        assert_eq!(
            said.gist(),
            "Detected out-of-sync inserts, marking for resync"
        );
    }

    #[test]
    fn a_failed_restore_is_told_without_its_input() {
        let entry = "2025-06-10 10:00:00.000 [ERROR][53] felix/table.go 9: Failed to execute \
            ip(6)tables-restore command error=exit status 1 \
            errorOutput=\"Ignoring deprecated --wait-interval option.\\niptables-restore: line 21 failed\\n\" input=\"*nat\\n--comment \\\"a\\\" -j X\\n\" \
            table=\"nat\"";
        assert_eq!(
            LogFinding::of(entry).unwrap().to_string(),
            "Failed to execute ip(6)tables-restore command error=exit status 1 \
             errorOutput=\"iptables-restore: line 21 failed\\n\" table=\"nat\""
        );
    }

    #[test]
    fn the_same_failure_with_another_chain_is_of_the_same_kind() {
        let of = |chain: &str| {
            let entry = format!(
                "E1121 06:30:05.0 1 proxier.go:1] \"Failed to execute iptables-restore\" err=<\n\
                 \tChain '{chain}' does not exist\n"
            );
            LogFinding::of(&entry).unwrap()
        };
        assert!(of("KUBE-SVC-A").names("KUBE-SVC-A"));
        assert_eq!(of("KUBE-SVC-A").gist(), of("KUBE-SVC-B").gist());
        assert_ne!(of("KUBE-SVC-A").gist(), "\"Sync failed\"");
    }

    #[test]
    fn an_ellipsis_of_the_agents_own_does_not_end_its_words() {
        let entry = "W1121 06:30:05.0 1 shared.go:1] \"Waiting … for caches\" n=1";
        assert_eq!(
            LogFinding::of(entry).unwrap().gist(),
            "\"Waiting … for caches\""
        );
    }

    #[test]
    fn the_name_of_the_program_goes_with_or_without_words_behind_it() {
        let name = "iptables-nft-restore v1.8.9 (nf_tables):";
        assert_eq!(without_program(name), "");
        assert_eq!(
            without_program(&format!("{name} line 3: no chain")),
            "line 3: no chain"
        );
        assert_eq!(without_program("line 14 failed"), "line 14 failed");
    }
}
