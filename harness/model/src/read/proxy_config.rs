//! `kube-proxy: { config: … }`, in the words of `KubeProxyConfiguration`.

use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::fields::{Fields, duration, items, note, number, text, truth, word};
use crate::{
    diagnostic::Gathered,
    proxy_config::{FIELDS, Setting, SettingKind},
    yaml::Node,
};

/// The longest time that anything here may be told to wait.
const DAYS: Duration = Duration::from_secs(30 * 24 * 3600);

/// Reads it. What is wrong is noted.
pub(super) fn read(gathered: &Gathered, node: &Node) -> Option<Map<String, Value>> {
    let read = part(gathered, node, "config", FIELDS)?;
    consistent(gathered, node, &read).then_some(read)
}

fn part(
    gathered: &Gathered,
    node: &Node,
    what: &'static str,
    known: &'static [Setting],
) -> Option<Map<String, Value>> {
    let names: Vec<&str> = known.iter().map(|(name, ..)| *name).collect();
    let fields = Fields::foreign(gathered, node, what, &names)?;
    let mut read = Some(Map::new());
    for (name, kind, _) in known {
        let Some(node) = fields.get(name) else {
            continue;
        };
        match (value(gathered, node, name, *kind), &mut read) {
            (Some(value), Some(read)) => drop(read.insert((*name).to_owned(), value)),
            _ => read = None,
        }
    }
    read
}

fn value(gathered: &Gathered, node: &Node, name: &'static str, kind: SettingKind) -> Option<Value> {
    match kind {
        SettingKind::Truth => truth(gathered, node, name).map(Value::Bool),
        SettingKind::Whole(low, high) => {
            number::<u64>(gathered, node, name, (low, high)).map(|number| json!(number))
        }
        SettingKind::Time => {
            let bounds = (Duration::ZERO, DAYS);
            duration(gathered, node, name, bounds)?;
            text(gathered, node, name).map(|text| json!(text))
        }
        SettingKind::Text => text(gathered, node, name).map(|text| json!(text)),
        SettingKind::Networks => {
            let written = text(gathered, node, name)?;
            let all = written.split(',').filter(|it| !it.is_empty());
            let good = all
                .map(|it| network(gathered, node, name, it))
                .fold(true, |a, b| a & b);
            good.then(|| json!(written))
        }
        SettingKind::NetworkList => {
            let mut read = Some(Vec::new());
            for item in items(gathered, node, name)? {
                let written = text(gathered, item, name)?;
                match (
                    written == "primary" || network(gathered, item, name, written),
                    &mut read,
                ) {
                    (true, Some(read)) => read.push(json!(written)),
                    _ => read = None,
                }
            }
            read.map(Value::Array)
        }
        SettingKind::Word(words) => {
            let words: Vec<(&str, &str)> = words.iter().map(|word| (*word, *word)).collect();
            word(gathered, node, name, &words).map(|word| json!(word))
        }
        SettingKind::Part(fields) => part(gathered, node, name, fields).map(Value::Object),
    }
}

fn network(gathered: &Gathered, node: &Node, name: &str, written: &str) -> bool {
    let good = written.parse::<IpNet>().is_ok();
    if !good {
        let message = format!("{name} is a network, not {written:?}");
        let hint = "write it as 10.0.0.0/8".to_owned();
        note(gathered, &node.place, message, Some(hint));
    }
    good
}

/// kube-proxy refuses to start with a mode that lacks its interface (validation.go).
fn consistent(gathered: &Gathered, node: &Node, read: &Map<String, Value>) -> bool {
    let interface = |name: &str| {
        let named = read.get("detectLocal").and_then(|it| it.get(name));
        named
            .and_then(Value::as_str)
            .is_some_and(|it| !it.is_empty())
    };
    let needed = match read.get("detectLocalMode").and_then(Value::as_str) {
        Some("BridgeInterface") => "bridgeInterface",
        Some("InterfaceNamePrefix") => "interfaceNamePrefix",
        _ => return true,
    };
    if !interface(needed) {
        let message = format!("this detectLocalMode needs detectLocal.{needed}");
        note(gathered, &node.place, message, None);
    }
    interface(needed)
}
