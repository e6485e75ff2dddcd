//! Reading a scenario: YAML to a checked [`Scenario`], or every mistake of it at once.
//!
//! A variant is read by laying its overrides over the scenario's tree and reading the result like any
//! scenario, so that whatever a variant writes is checked where it stands.

mod cluster;
mod fields;
mod manifests;
mod network;
mod promises;
mod proxy_config;
mod strict;
mod timeline;
mod traffic;
mod variants;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use indexmap::IndexMap;

use crate::{
    case::{ClusterSpec, IptablesVariant},
    diagnostic::{Diagnostic, Diagnostics, Gathered, Place, Source},
    matrix::MatrixKey,
    names::ScenarioName,
    nearest::suggest,
    scenario::{Run, Scenario},
    yaml::{self, Node, Value},
};
pub(crate) use cluster::NODES;
pub use fields::parse_duration;
use fields::{Fields, entries, items, names, note, number, text, texts};
use manifests::Manifests;

/// The fields of each mapping of the language, for the reader and for the schema.
pub(crate) mod words {
    pub(crate) const SCENARIO: &[&str] = &[
        "name",
        "about",
        "incident",
        "seed",
        "needs",
        "cluster",
        "manifests",
        "traffic",
        "timeline",
        "promises",
        "matrix",
        "variants",
    ];
    pub(crate) const CLUSTER: &[&str] = &[
        "nodes",
        "ip-families",
        "iptables",
        "kube-proxy",
        "calico",
        "felix",
        "hosts",
        "sysctls",
        "host-sysctls",
        "cni",
    ];
    /// Settings that a child network namespace reads and cannot write (Linux 6.18, `nf_conntrack_standalone.c`).
    pub(crate) const HOST_SYSCTLS: &[&str] = &[
        "net.netfilter.nf_conntrack_max",
        "net.netfilter.nf_conntrack_buckets",
    ];
    pub(crate) const HOST: &[&str] = &["addresses", "routes", "nginx"];
    pub(crate) const HOST_ROUTE: &[&str] = &["to", "via"];
    pub(crate) const CNI: &[&str] = &["profile", "external-snat", "randomize-snat", "vpc-cidrs"];
    pub(crate) const KUBE_PROXY: &[&str] = &[
        "mode",
        "iptables",
        "version",
        "source",
        "min-sync-period",
        "sync-period",
        "full-sync-period",
        "config",
    ];
    pub(crate) const CALICO: &[&str] = &["version", "source", "pods"];
    pub(crate) const ONLY: &[&str] = &["kube-proxy", "calico"];
    pub(crate) const TRAFFIC: &[&str] = &[
        "from",
        "to",
        "port",
        "protocol",
        "family",
        "every",
        "connections",
        "timeout",
    ];
    pub(crate) const STEPS: &[&str] = &[
        "settle",
        "mark",
        "churn",
        "felix",
        "apply",
        "delete",
        "slow",
        "stop",
        "pause",
        "restart",
        "upgrade",
        "switch",
        "sysctl",
        "fill-conntrack",
        "link-down",
        "loss",
        "craft",
        "route",
        "lock",
        "flush",
        "delete-rule",
        "run",
    ];
    /// Beside what a step does.
    pub(crate) const STEP_NAME: &str = "name";
    pub(crate) const UPGRADE: &[&str] = &["kube-proxy", "calico", "node"];
    pub(crate) const SWITCH: &[&str] = &["dataplane"];
    pub(crate) const CHURN: &[&str] = &["deployment", "replicas", "every", "for"];
    pub(crate) const SLOW: &[&str] = &["agent", "command", "by", "for"];
    pub(crate) const DELETE: &[&str] = &["kind", "namespace", "name"];
    pub(crate) const AGENT_FAULT: &[&str] = &["agent", "node", "for"];
    pub(crate) const RESTART: &[&str] = &["agent", "node"];
    pub(crate) const SYSCTL: &[&str] = &["at", "set", "for"];
    pub(crate) const FILL_CONNTRACK: &[&str] = &["node", "entries", "for"];
    pub(crate) const LINK_DOWN: &[&str] = &["at", "interface", "for"];
    pub(crate) const CRAFT: &[&str] = &["traffic", "segment", "from", "every", "for"];
    pub(crate) const LOSS: &[&str] = &["at", "share", "for"];
    pub(crate) const ROUTE: &[&str] = &["at", "to", "via", "dev", "for"];
    pub(crate) const LOCK: &[&str] = &["node", "for"];
    pub(crate) const FLUSH: &[&str] = &["node", "table", "chain", "backend", "family"];
    pub(crate) const DELETE_RULE: &[&str] =
        &["node", "table", "chain", "matches", "backend", "family"];
    pub(crate) const RUN: &[&str] = &["at", "as", "command", "for"];
    pub(crate) const TABLES: &[&str] = &["nat", "filter", "mangle", "raw"];
    pub(crate) const BACKENDS: &[&str] = &["legacy", "nft", "nftables"];
    pub(crate) const RULE_FAMILIES: &[&str] = &["ip", "ip6", "inet"];
    pub(crate) const COMMANDS: &[&str] = &[
        "iptables",
        "iptables-save",
        "iptables-restore",
        "ip6tables",
        "ip6tables-save",
        "ip6tables-restore",
        "nft",
        "ipset",
        "conntrack",
        TAKING_CHANGES,
    ];
    /// No command but a point in kube-proxy's model: between its look at what changed and its taking it over.
    pub(crate) const TAKING_CHANGES: &str = "taking-changes";
    pub(crate) const PROMISES: &[&str] = &[
        "available",
        "no-log",
        "has-log",
        "has-rule",
        "has-element",
        "counter",
        "source",
        "source-ports",
        "balance",
        "resets",
        "recovers",
    ];
    pub(crate) const AVAILABLE: &[&str] = &[
        "traffic",
        "at-least",
        "longest-gap",
        "from",
        "until",
        "during",
        "after",
    ];
    pub(crate) const LOG: &[&str] = &["agent", "matches", "from", "until", "during", "after"];
    pub(crate) const RULE: &[&str] = &[
        "service", "table", "chain", "jump", "matches", "family", "backend",
    ];
    pub(crate) const HAS_RULE: &[&str] = &[
        "service", "table", "chain", "jump", "matches", "family", "backend", "node", "always",
        "absent", "from", "until", "during", "after",
    ];
    pub(crate) const HAS_ELEMENT: &[&str] = &[
        "table", "set", "element", "family", "node", "always", "absent", "from", "until", "during",
        "after",
    ];
    pub(crate) const COUNTER: &[&str] = &[
        "conntrack",
        "snmp",
        "rule",
        "at",
        "at-least",
        "at-most",
        "from",
        "until",
        "during",
        "after",
    ];
    pub(crate) const CONNTRACK: &[&str] = &[
        "found",
        "invalid",
        "insert",
        "insert_failed",
        "drop",
        "early_drop",
        "error",
        "search_restart",
        "clash_resolve",
        "chaintoolong",
    ];
    pub(crate) const SOURCE: &[&str] = &["traffic", "is", "from", "until", "during", "after"];
    pub(crate) const SOURCE_PORTS: &[&str] =
        &["traffic", "within", "from", "until", "during", "after"];
    pub(crate) const BALANCE: &[&str] = &[
        "traffic",
        "over",
        "p-at-least",
        "from",
        "until",
        "during",
        "after",
    ];
    pub(crate) const RESETS: &[&str] = &[
        "traffic", "at-least", "at-most", "from", "until", "during", "after",
    ];
    pub(crate) const RECOVERS: &[&str] = &["traffic", "after", "within", "until"];
    pub(crate) const VARIANT: &[&str] = &[
        "expect",
        "needs",
        "only",
        "cluster",
        "kube-proxy",
        "calico",
        "felix",
        "manifests",
        "traffic",
        "timeline",
        "promises",
    ];
}

