//! Where rules, elements and counters are read.

use std::collections::BTreeMap;

use chainbreak_model::case::{Counter, ElementQuery, Family, Origin, RuleBackend, RuleQuery};
use chainbreak_netfilter::{Ruleset, Table, conntrack, nft};

use crate::{
    cluster::{Cluster, Command, Place},
    infra_error::InfraError,
    output::{ended, output},
    tables,
};

/// What one command shows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// A table through one of iptables' backends.
    Save {
        program: &'static str,
        table: String,
    },
    /// A table of nftables.
    Nft { family: Family, table: String },
    /// `conntrack -S`.
    Conntrack,
    /// `/proc/net/snmp` and its kin.
    Snmp,
}

/// What was seen there.
#[derive(Debug)]
pub(crate) enum Seen {
    /// A table, with the elements of its sets and maps; none when it is not there.
    Table(Option<nft::NftTable>),
    /// Numbers by their names.
    Numbers(BTreeMap<String, u64>),
}

impl Source {
    pub(crate) fn of_rule(rule: &RuleQuery) -> Self {
        let table = rule.table.clone();
        let program = match (rule.family, rule.backend) {
            (family, Some(RuleBackend::Nftables)) => return Self::nft(family, table),
            (Family::Ip6, None) => "ip6tables-save",
            (Family::Ip6, Some(RuleBackend::Legacy)) => "ip6tables-legacy-save",
            (Family::Ip6, Some(RuleBackend::Nft)) => "ip6tables-nft-save",
            // The reader knows that only nftables has tables for both.
            (Family::Ip | Family::Inet, None) => "iptables-save",
            (Family::Ip | Family::Inet, Some(RuleBackend::Legacy)) => "iptables-legacy-save",
            (Family::Ip | Family::Inet, Some(RuleBackend::Nft)) => "iptables-nft-save",
        };
        Self::Save { program, table }
    }

    pub(crate) fn of_element(element: &ElementQuery) -> Self {
        Self::nft(element.family, element.table.clone())
    }

    pub(crate) fn of_counter(counter: &Counter) -> Self {
        match counter {
            Counter::Conntrack(_) => Self::Conntrack,
            Counter::Snmp(_) => Self::Snmp,
            Counter::Rule(rule) => Self::of_rule(rule),
        }
    }

    fn nft(family: Family, table: String) -> Self {
        Self::Nft { family, table }
    }

    /// The table, where it is one.
    pub(crate) fn table(&self) -> Option<&str> {
        match self {
            Self::Save { table, .. } | Self::Nft { table, .. } => Some(table),
            Self::Conntrack | Self::Snmp => None,
        }
    }

    /// `known` when an earlier look has seen the table.
    pub(crate) async fn look(
        &self,
        cluster: &dyn Cluster,
        at: &Origin,
        known: bool,
    ) -> Result<Seen, InfraError> {
        let at = Place::from(at);
        let command =
            |argv: &[&str]| Command::Argv(argv.iter().map(|&word| word.to_owned()).collect());
        let unread = |error| InfraError::new(format!("read the rules of {at}"), error);
        match self {
            Self::Save { program, table } => {
                let save = if known {
                    tables::save
                } else {
                    tables::save_if_there
                };
                let text = output(cluster, &at, &Command::Argv(save(program, table))).await?;
                let mut rules = Ruleset::parse(&text).map_err(unread)?;
                Ok(Seen::Table(rules.tables.shift_remove(table).map(saved)))
            }
            Self::Nft { family, table } => {
                let list = command(&["nft", "list", "table", &family.to_string(), table]);
                let process = cluster.exec(&at, &list).await;
                let process =
                    process.map_err(|error| InfraError::new(format!("list {table}"), error))?;
                let text = match ended(process, "").await {
                    Ok(text) => text,
                    // Not to be there is an answer.
                    Err(why) if why.contains("Error: No such file or directory") => String::new(),
                    Err(why) => return Err(InfraError::new(format!("list {table} of {at}"), why)),
                };
                let mut tables = nft::listing(&text).map_err(unread)?;
                Ok(Seen::Table(
                    (!tables.is_empty()).then(|| tables.swap_remove(0)),
                ))
            }
            Self::Conntrack => {
                let text = output(cluster, &at, &command(&["conntrack", "-S"])).await?;
                Ok(Seen::Numbers(conntrack::statistics(&text)))
            }
            Self::Snmp => {
                // Without IPv6 there is no snmp6.
                let all =
                    "cat /proc/net/snmp /proc/net/netstat; cat /proc/net/snmp6 2>/dev/null || true";
                let text = output(cluster, &at, &command(&["sh", "-c", all])).await?;
                Ok(Seen::Numbers(snmp(&text)))
            }
        }
    }
}

/// A table of iptables in the shape of a listing of nftables: it has no sets of its own.
fn saved(table: Table) -> nft::NftTable {
    nft::NftTable {
        table,
        ..nft::NftTable::default()
    }
}

/// The numbers of `/proc/net/snmp` and `netstat` (a line of names and one of numbers after the same word) as
/// `Tcp.OutRsts`, those of `snmp6` (a name and a number a line) as they are.
fn snmp(text: &str) -> BTreeMap<String, u64> {
    let mut numbers = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((group, names)) = line.split_once(": ") else {
            let pair = line.split_once(char::is_whitespace);
            numbers
                .extend(pair.and_then(|(name, n)| Some((name.to_owned(), n.trim().parse().ok()?))));
            continue;
        };
        let values = lines
            .next()
            .and_then(|line| line.strip_prefix(group)?.strip_prefix(": "));
        let values = values.into_iter().flat_map(|values| values.split(' '));
        numbers.extend(names.split(' ').zip(values).filter_map(|(name, value)| {
            // Only Tcp.MaxConn is negative, and no counter.
            Some((format!("{group}.{name}"), value.parse().ok()?))
        }));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_proc_net_have_the_names_that_scenarios_write() {
        let text = "Tcp: RtoMin MaxConn OutRsts\nTcp: 200 -1 7\nTcpExt: TCPTimeouts\nTcpExt: 3\n\
                    Ip6InReceives                   \t12\n";
        let numbers = snmp(text);
        let all: Vec<_> = numbers
            .iter()
            .map(|(name, n)| (name.as_str(), *n))
            .collect();
        let expected = [
            ("Ip6InReceives", 12),
            ("Tcp.OutRsts", 7),
            ("Tcp.RtoMin", 200),
            ("TcpExt.TCPTimeouts", 3),
        ];
        assert_eq!(all, expected);
    }
}
