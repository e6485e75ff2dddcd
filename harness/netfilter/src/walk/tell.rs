//! A walk in words: what becomes of the packet, and the tree of its ways.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::path::{Effect, End, Path, Step, Walk};
use crate::owner::Owner;

/// Part of a chain's name, what a rule there that matched means: kube-proxy 1.20 to 1.36 (`proxier.go`), Felix v3.28
/// (`rules/static.go`), portmap and Docker.
const MEANINGS: [(&str, &str); 24] = [
    ("KUBE-SVC-", "one of the service's endpoints is chosen"),
    (
        "KUBE-SVL-",
        "one of the service's endpoints on this node is chosen",
    ),
    ("KUBE-SEP-", "an endpoint of the service"),
    (
        "KUBE-EXT-",
        "the service, reached from outside of the cluster",
    ),
    (
        "KUBE-XLB-",
        "the service, reached from outside of the cluster",
    ),
    ("KUBE-FW-", "the load balancer's sources are looked at"),
    ("KUBE-MARK-MASQ", "it is to be masqueraded when it leaves"),
    ("KUBE-POSTROUTING", "what was marked is masqueraded"),
    ("KUBE-SERVICES", "an address of a service"),
    ("KUBE-NODEPORTS", "a port of the node that is a service's"),
    (
        "cali-from-wl-dispatch",
        "from a workload: its policy is looked up",
    ),
    (
        "cali-to-wl-dispatch",
        "to a workload: its policy is looked up",
    ),
    ("cali-fw-", "what the workload may send"),
    ("cali-tw-", "what the workload may get"),
    (
        "cali-untracked-flows",
        "a flow that eBPF serves, and conntrack is not to see",
    ),
    ("cali-pri-", "a profile allows it in"),
    ("cali-pro-", "a profile allows it out"),
    ("cali-pi-", "a policy on what comes in"),
    ("cali-po-", "a policy on what goes out"),
    (
        "cali-nat-outgoing",
        "a pool's traffic to outside of the pools is masqueraded",
    ),
    ("CNI-DN-", "a port of the node that is a pod's (portmap)"),
    ("CNI-HOSTPORT", "ports of the node that are pods' (portmap)"),
    ("DOCKER", "Docker's"),
    ("service-", "one of the service's endpoints is chosen"),
];

