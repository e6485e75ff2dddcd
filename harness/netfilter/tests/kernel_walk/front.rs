//! The programs that load and list a node's rules, by family and backend.

use chainbreak_netfilter::{
    Family, Ruleset,
    nft::{self, NftTable},
};

use crate::places::run;

/// What a node's rules are loaded and listed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) family: Family,
    /// `legacy`, `nft`, or `nftables` for tables of nft's own.
    pub(crate) backend: &'static str,
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

    /// A script that reads what iptables-restore takes and puts it in the place of what was there.
    fn load_script(self) -> String {
        let (program, family) = self.names();
        match self.backend {
            "nftables" => format!(
                "{{ for t in raw mangle nat filter; do echo \"add table {family} $t\"; echo \"delete table {family} $t\"; done
                 {program}-restore-translate -f /dev/stdin; }} | nft -f -"
            ),
            front => format!("{program}-{front}-restore"),
        }
    }

    /// A script that lists them. An ordinary user may not read the list of legacy tables.
    fn list_script(self) -> String {
        let (program, family) = self.names();
        let each = "for t in raw mangle nat filter; do";
        let is_listed = || {
            let path = format!("/proc/net/{}_names", program.replace("tables", "_tables"));
            std::fs::read(path).is_ok()
        };
        match self.backend {
            "nft" => format!("{program}-nft-save -c"),
            "nftables" => format!("{each} nft list table {family} $t; done"),
            _ if is_listed() => format!("{program}-legacy-save -c"),
            _ => format!("{each} {program}-legacy-save -c -t $t; done"),
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

    /// The rules with their counters, and `conntrack -L`.
    pub(crate) fn list(self) -> (Rules, String) {
        let (script, conntrack) = (self.list_script(), self.conntrack());
        let said = run(
            &format!("{script}; echo; echo CONNECTIONS; conntrack -L {conntrack} 2>/dev/null"),
            "",
        );
        let (rules, flows) = said.split_once("\nCONNECTIONS\n").unwrap();
        let rules = match self.backend {
            "nftables" => Rules::Nft(nft::listing(rules).unwrap()),
            _ => Rules::Save(Ruleset::parse(rules).unwrap()),
        };
        (rules, flows.to_owned())
    }
}
