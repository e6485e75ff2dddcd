//! What was seen in a source.

use std::collections::BTreeMap;

use chainbreak_netfilter::{NetfilterError, Ruleset, Table, conntrack, nft};

use crate::looks::Source;

/// What was seen there.
#[derive(Debug)]
pub(crate) enum Seen {
    /// A table, with the elements of its sets and maps; none when it is not there.
    Table(Option<nft::NftTable>),
    /// Numbers by their names.
    Numbers(BTreeMap<String, u64>),
}

impl Seen {
    /// What the source printed, read.
    pub(crate) fn of(source: &Source, text: &str) -> Result<Self, NetfilterError> {
        Ok(match source {
            Source::Save { table, .. } => {
                let mut rules = Ruleset::parse(text)?;
                Self::Table(rules.tables.shift_remove(table).map(saved))
            }
            Source::Nft { .. } => Self::Table(nft::listing(text)?.into_iter().next()),
            // No promise is about all tables, or about Felix's programs.
            Source::All(_) | Source::BpfCounters(_) => Self::Table(None),
            Source::Conntrack => Self::Numbers(conntrack::statistics(text)),
            Source::Snmp => Self::Numbers(snmp(text)),
        })
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
