//! A kernel in memory, and the tools that speak to it as far as kube-proxy uses them.
//!
//! It knows chains, jumps, sets and maps, and refuses what the real one refuses; no packet goes through it.

use std::collections::{BTreeMap, BTreeSet};

use chainbreak_agents::step::{Command, Output};
use chainbreak_netfilter::{Refusal, Rule, Ruleset, apply, join, nft};

use crate::{
    standing::Standing,
    world::{IptablesBackend, Mode},
};

/// Rules of both families.
#[derive(Debug)]
pub struct Kernel {
    backend: IptablesBackend,
    mode: Mode,
    /// By `ip` and `ip6`.
    rules: BTreeMap<&'static str, Ruleset>,
    tables: nft::Tables,
    /// The counters of `nfnetlink_acct`, by name.
    counters: BTreeSet<String>,
}

/// What a request over netlink ends with that asks for something that is not there.
const ENOENT: i32 = 2;

impl Kernel {
    /// One without a rule.
    pub fn new(backend: IptablesBackend, mode: Mode) -> Self {
        Self {
            backend,
            mode,
            rules: ["ip", "ip6"].map(|it| (it, Ruleset::default())).into(),
            tables: nft::Tables::default(),
            counters: BTreeSet::new(),
        }
    }

    /// What stands in it.
    pub fn standing(&self) -> Standing {
        let mut standing = Standing::default();
        match self.mode {
            Mode::Iptables => {
                for (family, rules) in &self.rules {
                    standing.add_ruleset(family, rules);
                }
            }
            Mode::Nftables => {
                for (place, lines) in self.tables.places() {
                    standing.insert(place, lines);
                }
            }
        }
        standing
    }

    /// Has this from now on, and nothing else.
    pub fn set(&mut self, standing: &Standing) {
        match self.mode {
            Mode::Iptables => {
                for (family, rules) in &mut self.rules {
                    *rules = standing.ruleset(family);
                }
            }
            Mode::Nftables => self.tables = nft::Tables::of_places(standing.places()),
        }
    }

    /// Runs a command.
    ///
    /// # Panics
    /// When it is one that kube-proxy does not run: whoever lets it run another teaches it to this kernel.
    pub fn run(&mut self, command: &Command) -> Output {
        let words: Vec<&str> = command.argv.iter().map(String::as_str).collect();
        let (program, arguments) = words.split_first().expect("a command has a program");
        match *program {
            "nft" => self.nft(arguments, &command.input),
            "netlink" => self.netlink(arguments, &command.input),
            "conntrack" => failed(
                1,
                "conntrack v1.4.7 (conntrack-tools): 0 flow entries have been deleted.\n",
            ),
            "iptables" | "iptables-save" | "iptables-restore" => {
                self.iptables("ip", command, arguments)
            }
            "ip6tables" | "ip6tables-save" | "ip6tables-restore" => {
                self.iptables("ip6", command, arguments)
            }
            _ => panic!("kube-proxy does not run {words:?}"),
        }
    }

    /// It has `nfnetlink_acct`, and no flows.
    fn netlink(&mut self, arguments: &[&str], input: &str) -> Output {
        match arguments {
            ["nfacct", "get", name] if self.counters.contains(*name) => Output::default(),
            ["nfacct", "get", _] => failed(ENOENT, "no such file or directory"),
            ["nfacct", "new", name] => {
                self.counters.insert((*name).to_owned());
                Output::default()
            }
            _ => printed(input),
        }
    }

    fn nft(&mut self, arguments: &[&str], input: &str) -> Output {
        match arguments {
            ["--version"] => printed("nftables v1.0.6 (Lester Gooch #5)\n"),
            ["--check", "-f", "-"] => refused(self.tables.clone().apply(input)),
            ["-f", "-"] => refused(self.tables.apply(input)),
            _ => match self.tables.list(arguments) {
                Ok(listing) => printed(listing),
                Err(refusal) => failed(1, &format!("Error: {refusal}\n")),
            },
        }
    }

    fn iptables(&mut self, family: &'static str, command: &Command, arguments: &[&str]) -> Output {
        let backend = match self.backend {
            IptablesBackend::Legacy => "legacy",
            IptablesBackend::Nft => "nf_tables",
        };
        let rules = self.rules.entry(family).or_default();
        match waited(arguments) {
            ["--version"] => printed(format!("iptables v1.8.9 ({backend})\n")),
            ["-t", table] => printed(saved(rules, table)),
            ["-S", chain, "-t", table] => status(rules.chain(table, chain).is_some()),
            ["-C", chain, "-t", table, rule @ ..] => status(has(rules, table, chain, rule)),
            _ => match apply(rules, &command.argv, &command.input) {
                Ok(()) => Output::default(),
                Err(refusal @ Refusal::MissingTarget { .. }) => failed(2, &format!("{refusal}\n")),
                Err(refusal) => failed(1, &format!("{refusal}\n")),
            },
        }
    }
}

/// What follows the options about the lock.
fn waited<'a, 'b>(arguments: &'a [&'b str]) -> &'a [&'b str] {
    match arguments {
        ["-w" | "-W", _, rest @ ..] => waited(rest),
        rest => rest,
    }
}

fn saved(rules: &Ruleset, table: &str) -> String {
    let mut saved = Ruleset::default();
    if let Some(rules) = rules.tables.get(table) {
        saved.tables.insert(table.to_owned(), rules.clone());
    }
    saved.to_string()
}

fn has(rules: &Ruleset, table: &str, chain: &str, rule: &[&str]) -> bool {
    let rule = Rule::new(join(rule.iter().copied()));
    let chain = rules.chain(table, chain);
    chain.is_some_and(|chain| chain.rules.iter().any(|it| it.same(&rule)))
}

fn status(good: bool) -> Output {
    failed(i32::from(!good), "")
}

fn refused(outcome: Result<(), nft::Refusal>) -> Output {
    match outcome {
        Ok(()) => Output::default(),
        Err(refusal) => failed(1, &format!("{refusal}\n")),
    }
}

fn failed(exit: i32, stderr: &str) -> Output {
    Output {
        exit,
        stderr: stderr.to_owned(),
        ..Output::default()
    }
}

fn printed(stdout: impl Into<String>) -> Output {
    Output {
        stdout: stdout.into(),
        ..Output::default()
    }
}
