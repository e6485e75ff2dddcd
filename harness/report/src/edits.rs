//! What commands did to the rules, as recorded: who removed what, and who restored it.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_model::{
    case::Case,
    event::{Command, Event, EventKind},
    names::{AgentName, NodeName},
    verdict::Span,
};
use chainbreak_netfilter::{
    Change, ChangeKind, Family, Site, committed,
    replay::{Backend, Ran, Replay},
};
use serde::Serialize;

use crate::{
    commands::{self, old_copy, ran},
    outcome::Outcome,
    undone::{self, Undone},
};

/// Chains that no command makes or deletes: a declaration in a restore leaves their rules alone.
pub(crate) const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// One recorded command and what it changed.
#[derive(Debug, Clone)]
pub struct RuleEdit<'a> {
    /// When it ended. It took effect between [`RuleEdit::began_us`] and this.
    pub at_us: u64,
    /// The command as recorded.
    pub command: &'a Command,
    /// What it changed, given how it ended; nothing when its input cannot be understood.
    pub changes: Vec<Change>,
    /// Whether it can be.
    is_understood: bool,
}

/// Something that has to be there for packets to arrive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// A rule of `chain` that jumps to `target`.
    Jump {
        /// The table of both.
        table: String,
        /// Where the rule stands.
        chain: String,
        /// Where it leads.
        target: String,
    },
    /// A chain, with or without rules.
    Chain {
        /// Its table.
        table: String,
        /// Its name.
        chain: String,
    },
    /// A chain with at least one rule.
    Filled {
        /// Its table.
        table: String,
        /// Its name.
        chain: String,
    },
    /// What a promise asks for, in its words. What a command meant for it is known only of the rules as they were.
    Asked(String),
}

/// What a command meant for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is gone after the command.
    Removed,
    /// It is there after the command.
    Restored,
}

impl Link {
    /// The effect of one change, if it has one.
    fn effect(&self, change: &Change) -> Option<Effect> {
        let empties = |table: &str, chain: &str| {
            let declares = change.kind == ChangeKind::ChainDeclared;
            change.empties(table, chain) && !(declares && BUILT_IN.contains(&chain))
        };
        let at = |table: &str, chain: &str| change.table == table && change.chain == chain;
        let added = match &change.kind {
            ChangeKind::RuleAdded { target, .. } | ChangeKind::RuleReplaced { target, .. } => {
                Some(target.as_deref())
            }
            _ => None,
        };
        let (removed, restored) = match self {
            Self::Jump {
                table,
                chain,
                target,
            } => (
                empties(table, chain) || change.unlinks(table, chain, target),
                at(table, chain) && added == Some(Some(target)),
            ),
            Self::Filled { table, chain } => {
                (empties(table, chain), at(table, chain) && added.is_some())
            }
            Self::Chain { table, chain } => {
                let made = matches!(
                    change.kind,
                    ChangeKind::ChainDeclared | ChangeKind::ChainCreated
                );
                let stays = matches!(change.kind, ChangeKind::ChainFlushed);
                (
                    empties(table, chain) && !made && !stays,
                    at(table, chain) && (made || added.is_some()),
                )
            }
            Self::Asked(_) => return None,
        };
        if restored {
            Some(Effect::Restored)
        } else {
            removed.then_some(Effect::Removed)
        }
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Jump { chain, target, .. } => write!(f, "jump {chain} → {target}"),
            Self::Chain { chain, .. } | Self::Filled { chain, .. } => write!(f, "chain {chain}"),
            Self::Asked(words) => write!(f, "{words}"),
        }
    }
}

impl<'a> RuleEdit<'a> {
    /// The edit of an event that is a command.
    pub fn of(event: &'a Event) -> Option<Self> {
        let EventKind::Command(command) = &event.what else {
            return None;
        };
        let Command {
            argv,
            input,
            exit,
            stderr,
            ..
        } = command;
        // What cannot be understood is claimed to have changed nothing: no one is blamed by guess.
        let changes = committed(argv, input, *exit, stderr);
        Some(Self {
            at_us: event.at_us,
            command,
            is_understood: changes.is_ok(),
            changes: changes.unwrap_or_default(),
        })
    }

