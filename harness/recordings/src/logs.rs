//! Kinds of log lines: severity, place in the source and text, without names, numbers and times.
//!
//! How often a kind comes is a matter of time and not compared. What is left out, and why, is [`LEFT_OUT`].

use std::collections::BTreeSet;

/// Files whose lines are not compared. The model begins where the proxier does.
pub const LEFT_OUT: [(&str, &str); 15] = [
    ("flags.go", "command line"),
    ("feature_gate.go", "command line"),
    ("server.go", "process: version, out-of-memory score"),
    ("server_others.go", "process: choice of the proxier"),
    ("server_linux.go", "process: choice of the proxier"),
    ("conntrack.go", "process: conntrack's limits"),
    ("oom_linux.go", "process"),
    (
        "utils.go",
        "process: route_localnet, which the model does not set",
    ),
    ("node.go", "process: the look for the node's address"),
    ("event.go", "client-go: an event that the API refused"),
    ("reflector.go", "client-go: lists and watches"),
    ("shared_informer.go", "client-go: caches"),
    ("config.go", "client-go: caches"),
    (
        "topology.go",
        "why a port's zone hints are of no use, in every sync: the model does without the words",
    ),
    ("trace.go", "commands that take two seconds"),
];

/// Beginnings of lines of the proxier itself that are not compared.
pub const UNMODELLED: [(&str, &str); 9] = [
    (
        "Not syncing iptables until",
        "both caches may have been filled before the first of them is told so",
    ),
    (
        "can't open",
        "whether a node port is given back first is a matter of when its changes were seen",
    ),
    (
        "Opened local port \"externalIP",
        "the model does not know which addresses are the node's",
    ),
    ("Setting ", "the model sets no route_localnet"),
    (
        "Using iptables mark for masquerade",
        "said once, at the start, after 1.20",
    ),
    ("Iptables sync params", "the same"),
    (
        "Using nftables mark for masquerade",
        "the same, in nftables mode",
    ),
    ("NFTables sync params", "the same, in nftables mode"),
    ("Iptables supports --random-fully", "the same"),
];

/// Beginnings of lines that come only when changes are seen one by one: of a service that loses its
/// endpoints and gets them back, one kube-proxy may see both at once; and a chain of nftables mode is deleted by a
/// sync that begins more than a second after it was emptied; and a service that is made and deleted again may never be synced. That
/// both know the kind is compared over all worlds.
pub const BY_TIMING: [&str; 13] = [
    "Unable to delete stale chains",
    "Deleting stale nftables chains",
    "Stale udp service",
    "Syncing nftables rules",
    "Failed to delete",
    "Service ",
    "Adding new service port",
    "Updating existing service port",
    "Removing service port",
    "Opened local port",
    "Opening healthcheck",
    "Closing healthcheck",
    // A Service that comes and goes within a round is seen by the sync of one family, of both or of none.
    "Failed to start healthcheck",
];

/// Whether a kind may be missing in one life by chance.
fn is_by_timing(kind: &str) -> bool {
    let text = kind.split_once("] ").map_or("", |(_, text)| text);
    let text = text.trim_start_matches('"');
    BY_TIMING.iter().any(|start| text.starts_with(start))
}

/// Said of a partial sync of nftables mode that misses what a stranger deleted.
const MISSED: [&str; 2] = ["nftables sync failed", "Sync failed"];
/// Makes the sync full that begins with it (from 1.33), which then makes again what it would have missed. Whether a chain was left to
/// be deleted is a matter of time.
const MAKES_FULL: &str = "Unable to delete stale chains";

/// Whether a kind may be missing in one of these lives by chance.
pub fn is_by_chance(kind: &str, lives: &[BTreeSet<String>; 2]) -> bool {
    let mut said = lives.iter().flatten();
    is_by_timing(kind)
        || MISSED.iter().any(|it| kind.contains(it)) && said.any(|it| it.contains(MAKES_FULL))
}

/// What of the place in the source is part of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sites {
    /// File and line.
    Lines,
    /// Only the file.
    Files,
}

/// The kinds of a log.
pub fn kinds(lines: &[String], sites: Sites) -> BTreeSet<String> {
    lines.iter().filter_map(|line| kind(line, sites)).collect()
}

/// What only the left one says, and what only the right one.
pub fn differences([left, right]: &[BTreeSet<String>; 2]) -> Vec<String> {
    let only_left = left.difference(right).map(|it| format!("  < {it}"));
    let only_right = right.difference(left).map(|it| format!("  > {it}"));
    only_left.chain(only_right).collect()
}

/// The kind of a line; none for one that continues another or is left out.
fn kind(line: &str, sites: Sites) -> Option<String> {
    let (header, text) = line.split_once("] ")?;
    let severity = header.chars().next().filter(|it| "IWEF".contains(*it))?;
    let site = header.rsplit(' ').next()?;
    let file = site.split(':').next()?;
    if LEFT_OUT.iter().any(|(left_out, _)| *left_out == file) {
        return None;
    }
    let begins = |start: &str| text.trim_start_matches('"').starts_with(start);
    if UNMODELLED.iter().any(|(start, _)| begins(start)) {
        return None;
    }
    let site = match sites {
        Sites::Lines => site,
        Sites::Files => file,
    };
    let words: Vec<String> = text.split(' ').map(word).collect();
    Some(format!("{severity} {site}] {}", words.join(" ")))
}

/// Names of objects and their ports hold a slash or are quoted; all else that varies holds digits.
fn word(word: &str) -> String {
    let is_path = word.starts_with("net/") || word.starts_with('/');
    if word.contains('/') && !is_path && !word.contains("KUBE-") {
        return "NAME".to_owned();
    }
    if word.contains(|it: char| it.is_ascii_digit()) {
        return "N".to_owned();
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_times_are_no_part_of_a_kind() {
        let lines = |name: &str, took: &str| {
            [
                format!(
                    "I1121 09:33:54.359178      11 service.go:275] Service default/{name} updated: 1 ports"
                ),
                format!("I1121 09:33:54.527507      1 proxier.go:825] syncProxyRules took {took}"),
            ]
        };
        let (first, second) = (lines("mark", "72.41ms"), lines("web", "1m0s"));
        let [first, second] = [&first, &second].map(|it| kinds(it, Sites::Lines));
        assert_eq!(first, second);
        assert_eq!(first.len(), 2);
    }

    #[test]
    fn a_stale_chain_that_stayed_may_make_a_failure_go_unsaid() {
        let stale = kinds(
            &["E1 t 1 p.go:1] \"Unable to delete stale chains; will retry later\"".into()],
            Sites::Files,
        );
        let failed = kinds(
            &["E1 t 1 p.go:2] \"nftables sync failed\" err=<".into()],
            Sites::Files,
        );
        let kind = failed.first().unwrap().clone();
        assert!(is_by_chance(&kind, &[stale, failed.clone()]));
        assert!(!is_by_chance(&kind, &[BTreeSet::new(), failed]));
    }

    #[test]
    fn severity_place_and_words_are_part_of_a_kind() {
        let line = |start: &str| vec![format!("{start}] Sync failed; retrying in 30s")];
        let lines = ["I1 t 1 a.go:1", "E1 t 1 a.go:1", "I1 t 1 a.go:2"].map(line);
        let count = |sites| {
            let kinds = lines.iter().flat_map(|it| kinds(it, sites));
            kinds.collect::<BTreeSet<_>>().len()
        };
        assert_eq!((count(Sites::Lines), count(Sites::Files)), (3, 2));
    }
}
