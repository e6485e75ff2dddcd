//! What a world shows of a model: the kinds of rule that it wrote, and the kinds of chain that came of them.
//! Names, addresses, ports and shares are no part of a kind.

use std::collections::BTreeSet;

use chainbreak_netfilter::words;

use crate::{stage::Stage, world::Mode};

/// So many rules of one kind in a row are as good as more.
const MANY: usize = 3;

/// What the stage's commands and its kernel show.
pub(crate) fn of_stage(stage: &Stage, mode: Mode) -> BTreeSet<String> {
    let mut shown = BTreeSet::new();
    for command in &stage.ran {
        shown.insert(format!("command {}", kind(&command.argv.join(" "))));
        let lines = command.input.lines();
        shown.extend(lines.map(|line| format!("line {}", kind(line))));
    }
    for (place, lines) in stage.kernel.standing().places() {
        shown.insert(format!("{mode} {}: {}", kind(place), of_lines(lines)));
    }
    shown
}

/// The kinds of a chain's rules in order; those that repeat are counted up to [`MANY`].
fn of_lines(lines: &[String]) -> String {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for line in lines {
        let kind = kind(line);
        match runs.last_mut() {
            Some((last, count)) if *last == kind => *count = MANY.min(*count + 1),
            _ => runs.push((kind, 1)),
        }
    }
    let runs = runs.iter().map(|(kind, count)| format!("{count} x {kind}"));
    runs.collect::<Vec<_>>().join("; ")
}

/// Words without what is one object's own.
fn kind(line: &str) -> String {
    let kinds = words(line).map(|word| {
        let inner = word.split(' ').map(own).collect::<Vec<_>>();
        inner.join(" ")
    });
    kinds.collect::<Vec<_>>().join(" ")
}

/// Names of objects and of chains made for them hold a slash or a hash, numbers and addresses a digit.
fn own(word: &str) -> String {
    if let Some((start, hash)) = word.rsplit_once('-')
        && hash.len() == 16
        && start.starts_with("KUBE")
    {
        return format!("{start}-HASH");
    }
    if let Some((start, _)) = word.split_once('-')
        && word.contains('/')
    {
        return format!("{start}-NAME");
    }
    // A mark is what the rule is about.
    if word.starts_with("0x") {
        return word.to_owned();
    }
    if word.contains('/') {
        return "NAME".to_owned();
    }
    let v6 = word.contains("::");
    if v6 || word.starts_with(|it: char| it.is_ascii_digit()) {
        return "N".to_owned();
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_no_part_of_a_kind() {
        let pairs = [
            (
                "-A KUBE-SVC-AAAABBBBCCCCDDDD -m comment --comment \"ns/a:p -> 10.0.0.1:80\" -j KUBE-SEP-AAAABBBBCCCCDDDD",
                "-A KUBE-SVC-EEEEBBBBCCCCDDDD -m comment --comment \"ns/b -> 10.0.0.2:81\" -j KUBE-SEP-FAAABBBBCCCCDDDD",
            ),
            (
                "add rule ip kube-proxy service-ULMVA6XW-ns1/svc1/tcp/p80 ip daddr 10.0.0.1 jump x",
                "add rule ip kube-proxy service-AAMVA6XW-ns2/svc/tcp/ ip daddr 10.0.9.1 jump x",
            ),
        ];
        for (one, other) in pairs {
            assert_eq!(kind(one), kind(other));
        }
        assert_ne!(
            kind("-A KUBE-SVC-AAAABBBBCCCCDDDD -j X"),
            kind("-A KUBE-EXT-AAAABBBBCCCCDDDD -j X")
        );
        assert_ne!(kind("--mark 0x4000/0x4000"), kind("--mark 0x8000/0x8000"));
    }

    #[test]
    fn many_rules_of_a_kind_are_as_good_as_more() {
        let rules = |count: usize| of_lines(&vec!["-s 10.0.0.1/32 -j X".to_owned(); count]);
        assert_ne!(rules(2), rules(3));
        assert_eq!(rules(3), rules(7));
    }
}