impl Step {
    /// What it means that a rule matched; none where that is not known, and for other steps.
    pub fn meaning(&self) -> Option<&'static str> {
        let Self::Rule { site, effect, .. } = self else {
            return None;
        };
        if matches!(effect, Effect::Drop | Effect::Reject(_)) {
            return site.meaning();
        }
        let mut known = MEANINGS.iter();
        let known = known.find(|(part, _)| site.chain.starts_with(part));
        known.map(|(_, meaning)| *meaning)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered => f.write_str("reaches a program on the node"),
            Self::Sent { interface, via } => {
                f.write_str("leaves the node")?;
                if let Some(interface) = interface {
                    write!(f, " by {interface}")?;
                }
                via.map_or(Ok(()), |via| write!(f, " via {via}"))
            }
            Self::Dropped => f.write_str("is dropped"),
            Self::Rejected { with } => write!(f, "is rejected with {with}"),
            Self::Refused { why } => write!(f, "is dropped by the kernel: {why}"),
            Self::Undecided { why } => write!(f, "is lost sight of: {why}"),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted => f.write_str("counted"),
            Self::Jump(chain) | Self::Goto(chain) => write!(f, "to {chain}"),
            Self::Return => f.write_str("back"),
            Self::Accept => f.write_str("accepted"),
            Self::Drop => f.write_str("DROPPED"),
            Self::Reject(with) => write!(f, "REJECTED with {with}"),
            Self::Mark {
                of_connection,
                mark,
            } => {
                let whose = if *of_connection {
                    "connection's mark"
                } else {
                    "mark"
                };
                write!(f, "{whose} {mark:#x}")
            }
            Self::Untrack => f.write_str("not to be tracked"),
            Self::Dnat(address, 0) => write!(f, "to {address}"),
            Self::Dnat(address, port) => write!(f, "to {address} port {port}"),
            Self::Snat(address, port) => {
                match address {
                    Some(address) => write!(f, "from {address}")?,
                    None => f.write_str("from an address of the output interface")?,
                }
                match port {
                    0 => f.write_str(", from a port that the kernel draws"),
                    port => write!(f, " port {port}"),
                }
            }
            Self::Unchanged => f.write_str("nothing to translate: it has no connection"),
            Self::Unknown => f.write_str("?"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hook { hook, packet } => write!(f, "{hook}: {packet}"),
            Self::Rule {
                site,
                number,
                effect,
            } => {
                write!(f, "{} {} {number}", site.table, site.chain)?;
                match self.owner() {
                    None | Some(Owner::Other) => {}
                    Some(owner) => write!(f, " [{owner}]")?,
                }
                write!(f, ": {effect}")?;
                self.meaning().map_or(Ok(()), |it| write!(f, " – {it}"))
            }
            Self::Policy {
                table,
                chain,
                drops,
            } => {
                let does = if *drops { "DROPPED" } else { "accepted" };
                write!(
                    f,
                    "{table} {chain}, policy: {does} – no rule of the chain decided"
                )
            }
            Self::Tracked { tracking, why } => write!(f, "conntrack: {tracking} – {why}"),
            Self::Translated { to, .. } => write!(f, "conntrack: now {to}, as its entry says"),
            Self::Programs { what } => write!(f, "eBPF: {what}"),
            Self::Routed { what } => write!(f, "route: {what}"),
            Self::Chance { share, .. } => write!(f, "by chance ({})", percent(*share)),
            Self::Assumed { question, answer } => {
                write!(f, "not known: {question} – assumed: {answer}")
            }
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

impl Walk {
    /// What becomes of the packet: a line for each end, with its share where chance decides and what it assumes.
    pub fn ends(&self) -> Vec<String> {
        let mut shares: BTreeMap<(usize, String), f64> = BTreeMap::new();
        let mut order: Vec<String> = Vec::new();
        for path in &self.paths {
            let line = path.told_end();
            let at = order.iter().position(|it| *it == line);
            let at = at.unwrap_or_else(|| {
                order.push(line.clone());
                order.len() - 1
            });
            *shares.entry((at, line)).or_default() += path.share;
        }
        let line = |((_, line), share): ((usize, String), f64)| {
            if (share - 1.0).abs() < 1e-9 {
                line
            } else {
                format!("{}: {line}", percent(share))
            }
        };
        let more = self
            .more
            .then(|| "and more ways than are told here".to_owned());
        shares.into_iter().map(line).chain(more).collect()
    }

    /// The tree of its ways: each line with how deep it stands, 0 for what all ways have in common.
    pub fn tree(&self) -> Vec<(usize, String)> {
        let mut lines = Vec::new();
        let paths: Vec<&Path> = self.paths.iter().collect();
        branch(&paths, 0, 0, &mut lines);
        lines
    }

    /// As JSON: what serde makes of it, each rule with its owner and its meaning beside it, and [`Walk::ends`].
    pub fn told(&self) -> Value {
        let mut value = json!(self);
        let paths = value.get_mut("paths").and_then(Value::as_array_mut);
        for (told, path) in paths.into_iter().flatten().zip(&self.paths) {
            let steps = told.get_mut("steps").and_then(Value::as_array_mut);
            for (told, step) in steps.into_iter().flatten().zip(&path.steps) {
                if let Some(rule) = told.get_mut("rule").and_then(Value::as_object_mut) {
                    rule.insert("owner".to_owned(), json!(step.owner()));
                    rule.insert("meaning".to_owned(), json!(step.meaning()));
                }
            }
        }
        json!({ "ends": self.ends(), "decided": self.decided(), "walk": value })
    }
}

impl Path {
    fn told_end(&self) -> String {
        let mut line = if self.end.arrives() {
            format!("{} {}", self.packet, self.end)
        } else {
            self.end.to_string()
        };
        if let Some(step) = self.decided() {
            line.extend([" by ", &step.to_string()]);
        }
        let assumed: Vec<String> = self
            .assumes()
            .map(|(question, answer)| format!("{question} – {answer}"))
            .collect();
        if !assumed.is_empty() {
            line.extend([", if (", &assumed.join("; "), ")"]);
        }
        line
    }
}

/// Tells what these ways have in common from a step on, then each group that goes on alike.
fn branch(paths: &[&Path], from: usize, depth: usize, lines: &mut Vec<(usize, String)>) {
    let Some((first, others)) = paths.split_first() else {
        return;
    };
    let mut at = from;
    while let Some(step) = first.steps.get(at) {
        if !others.iter().all(|it| it.steps.get(at) == Some(step)) {
            break;
        }
        lines.push((depth, step.to_string()));
        at += 1;
    }
    if others.is_empty() {
        lines.push((depth, format!("⇒ {} {}", first.packet, first.end)));
        return;
    }
    let mut rest = paths;
    while let Some(first) = rest.first() {
        let alike = |it: &&&Path| it.steps.get(at) == first.steps.get(at);
        let count = rest.iter().take_while(alike).count();
        let (group, others) = rest.split_at(count.max(1));
        let share: f64 = group.iter().map(|it| it.share).sum();
        lines.push((depth, format!("┬ {}", percent(share))));
        // Ways of which one ends where another goes on have nothing more in common.
        if at >= first.steps.len() {
            for path in group {
                branch(&[*path], at, depth + 1, lines);
            }
        } else {
            branch(group, at, depth + 1, lines);
        }
        rest = others;
    }
}
