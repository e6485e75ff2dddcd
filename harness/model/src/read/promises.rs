//! `promises:`.

use std::time::Duration;

use indexmap::IndexMap;

use super::{
    fields::{Fields, duration, entries, note, percent, regex, text, truth, word},
    is_name,
    timeline::only_entry,
    words,
};
use crate::{
    case::{Promise, RuleQuery},
    complaint::Gathered,
    names::{AgentName, PromiseName, TrafficName},
    nearest::suggest,
    yaml::{Entry, Node},
};

const GAP: (Duration, Duration) = (Duration::from_micros(1), Duration::from_secs(3600));
const AGENTS: [(&str, AgentName); 2] = [
    ("kube-proxy", AgentName::KubeProxy),
    ("felix", AgentName::Felix),
];
const TABLES: [(&str, &str); 4] = [
    ("nat", "nat"),
    ("filter", "filter"),
    ("mangle", "mangle"),
    ("raw", "raw"),
];

/// Reads `promises:`; a promise that a variant sets to `none` is left out.
pub(super) fn read(
    gathered: &Gathered,
    node: &Node,
    traffic: &[&str],
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
        match promise(gathered, node, traffic) {
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

fn promise(gathered: &Gathered, node: &Node, traffic: &[&str]) -> Option<Promise> {
    let (word, entry) = only_entry(gathered, node, "a promise", words::PROMISES)?;
    match word {
        "available" => available(gathered, &entry.node, traffic),
        "no-log" => {
            log(gathered, &entry.node).map(|(agent, matches)| Promise::NoLog { agent, matches })
        }
        "has-log" => {
            log(gathered, &entry.node).map(|(agent, matches)| Promise::HasLog { agent, matches })
        }
        _ => has_rule(gathered, &entry.node),
    }
}

fn available(gathered: &Gathered, node: &Node, known: &[&str]) -> Option<Promise> {
    let fields = Fields::of(gathered, node, "available", words::AVAILABLE)?;
    let traffic = fields.need("traffic", |node| {
        let name = text(gathered, node, "traffic")?;
        if !known.contains(&name) {
            let hint = suggest(name, known.iter().copied());
            note(
                gathered,
                &node.place,
                format!("unknown traffic {name:?}"),
                hint,
            );
        }
        Some(TrafficName::from(name))
    });
    let at_least = fields.or("at-least", 100.0, |node| {
        percent(gathered, node, "at-least")
    });
    let longest_gap = fields.maybe("longest-gap", |node| {
        duration(gathered, node, "longest-gap", GAP)
    });
    Some(Promise::Available {
        traffic: traffic?,
        at_least: at_least?,
        longest_gap: longest_gap?,
    })
}

fn log(gathered: &Gathered, node: &Node) -> Option<(AgentName, String)> {
    let fields = Fields::of(gathered, node, "a log promise", words::LOG)?;
    let agent = fields.need("agent", |node| word(gathered, node, "agent", &AGENTS));
    let matches = fields.need("matches", |node| regex(gathered, node, "matches"));
    Some((agent?, matches?))
}

fn has_rule(gathered: &Gathered, node: &Node) -> Option<Promise> {
    let fields = Fields::of(gathered, node, "has-rule", words::RULE)?;
    let table = fields.need("table", |node| word(gathered, node, "table", &TABLES));
    let chain = fields.need("chain", |node| chain_name(gathered, node, "chain"));
    let jump = fields.maybe("jump", |node| chain_name(gathered, node, "jump"));
    let always = fields.or("always", false, |node| truth(gathered, node, "always"));
    let rule = RuleQuery {
        table: table?.to_owned(),
        chain: chain?,
        jump: jump?,
    };
    Some(Promise::HasRule {
        rule,
        always: always?,
    })
}

/// A chain's or a target's name; iptables allows 28 bytes.
fn chain_name(gathered: &Gathered, node: &Node, what: &str) -> Option<String> {
    let written = text(gathered, node, what)?;
    if written.len() > 28 || written.contains(char::is_whitespace) || written.starts_with('-') {
        let message = format!("{written:?} cannot be the name of a chain");
        note(
            gathered,
            &node.place,
            message,
            Some("iptables allows 28 characters".into()),
        );
        return None;
    }
    Some(written.to_owned())
}
