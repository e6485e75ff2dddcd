//! The `nft` commands that kube-proxy runs (sigs.k8s.io/knftables, nftables.go), with their exact
//! arguments.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    elements::Kind,
    transaction::{TABLE, Transaction, Words},
};
use crate::{
    kube_proxy::{Event, config::Config, config::Family, logs::Logs},
    step::{Io, Output},
};

/// Runs nft on kube-proxy's table of one family.
#[derive(Debug)]
pub(crate) struct Nft {
    io: Io<Event>,
    family: Family,
}

/// The names of what is in the table.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) chains: Vec<String>,
    pub(super) sets: Vec<String>,
}

/// A command that ended badly, as knftables words it.
#[derive(Debug)]
struct Failure {
    message: String,
    /// Whether what it was about is not there.
    not_found: bool,
}

impl Failure {
    fn of(output: &Output) -> Self {
        let first = output.stderr.lines().next().unwrap_or_default();
        Self {
            not_found: first.contains("No such file or directory"),
            message: if output.stderr.is_empty() {
                format!("exit status {}", output.exit)
            } else {
                output.stderr.clone()
            },
        }
    }
}

impl Nft {
    /// Asks nft for its version, and whether it takes a table with a comment; an error when it cannot be used.
    pub(crate) async fn probe(io: Io<Event>, family: Family) -> Result<Self, String> {
        let nft = Self { io, family };
        let failed =
            |failure: Failure| format!("could not run nftables command: {}", failure.message);
        let version = nft.command(&["--version"], String::new()).await;
        let version = version.map_err(failed)?;
        if version.starts_with("nftables v0.") || version.starts_with("nftables v1.0.0 ") {
            let version = version.trim();
            return Err(format!(
                "nft version must be v1.0.1 or later (got {version})"
            ));
        }
        let mut tx = Transaction::new(family);
        tx.table("test");
        let checked = nft.command(&["--check", "-f", "-"], tx.into_text()).await;
        checked.map_err(failed)?;
        Ok(nft)
    }

    /// Makes a transaction happen; what nft said when it did not.
    pub(super) async fn run(&self, tx: Transaction) -> Result<(), String> {
        let done = self.command(&["-f", "-"], tx.into_text()).await;
        done.map(drop).map_err(|failure| failure.message)
    }

    /// The names of chains and sets. What cannot be listed is said, and taken for empty: nothing
    /// stale will be deleted.
    pub(super) async fn list(&self, config: &Config, logs: &Logs) -> Listed {
        if config.version.lists_whole_table() {
            return self.list_table(logs).await;
        }
        let mut listed = Listed::default();
        let ip = Words::of(self.family).ip;
        for (plural, names) in [("chains", &mut listed.chains), ("sets", &mut listed.sets)] {
            let words = ["--json", "list", plural, ip];
            match self.command(&words, String::new()).await {
                Ok(output) => *names = named(&output, plural.trim_end_matches('s')),
                Err(failure) if failure.not_found => {}
                Err(failure) => logs.list_failed(plural, &failure.message),
            }
        }
        listed
    }

    /// A table that is not there is an error like others (proxier.go 1.36, `ListAll`).
    async fn list_table(&self, logs: &Logs) -> Listed {
        let ip = Words::of(self.family).ip;
        let words = ["--json", "--terse", "list", "table", ip, TABLE];
        match self.command(&words, String::new()).await {
            Ok(output) => Listed {
                chains: named(&output, "chain"),
                sets: named(&output, "set"),
            },
            Err(failure) => {
                logs.table_unlisted(&failure.message);
                Listed::default()
            }
        }
    }

    /// The elements of a set or map; none when it is not there.
    pub(super) async fn elements(
        &self,
        kind: Kind,
        name: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        let (kind, ip) = (kind.word(), Words::of(self.family).ip);
        let words = ["--json", "list", kind, ip, TABLE, name];
        match self.command(&words, String::new()).await {
            Ok(output) => elements(&output, kind)
                .ok_or_else(|| format!("unable to parse JSON output: {output:?}")),
            Err(failure) if failure.not_found => Ok(BTreeMap::new()),
            Err(failure) => Err(format!("failed to run nft: {}", failure.message)),
        }
    }

    async fn command(&self, words: &[&str], input: String) -> Result<String, Failure> {
        let words = [&["nft"], words].concat();
        let output = self.io.run(&words, input).await;
        match output.exit {
            0 => Ok(output.stdout),
            _ => Err(Failure::of(&output)),
        }
    }
}

/// The objects of one kind in what `nft --json list` printed.
fn objects(output: &str, kind: &str) -> Option<Vec<Value>> {
    let listing: Value = serde_json::from_str(output).ok()?;
    let objects = listing.get("nftables")?.as_array()?.iter();
    Some(objects.filter_map(|it| it.get(kind)).cloned().collect())
}

/// The names of those in kube-proxy's table.
fn named(output: &str, kind: &str) -> Vec<String> {
    let objects = objects(output, kind).unwrap_or_default();
    let ours = objects
        .iter()
        .filter(|it| it.get("table").and_then(Value::as_str) == Some(TABLE));
    ours.filter_map(|it| it.get("name")?.as_str())
        .map(str::to_owned)
        .collect()
}

fn elements(output: &str, kind: &str) -> Option<BTreeMap<String, String>> {
    let container = objects(output, kind)?.into_iter().next()?;
    let Some(elements) = container.get("elem") else {
        return Some(BTreeMap::new());
    };
    let element = |element: &Value| match (kind, element) {
        ("map", Value::Array(pair)) => Some((text(pair.first()?)?, text(pair.get(1)?)?)),
        _ => Some((text(element)?, String::new())),
    };
    elements.as_array()?.iter().map(element).collect()
}

/// A key or a value as a transaction writes it: `10.96.10.10 . tcp . 80`, `goto service-…`, `drop`.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Object(object) => {
            let (word, inner) = object.iter().next()?;
            match (word.as_str(), inner) {
                // With a comment or a counter.
                ("elem", inner) => text(inner.get("val")?),
                ("concat", Value::Array(parts)) => {
                    let parts: Option<Vec<String>> = parts.iter().map(text).collect();
                    Some(parts?.join(" . "))
                }
                (verdict, Value::Null) => Some(verdict.to_owned()),
                (verdict, inner) => Some(format!("{verdict} {}", inner.get("target")?.as_str()?)),
            }
        }
        _ => None,
    }
}
