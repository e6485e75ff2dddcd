//! The programs that load and list a node's rules, by family and backend.

use std::fmt::Write as _;

use chainbreak_netfilter::{
    Family, Ruleset,
    nft::{self, NftTable},
};

use crate::places::run;

/// Tables and the chains that the kernel enters.
pub(crate) const TABLES: [(&str, &[&str]); 4] = [
    ("raw", &["PREROUTING", "OUTPUT"]),
    (
        "mangle",
        &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
    ),
    ("nat", &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]),
    ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
];

/// What a node's rules are loaded and listed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) family: Family,
    pub(crate) backend: Backend,
}

/// In whose language rules are loaded, and whose they are then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// iptables-legacy's.
    Legacy,
    /// iptables-nft's.
    Nft,
    /// nft's: tables of these names, and a command that turns what is loaded into nft's language; `$program` is `iptables`
    /// or `ip6tables`.
    Tables(&'static str, &'static str),
}

/// A node's rules.
#[derive(Debug)]
pub(crate) enum Rules {
    Save(Ruleset),
    Nft(Vec<NftTable>),
}

impl Front {
    fn names(self) -> (&'static str, &'static str) {
        match self.family {
            Family::V4 => ("iptables", "ip"),
            Family::V6 => ("ip6tables", "ip6"),
        }
    }

    /// A script that reads rules and puts them in the place of what was there.
    fn load_script(self) -> String {
        let (program, family) = self.names();
        match self.backend {
            Backend::Legacy => format!("{program}-legacy-restore"),
            Backend::Nft => format!("{program}-nft-restore"),
            Backend::Tables(names, reads) => format!(
                "program={program}; rules=$({reads})
                 {{ for t in {names}; do echo \"add table {family} $t\"; echo \"delete table {family} $t\"; done
                 printf '%s\\n' \"$rules\"; }} | nft -f -"
            ),
        }
    }

    /// A script that lists them. An ordinary user may not read the list of legacy tables.
    fn list_script(self) -> String {
        let (program, family) = self.names();
        let is_listed = || {
            let path = format!("/proc/net/{}_names", program.replace("tables", "_tables"));
            std::fs::read(path).is_ok()
        };
        match self.backend {
            Backend::Nft => format!("{program}-nft-save -c"),
            Backend::Legacy if is_listed() => format!("{program}-legacy-save -c"),
            Backend::Legacy => {
                format!("for t in raw mangle nat filter; do {program}-legacy-save -c -t $t; done")
            }
            Backend::Tables(..) => format!("nft list ruleset {family}"),
        }
    }

    fn conntrack(self) -> &'static str {
        match self.family {
            Family::V4 => "-f ipv4",
            Family::V6 => "-f ipv6",
        }
    }

    /// Puts rules in the place of those that were there, and forgets connections.
    pub(crate) fn load(self, rules: &str) {
        let script = self.load_script();
        let conntrack = self.conntrack();
        run(
            &format!("{script}; conntrack -F {conntrack} 2>/dev/null"),
            rules,
        );
    }

    /// Leaves no rule.
    pub(crate) fn clear(self) {
        self.load(&match self.backend {
            Backend::Tables(..) => String::new(),
            _ => restore(&[], &[], &[]),
        });
    }

    /// The rules with their counters, and `conntrack -L`.
    pub(crate) fn list(self) -> (Rules, String) {
        let (script, conntrack) = (self.list_script(), self.conntrack());
        let said = run(
            &format!("{script}; echo; echo CONNECTIONS; conntrack -L {conntrack} 2>/dev/null"),
            "",
        );
        let (rules, flows) = said.split_once("\nCONNECTIONS\n").unwrap();
        let rules = match self.backend {
            Backend::Tables(..) => Rules::Nft(nft::listing(rules).unwrap()),
            Backend::Legacy | Backend::Nft => Rules::Save(Ruleset::parse(rules).unwrap()),
        };
        (rules, flows.to_owned())
    }
}

/// A rule: its table, its chain, its text.
pub(crate) type Line = (&'static str, String, String);

/// The input of iptables-restore. Every policy is in it, as iptables-legacy-restore keeps those that no line names, and in
/// every table these chains.
pub(crate) fn restore(rules: &[Line], chains: &[String], drops: &[(&str, &str)]) -> String {
    let mut input = String::new();
    for (table, hooks) in TABLES {
        writeln!(input, "*{table}").unwrap();
        for hook in hooks {
            let drops = drops.contains(&(table, hook));
            let policy = if drops { "DROP" } else { "ACCEPT" };
            writeln!(input, ":{hook} {policy} [0:0]").unwrap();
        }
        for chain in chains {
            writeln!(input, ":{chain} - [0:0]").unwrap();
        }
        for (_, chain, rule) in rules.iter().filter(|(of, ..)| *of == table) {
            writeln!(input, "-A {chain} {rule}").unwrap();
        }
        input.push_str("COMMIT\n");
    }
    input
}