    /// The command as the rules are rebuilt from it.
    pub(crate) fn ran(&self) -> Ran<'a> {
        ran(self.at_us, self.command)
    }

    /// When the command began.
    pub fn began_us(&self) -> u64 {
        self.at_us.saturating_sub(self.command.took_us)
    }

    /// Whether an agent ran it.
    pub fn is_by(&self, agent: AgentName) -> bool {
        self.command.who == agent.as_str()
    }

    /// The program, without its folder.
    pub fn program(&self) -> &'a str {
        let program = self.command.argv.first().map_or("", String::as_str);
        program.rsplit_once('/').map_or(program, |(_, name)| name)
    }

    /// Whose tables the program writes: those of `iptables` are of one backend on a node.
    fn front(&self) -> &'static str {
        let program = self.program();
        let of = |word: &str| program.contains(word);
        match (program, of("legacy"), of("nft")) {
            ("nft", ..) => "nft",
            (_, true, _) => "legacy",
            (_, _, true) => "iptables-nft",
            _ => "iptables",
        }
    }

    /// What the command as a whole meant for a link, of either protocol's rules: the last change that touches it decides.
    pub fn effect(&self, link: &Link) -> Option<Effect> {
        let mut changes = self.changes.iter().rev();
        changes.find_map(|change| link.effect(change))
    }

    /// The same of one protocol's rules: both have chains and jumps of the same names.
    pub fn effect_in(&self, family: Family, link: &Link) -> Option<Effect> {
        let changes = self.changes.iter().rev();
        let mut changes = changes.filter(|change| change.family == family);
        changes.find_map(|change| link.effect(change))
    }

    /// What the command comes to.
    pub fn outcome(&self) -> Outcome<'_> {
        Outcome::of(&self.changes)
    }

    /// Whether it may write; the others of iptables and nft only look.
    pub(crate) fn writes(&self) -> bool {
        const LOOKS: [&str; 6] = ["-C", "-S", "-L", "--check", "--list-rules", "--list"];
        const NFT_LOOKS: [&str; 4] = ["list", "monitor", "describe", "get"];
        let mut words = self.command.argv.iter().skip(1).map(String::as_str);
        if self.program() == "nft" {
            let checks = words.clone().any(|it| matches!(it, "-c" | "--check"));
            let reads_a_file = words.clone().any(|it| matches!(it, "-f" | "--file"));
            let verb = words.find(|it| !it.starts_with('-'));
            return !checks && (reads_a_file || verb.is_some_and(|it| !NFT_LOOKS.contains(&it)));
        }
        !self.program().ends_with("-save") && !words.any(|it| LOOKS.contains(&it))
    }

    /// Whether it may have written rules that nobody knows of. Sets, connections and accounting objects are none.
    pub(crate) fn is_unknown(&self) -> bool {
        let writes_rules = self.program() == "nft" || self.program().contains("tables");
        writes_rules && self.writes() && !self.is_understood
    }

    /// Whether another one ran a command at the same time: which came first is not known.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        let at_once = other.began_us() < self.at_us && other.at_us > self.began_us();
        at_once && other.command.who != self.command.who
    }

    /// Whether kube-proxy made sure of a jump: it does so call by call, in full syncs only (kube-proxy 1.27
    /// and later; before, every sync is full). Its monitor calls `iptables` too, but names no target.
    pub fn ensures(&self) -> bool {
        self.is_by(AgentName::KubeProxy)
            && matches!(self.program(), "iptables" | "ip6tables")
            && self.command.argv.iter().any(|word| word == "-j")
    }
}

/// The commands of edits, each with when it ended.
pub(crate) fn ended<'a>(edits: &[&RuleEdit<'a>]) -> Vec<(u64, &'a Command)> {
    let ended = edits.iter().map(|edit| (edit.at_us, edit.command));
    ended.collect()
}

/// The rules of a node before the first of its edits, to be rebuilt from these.
pub(crate) fn before(case: &Case, edits: &[&RuleEdit<'_>]) -> Replay {
    commands::before(commands::backend(case), &ended(edits))
}

/// All edits of a case, in order of their end.
#[derive(Debug)]
pub struct EditIndex<'a> {
    edits: Vec<RuleEdit<'a>>,
    undone: Vec<Undone>,
}