/// Reads a scenario file and the manifests that it names.
pub fn load(file: &Path) -> Result<Scenario, Diagnostics> {
    let open = |path: &Path| std::fs::read(path);
    match open(file) {
        Ok(bytes) => read(file, &bytes, &open),
        Err(error) => {
            let gathered = Gathered::default();
            let source = Arc::new(Source {
                file: file.to_owned(),
                text: String::new(),
            });
            let message = format!("could not read the file: {error}");
            gathered.add(Diagnostic::new(Place::whole(&source), message));
            Err(gathered
                .into_diagnostics(file)
                .expect("a diagnostic was just added"))
        }
    }
}

/// Reads a scenario from the bytes of its file. `open` reads the manifests that it names; their paths
/// are relative to the scenario's.
pub fn read(
    file: &Path,
    bytes: &[u8],
    open: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Scenario, Diagnostics> {
    let gathered = Gathered::default();
    let scenario = yaml::decode(file, bytes, &gathered)
        .and_then(|source| document(&source, &gathered))
        .and_then(|node| {
            Reader {
                gathered: &gathered,
                file,
                open,
            }
            .scenario(&node)
        });
    match (gathered.into_diagnostics(file), scenario) {
        (None, Some(scenario)) => Ok(scenario),
        (Some(diagnostics), _) => Err(diagnostics),
        (None, None) => unreachable!("what was not read has a diagnostic"),
    }
}

/// The one document of a scenario file.
fn document(source: &Arc<Source>, gathered: &Gathered) -> Option<Node> {
    let mut documents = yaml::parse(source, gathered).nodes;
    if let Some(second) = documents.get(1) {
        note(
            gathered,
            &second.place,
            "a scenario file holds one scenario",
            None,
        );
    }
    let first = (!documents.is_empty()).then(|| documents.swap_remove(0));
    let first = first.filter(|node| !node.is_null());
    if first.is_none() && gathered.is_empty() {
        let hint = "a scenario begins with `name:`".to_owned();
        note(
            gathered,
            &Place::whole(source),
            "the file is empty",
            Some(hint),
        );
    }
    first
}

/// What reading needs at hand.
pub(super) struct Reader<'a> {
    gathered: &'a Gathered,
    file: &'a Path,
    open: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
}

