//! The drop census of a case: rules that drop or reject, ranked by the packets that ended in them while the
//! case was judged, as `iptables -nvL | grep DROP | sort` ranks them on a node.

use std::collections::BTreeMap;

use chainbreak_model::event::{Event, EventKind};
use chainbreak_netfilter::Site;
use serde::Serialize;

use crate::text::clean;

/// The packets that ended in one rule of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Drops {
    /// Which node.
    pub node: String,
    /// At least so many packets.
    pub packets: u64,
    /// At least so many bytes.
    pub bytes: u64,
    /// Whose rule.
    pub owner: String,
    /// What listed it: `iptables` is the node's own iptables backend.
    pub front: String,
    /// Its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Its text.
    pub rule: String,
    /// What it means that packets end there, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<&'static str>,
}

/// The census of a history, most packets first.
pub fn drops(events: &[Event]) -> Vec<Drops> {
    let mut sums = BTreeMap::<(&str, &str, Site), Drops>::new();
    for event in events {
        let EventKind::Drops(seen) = &event.what else {
            continue;
        };
        for dropped in &seen.grown {
            let site = Site {
                table: dropped.table.clone(),
                chain: dropped.chain.clone(),
                rule: dropped.rule.clone(),
            };
            let meaning = site.meaning();
            let key = (seen.node.as_str(), seen.front.as_str(), site);
            let sum = sums.entry(key).or_insert_with(|| Drops {
                node: seen.node.to_string(),
                packets: 0,
                bytes: 0,
                owner: clean(&dropped.owner),
                front: clean(&seen.front),
                table: clean(&dropped.table),
                chain: clean(&dropped.chain),
                rule: clean(&dropped.rule),
                meaning,
            });
            sum.packets += dropped.packets;
            sum.bytes += dropped.bytes;
        }
    }
    let mut drops: Vec<Drops> = sums.into_values().collect();
    drops.sort_by_key(|drop| std::cmp::Reverse(drop.packets));
    drops
}

/// The census as lines: a rule each, and below it what it means. Nothing when no packet was dropped.
pub fn lines(drops: &[Drops]) -> Vec<String> {
    let width = |of: fn(&Drops) -> usize| drops.iter().map(of).max().unwrap_or_default();
    let nodes = width(|drop| drop.node.chars().count());
    let owners = width(|drop| drop.owner.chars().count());
    let packets = width(|drop| drop.packets.to_string().len()).max("packets".len());
    let bytes = width(|drop| drop.bytes.to_string().len()).max("bytes".len());
    let mut lines = Vec::new();
    if !drops.is_empty() {
        lines.push(format!(
            "{:nodes$}  {:>packets$}  {:>bytes$}  {:owners$}  rule",
            "node", "packets", "bytes", "owner"
        ));
    }
    for drop in drops {
        let front = match drop.front.as_str() {
            "iptables" | "nft" | "conntrack" => String::new(),
            other => format!(" ({other})"),
        };
        lines.push(format!(
            "{:nodes$}  {:>packets$}  {:>bytes$}  {:owners$}  {} {} {}{front}",
            drop.node, drop.packets, drop.bytes, drop.owner, drop.table, drop.chain, drop.rule
        ));
        let meaning = drop.meaning.iter();
        lines.extend(meaning.map(|meaning| format!("{:nodes$}  {meaning}", "")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use chainbreak_model::event::{Dropped, DropsSeen};

    fn seen(node: &str, chain: &str, rule: &str, packets: u64) -> Event {
        let dropped = Dropped {
            owner: "kube-proxy".to_owned(),
            table: "filter".to_owned(),
            chain: chain.to_owned(),
            rule: rule.to_owned(),
            packets,
            bytes: packets * 40,
        };
        Event {
            at_us: 1,
            what: EventKind::Drops(DropsSeen {
                node: node.into(),
                front: "iptables".to_owned(),
                grown: vec![dropped],
            }),
        }
    }

    #[test]
    fn looks_at_one_rule_are_summed_and_the_busiest_rule_of_any_node_comes_first() {
        let invalid = "-m conntrack --ctstate INVALID -j DROP";
        let events = [
            seen("n1", "KUBE-FORWARD", invalid, 3),
            seen("n2", "INPUT", "policy DROP", 9),
            seen("n1", "KUBE-FORWARD", invalid, 11),
            seen("n2", "KUBE-FORWARD", invalid, 1),
        ];
        let drops = drops(&events);
        let told: Vec<_> = drops
            .iter()
            .map(|drop| (drop.node.as_str(), drop.packets, drop.bytes))
            .collect();
        assert_eq!(told, [("n1", 14, 560), ("n2", 9, 360), ("n2", 1, 40)]);
        insta::assert_snapshot!(lines(&drops).join("\n"));
        assert!(lines(&[]).is_empty());
    }
}
