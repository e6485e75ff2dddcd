//! What agents complain of that is not known to mean something.

use std::collections::BTreeMap;

use super::{first_of, known::is_known};
use crate::{Complaint, Evidence, logs::Log};

/// What kube-proxy 1.31 and later says at that level of kubeadm's own configuration, when it has nothing else to say of it (seen of 1.34.10).
const ADVICE: &str = "err=\"nodePortAddresses is unset";
/// So much of an entry shows what it is.
const SHOWN: usize = 200;

/// What each agent's log has of it.
pub(super) fn complaints(evidence: &Evidence) -> Vec<Complaint> {
    evidence.logs.iter().filter_map(of).collect()
}

fn of(log: &Log) -> Option<Complaint> {
    let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    let unknown = log.complaints();
    let unknown = unknown.filter(|entry| !is_known(log.agent, entry) && !entry.contains(ADVICE));
    for entry in unknown {
        kinds.entry(gist(entry)).or_insert((0, entry)).0 += 1;
    }
    if kinds.is_empty() {
        return None;
    }
    let mut kinds: Vec<(usize, &str)> = kinds.into_values().collect();
    kinds.sort_by_key(|(times, _)| std::cmp::Reverse(*times));
    let lines = kinds
        .iter()
        .map(|(times, entry)| format!("{times} × {}", shown(entry)));
    Some(Complaint {
        what: format!("{} complains", log.agent),
        lines: first_of(lines),
        mends: None,
    })
}

/// What makes entries the same: their words without figures, names of chains and times.
fn gist(entry: &str) -> String {
    let first = entry.lines().next().unwrap_or_default();
    let words = first.split_whitespace().skip(3);
    let words = words.map(|word| word.split_once('=').map_or(word, |(name, _)| name));
    let words = words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// The first line, and the first of those below that names what is wrong.
pub(crate) fn shown(entry: &str) -> String {
    let mut lines = entry.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let names = ["Couldn't load target", "does not exist", "failed", "Error"];
    let below = lines.find(|line| names.iter().any(|it| line.contains(it)));
    let text = match below {
        Some(below) => format!("{first} {below}"),
        None => first.to_owned(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or(&text)),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Complaint, checks::tests::complaints};

    #[test]
    fn complaints_of_a_kind_are_one_line_with_how_often_they_came() {
        let odd = |second: u8, chain: &str| {
            format!(
                "E0610 07:32:{second}.910840       1 proxier.go:1564] \"Something is odd\" err=<\n\
                 \texit status 2: iptables v1.8.9 (legacy): Error with `KUBE-SVC-{chain}'\n > ipFamily=\"IPv4\"\n"
            )
        };
        let fine = "I0610 07:32:18.449102       1 proxier.go:828] \"Syncing iptables rules\" ipFamily=\"IPv4\"\n";
        let advice = "E1128 07:10:13.387344       1 server.go:256] \"Kube-proxy configuration may be incomplete or incorrect\" \
            err=\"nodePortAddresses is unset; NodePort connections will be accepted on all local IPs. Consider using \
            `--nodeport-addresses primary`\"\n";
        assert!(complaints(&[&[advice, fine].concat()]).is_empty());
        let log = [odd(16, "A"), fine.to_owned(), odd(22, "B")].concat();
        let [Complaint { what, lines, .. }] = complaints(&[&log]).try_into().unwrap();
        assert_eq!(what, "kube-proxy complains");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("2 × E0610") && lines[0].contains("Error with `KUBE-SVC-A'"),
            "{lines:?}"
        );
    }
}