impl Reader<'_> {
    /// Where the scenario lies: agents' paths begin here.
    fn folder(&self) -> PathBuf {
        let file = std::path::absolute(self.file).unwrap_or_else(|_unknown| self.file.to_owned());
        file.parent().map(Path::to_owned).unwrap_or_default()
    }

    fn scenario(&self, node: &Node) -> Option<Scenario> {
        let gathered = self.gathered;
        let fields = Fields::of(gathered, node, "a scenario", words::SCENARIO)?;
        let name = fields.need("name", |node| name(gathered, node, "the scenario's name"));
        let about = fields.need("about", |node| text(gathered, node, "about"));
        let incident = fields.or("incident", Vec::new(), |node| {
            texts(gathered, node, "incident")
        });
        let seed = fields.maybe("seed", |node| number(gathered, node, "seed", (0, u64::MAX)));
        let needs = fields.or("needs", Vec::new(), |node| texts(gathered, node, "needs"));
        let matrix = fields.or("matrix", Vec::new(), |node| matrices(gathered, node));
        let manifests = self.manifests(fields.get("manifests"));
        let run = self.run(node, &manifests, None);
        let base = variants::Base {
            node,
            manifests,
            run,
            needs: needs.unwrap_or_default(),
        };
        let variants = fields.need("variants", |node| self.variants(&base, node));
        Some(Scenario {
            name: ScenarioName::from(name?),
            about: about?.trim().to_owned(),
            incident: incident?,
            file: self.file.to_owned(),
            seed: seed?,
            matrix: matrix?,
            variants: variants?,
        })
    }

    /// What a scenario runs, or a scenario with a variant's overrides laid over it. Nodes that do not
    /// say their iptables have the inherited one.
    fn run(
        &self,
        node: &Node,
        manifests: &Manifests,
        inherited: Option<IptablesVariant>,
    ) -> Option<Run> {
        let gathered = self.gathered;
        let fields = Fields::of(gathered, node, "a scenario", words::SCENARIO)?;
        let folder = self.folder();
        let cluster = fields.need("cluster", |node| {
            cluster::read(gathered, node, &folder, inherited)
        });
        let cluster = cluster.map(|cluster| ClusterSpec {
            pools: manifests.pools(gathered, &cluster),
            ..cluster
        });
        let world = traffic::World {
            manifests,
            cluster: cluster.as_ref(),
            traffic: None,
        };
        for pin in manifests.pins() {
            let name = text(gathered, pin, "nodeName");
            name.and_then(|name| traffic::cluster_node(gathered, pin, &world, name));
        }
        let traffic = fields.or("traffic", IndexMap::new(), |node| {
            traffic::read(gathered, node, &world)
        });
        let world = traffic::World {
            traffic: traffic.as_ref(),
            ..world
        };
        let timeline = fields.need("timeline", |node| self.timeline(node, &world));
        let known = promises::Known {
            world: &world,
            names: &names(fields.get("traffic")),
            traffic: traffic.as_ref(),
            timeline: timeline.as_deref(),
        };
        let promises = fields.need("promises", |node| promises::read(gathered, node, &known));
        Some(Run {
            cluster: cluster?,
            manifests: manifests.objects(),
            traffic: traffic?,
            timeline: timeline?,
            promises: promises?,
        })
    }
}