impl<'a> EditIndex<'a> {
    /// The edits of a history. `own` is what `iptables` without a backend in its name means there.
    pub fn new(events: &'a [Event], own: Backend) -> Self {
        let mut edits: Vec<RuleEdit<'a>> = events.iter().filter_map(RuleEdit::of).collect();
        edits.sort_by_key(|edit| edit.at_us);
        let mut index = Self {
            edits,
            undone: Vec::new(),
        };
        index.correct(own);
        index
    }

    /// Has commands that put back what they had read say what they changed in truth.
    fn correct(&mut self, own: Backend) {
        let mut of_nodes: BTreeMap<&NodeName, Vec<(u64, &Command)>> = BTreeMap::new();
        for edit in &self.edits {
            let of_node = of_nodes.entry(&edit.command.node).or_default();
            of_node.push((edit.at_us, edit.command));
        }
        for at in 0..self.edits.len() {
            let edit = &self.edits[at];
            let on_node = &of_nodes[&edit.command.node];
            let Some(copy) = old_copy(own, (edit.at_us, edit.command), on_node) else {
                continue;
            };
            let until = self.edits.iter().take(at + 1);
            let until = until.filter(|it| it.command.node == edit.command.node);
            let until: Vec<&RuleEdit<'_>> = until.collect();
            if let Some((undone, changes)) = undone::by(edit, copy, &until, own) {
                self.undone.push(undone);
                self.edits[at].changes = changes;
            }
        }
    }

    /// The first old copy that was put back on a node in this time.
    pub(crate) fn undone(&self, node: &NodeName, time: Span) -> Option<&Undone> {
        let mut undone = self.undone.iter();
        undone.find(|it| it.node == *node && (time.from_us..=time.to_us).contains(&it.at_us))
    }

    /// Every edit.
    pub fn edits(&self) -> &[RuleEdit<'a>] {
        &self.edits
    }

    /// The edits on a node.
    pub fn on(&self, node: &NodeName) -> impl DoubleEndedIterator<Item = &RuleEdit<'a>> + Clone {
        self.edits
            .iter()
            .filter(move |edit| edit.command.node == *node)
    }

    /// Who alone wrote the rules of a chain that say this and are there at that moment; nobody where several did. By the commands, for a
    /// chain's name says only whose name it is: another program may restore an old copy of it, and into the other backend.
    pub(crate) fn author(
        &self,
        (node, family, at_us): (&NodeName, Family, u64),
        site: &Site,
        says: &str,
    ) -> Option<&'a str> {
        // One of nft is told with its family: `ip6 kube-proxy`.
        let (of, table) = site.table.split_once(' ').unwrap_or(("", &site.table));
        let family = match of {
            "ip" | "inet" => Family::V4,
            "ip6" => Family::V6,
            _ => family,
        };
        let filled = Link::Filled {
            table: table.to_owned(),
            chain: site.chain.clone(),
        };
        let mut authors: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for edit in self.on(node).filter(|edit| edit.at_us <= at_us) {
            let front = edit.front();
            for change in edit.changes.iter().filter(|it| it.family == family) {
                match (filled.effect(change), &change.kind) {
                    (Some(Effect::Removed), _) => {
                        authors.remove(front);
                    }
                    (
                        Some(Effect::Restored),
                        ChangeKind::RuleAdded { text, .. } | ChangeKind::RuleReplaced { text, .. },
                    ) if text.contains(says) => {
                        let who = edit.command.who.as_str();
                        authors.entry(front).or_default().insert(who);
                    }
                    _ => {}
                }
            }
        }
        let authors: BTreeSet<&str> = authors.into_values().flatten().collect();
        let mut authors = authors.into_iter();
        authors.next().filter(|_| authors.next().is_none())
    }

    /// Nodes on which anything was done.
    pub fn nodes(&self) -> BTreeSet<&NodeName> {
        self.edits.iter().map(|edit| &edit.command.node).collect()
    }
}
