//! Findings in agents' logs, warnings and errors, without what makes them long.

use crate::{attribution, text::clean};

/// What an entry of klog (`E0610 … file.go:1] …`) or Felix (`… [ERROR][53] felix/table.go 7: …`)
/// finds wrong: its first line without the header, and the line that names a missing chain. `None` below a
/// warning.
pub(crate) fn log_finding(entry: &str) -> Option<String> {
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
    let named = entry
        .lines()
        .skip(1)
        .find(|line| attribution::missing_chain(line).is_some());
    let parts = std::iter::once(message.as_str()).chain(named.map(without_program));
    Some(clean(&parts.collect::<Vec<_>>().join(" … ")))
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

/// What makes findings the same: the words before the first `field=` and before what was missing.
pub(crate) fn gist(finding: &str) -> &str {
    let words = finding.split(" … ").next().unwrap_or(finding);
    let Some((before, _value)) = words.split_once('=') else {
        return words;
    };
    before
        .rsplit_once(' ')
        .map_or(before, |(words, _name)| words)
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
        let said = log_finding(entry).unwrap();
        assert_eq!(
            said,
            "Detected out-of-sync inserts, marking for resync chainName=\"INPUT\" table=\"filter\""
        );
        assert_eq!(
            gist(&said),
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
            log_finding(entry).unwrap(),
            "Failed to execute ip(6)tables-restore command error=exit status 1 \
             errorOutput=\"iptables-restore: line 21 failed\\n\" table=\"nat\""
        );
    }

    #[test]
    fn the_same_failure_with_another_chain_is_of_the_same_kind() {
        let of = |chain: &str| {
            format!("\"Failed to execute iptables-restore\" … Chain '{chain}' does not exist")
        };
        assert_eq!(gist(&of("KUBE-SVC-A")), gist(&of("KUBE-SVC-B")));
        assert_ne!(gist(&of("KUBE-SVC-A")), gist("\"Sync failed\""));
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
