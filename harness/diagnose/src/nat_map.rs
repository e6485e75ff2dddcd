//! What stands in for Felix's NAT maps in a world without its programs: a table of nftables.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

use chainbreak_netfilter::{
    Rule,
    dumps::{At, Backends, Dumps},
    felix_programs::{FRONTENDS, TABLE, backends, port_name},
    names::Protocol,
    nft::NftTable,
};

/// Where requests are led by Felix's programs, by address, protocol and port: as its maps were dumped, else as the table of a model says.
pub(crate) fn of(dumps: &Dumps) -> Cow<'_, BTreeMap<At, Backends>> {
    if dumps.nat_map().is_empty() {
        return Cow::Owned(dumps.nft_tables().iter().flat_map(of_table).collect());
    }
    Cow::Borrowed(dumps.nat_map())
}

/// Whether a table among these stands in for the programs.
pub fn has_model_of_programs(dumps: &Dumps) -> bool {
    dumps.nft_tables().iter().any(|it| it.name == TABLE)
}

/// The ports of a model's table by their names: `test/web:http`.
pub(crate) fn names(tables: &[NftTable]) -> Vec<(String, IpAddr, u16)> {
    let rules = tables.iter().flat_map(rules);
    let named = rules.filter_map(|rule| {
        let (ip, _, port) = of_rule(rule)?.0;
        Some((port_name(&rule.text)?.to_owned(), ip, port))
    });
    named.collect()
}

/// Where a model's table leads: `ip daddr 10.96.1.0 tcp dport 80 dnat to 10.20.1.2:80 comment "test/web:http"`, or to one of several.
fn of_table(table: &NftTable) -> Vec<(At, Backends)> {
    rules(table).iter().filter_map(of_rule).collect()
}

/// What is in the map of a model's table; nothing of another table.
fn rules(table: &NftTable) -> &[Rule] {
    let chain = table.table.chains.get(FRONTENDS);
    let chain = chain.filter(|_| table.name == TABLE);
    chain.map_or(&[], |chain| &chain.rules)
}

fn of_rule(rule: &Rule) -> Option<(At, Backends)> {
    let words: Vec<&str> = rule.text.split(' ').collect();
    let ["ip", "daddr", ip, protocol, "dport", port, ..] = *words.as_slice() else {
        return None;
    };
    let protocol = Protocol::from_api(Some(&protocol.to_uppercase()))?;
    let at = (ip.parse().ok()?, protocol, port.parse().ok()?);
    let to = backends(&rule.text).into_iter().collect();
    Some((at, Backends::To(to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_table_is_read_where_there_is_no_dump() {
        let listing = "table ip felix-programs {\n\tchain frontends {\n\
            \t\tip daddr 10.96.1.0 tcp dport 80 dnat to numgen random mod 2 map { 0 : 10.20.1.2 . 80, 1 : 10.20.1.3 . 80 } comment \"test/web:http\"\n\
            \t\tip daddr 10.96.0.1 tcp dport 443 dnat to 10.0.0.1:6443 comment \"default/kubernetes:https\"\n\
            \t\tip daddr 10.96.0.9 udp dport 53 drop comment \"test/dns\"\n\
            \t\tfib daddr type local tcp dport 30080 dnat to 10.20.1.2:80 comment \"test/web:http\"\n\t}\n}\n";
        let mut dumps = Dumps::default();
        dumps.add(listing).unwrap();
        let (name, _, port) = &names(dumps.nft_tables())[0];
        assert_eq!((name.as_str(), *port), ("test/web:http", 80));
        assert_eq!(
            lines(&of(&dumps)),
            [
                "10.96.0.1 tcp 443: 10.0.0.1:6443",
                "10.96.0.9 udp 53: ",
                "10.96.1.0 tcp 80: 10.20.1.2:80 10.20.1.3:80"
            ]
        );
    }

    fn lines(led: &BTreeMap<At, Backends>) -> Vec<String> {
        let lines = led.iter().map(|((ip, protocol, port), to)| match to {
            Backends::To(to) => {
                let to: Vec<String> = to.iter().map(ToString::to_string).collect();
                format!("{ip} {protocol} {port}: {}", to.join(" "))
            }
            other => format!("{ip} {protocol} {port}: {other:?}"),
        });
        lines.collect()
    }
}