/// A name: lowercase letters, digits and dashes, as Kubernetes names are, so that it can stand in
/// paths and filters.
pub(super) fn name<'a>(gathered: &Gathered, node: &'a Node, what: &str) -> Option<&'a str> {
    let written = text(gathered, node, what)?;
    is_name(written).then_some(written).or_else(|| {
        let message = format!("{what} cannot be {written:?}");
        note(gathered, &node.place, message, Some(NAME.to_owned()));
        None
    })
}

const NAME: &str = "a name has lowercase letters, digits and dashes, at most 63 in all";

pub(super) fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// One matrix, or a list of them.
fn matrices(gathered: &Gathered, node: &Node) -> Option<Vec<IndexMap<MatrixKey, Vec<String>>>> {
    let all = match &node.value {
        Value::Seq(items) if items.is_empty() => {
            note(
                gathered,
                &node.place,
                "there is no matrix in the list",
                None,
            );
            return None;
        }
        Value::Seq(items) => items.as_slice(),
        Value::Map(_) | Value::Scalar { .. } => std::slice::from_ref(node),
    };
    let all: Vec<_> = all.iter().map(|node| matrix(gathered, node)).collect();
    all.into_iter().collect()
}

fn matrix(gathered: &Gathered, node: &Node) -> Option<IndexMap<MatrixKey, Vec<String>>> {
    let mut matrix = IndexMap::new();
    for (word, entry) in entries(gathered, node, "matrix")? {
        let Some(key) = MatrixKey::parse(word) else {
            let hint = suggest(word, MatrixKey::ALL.iter().map(|(word, _)| *word));
            note(
                gathered,
                &entry.key,
                format!("the matrix cannot vary {word:?}"),
                hint,
            );
            continue;
        };
        let mut values: Vec<String> = Vec::new();
        for item in items(gathered, &entry.node, "what the matrix varies").unwrap_or_default() {
            let Some(value) = text(gathered, item, "a value of the matrix") else {
                continue;
            };
            if let Err(message) = key.check(value) {
                note(gathered, &item.place, message, None);
            } else if values.iter().any(|known| known == value) {
                note(
                    gathered,
                    &item.place,
                    format!("{value:?} is given twice"),
                    None,
                );
            } else {
                values.push(value.to_owned());
            }
        }
        if values.is_empty() && matches!(&entry.node.value, Value::Seq(items) if items.is_empty()) {
            note(
                gathered,
                &entry.node.place,
                "the matrix needs a value here",
                None,
            );
        }
        matrix.insert(key, values);
    }
    let keys: Vec<MatrixKey> = matrix.keys().copied().collect();
    if let Some(message) = MatrixKey::twice(&keys) {
        note(gathered, &node.place, message, None);
    }
    Some(matrix)
}
