//! What `nft list ruleset` and `nft list table` print: chains with their rules, sets and maps with their
//! elements (nft 1.0; one rule a line, elements over several lines).

mod content;
mod list;
mod listed;
pub(crate) mod normal;
mod numeric;
mod tables;

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

pub use self::{
    normal::normal,
    tables::{Reason, Refusal, Tables, places},
};
use crate::{
    Family,
    error::NetfilterError,
    rule::{Counters, Rule},
    save::{Chain, Table},
};

/// Families of tables as nft names them; where none is named it means `ip`.
pub(crate) const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

impl Family {
    /// What nft calls the family of its tables.
    pub fn of_nft(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }
}

/// One table of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NftTable {
    /// `ip`, `ip6`, `inet`, ….
    pub family: String,
    /// Its name.
    pub name: String,
    /// Its chains. A rule's text is as printed, with `counter` alone where its counters stood.
    pub table: Table,
    /// Elements of its sets and maps, as printed but on one line: `10.0.0.1 . tcp . 80 : goto service-A`.
    pub sets: IndexMap<String, Vec<String>>,
    /// What each chain, set and map is, by `chain services`: type, flags, timeout and comment, line by line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub about: BTreeMap<String, Vec<String>>,
    /// Whether commands made it, and nobody listed it: what packets put into its sets is not in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rebuilt: bool,
}

/// Parses a listing, table by table.
pub fn listing(text: &str) -> Result<Vec<NftTable>, NetfilterError> {
    let mut lines = text.lines().zip(1..);
    let mut tables = Vec::new();
    while let Some((line, number)) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let known = head(line, "table").filter(|[family, _]| FAMILIES.contains(family));
        let [family, name] = known.ok_or_else(|| bad(line, number))?;
        let mut table = NftTable {
            family: family.to_owned(),
            name: name.to_owned(),
            ..NftTable::default()
        };
        table.read(&mut lines)?;
        tables.push(table);
    }
    Ok(tables)
}

/// A line of a listing and its number.
type Line<'a> = (&'a str, usize);

impl NftTable {
    /// The elements of a set or map; none when it is not there.
    pub fn elements(&self, set: &str) -> Option<&[String]> {
        self.sets.get(set).map(Vec::as_slice)
    }

    /// Whether a set or map has the element: given whole (`10.0.0.1 . tcp . 80 : drop`) or by its key, the
    /// part before ` : `. Comments, counters and times of elements do not matter.
    pub fn has_element(&self, set: &str, element: &str) -> bool {
        let wanted = element.split_whitespace().collect::<Vec<_>>().join(" ");
        let is = |known: &String| {
            let (key, value) = split_element(known);
            key == wanted || value.is_some_and(|value| format!("{key} : {value}") == wanted)
        };
        self.sets
            .get(set)
            .is_some_and(|elements| elements.iter().any(is))
    }

    fn read<'a>(
        &mut self,
        lines: &mut impl Iterator<Item = Line<'a>>,
    ) -> Result<(), NetfilterError> {
        while let Some((line, number)) = lines.next() {
            let line = unhandled(line.trim());
            match line {
                "}" => return Ok(()),
                _ if !line.ends_with('{') => {}
                _ => {
                    let block = block(lines, number)?;
                    let what = line.trim_end_matches('{').trim_end();
                    self.about.insert(what.to_owned(), about(&block));
                    if let Some([name]) = head(line, "chain") {
                        self.table.chains.insert(name.to_owned(), chain(&block));
                    } else if let Some([name]) = head(line, "set").or_else(|| head(line, "map")) {
                        self.sets.insert(name.to_owned(), elements(&block));
                    }
                }
            }
        }
        Err(bad("the end of a table is missing", 0))
    }
}

/// The words after `what` of a line that opens a block.
fn head<'a, const N: usize>(line: &'a str, what: &str) -> Option<[&'a str; N]> {
    let line = unhandled(line);
    let names = line.strip_prefix(what)?.strip_suffix('{')?;
    let names: Vec<&str> = names.split_whitespace().collect();
    names.try_into().ok()
}

/// The lines up to the one that closes the block: a `}` by itself, at the block's own depth.
fn block<'a>(
    lines: &mut impl Iterator<Item = Line<'a>>,
    opened: usize,
) -> Result<Vec<&'a str>, NetfilterError> {
    let mut block = Vec::new();
    for (line, _) in lines {
        let line = unhandled(line.trim());
        if line == "}" {
            return Ok(block);
        }
        block.push(line);
    }
    Err(bad("a block has no end", opened))
}

/// Without the `# handle 7` of `nft -a`.
fn unhandled(line: &str) -> &str {
    let handle = line.rsplit_once(" # handle ");
    let handle = handle.filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
    handle.map_or(line, |(line, _)| line.trim_end())
}

/// What a chain, a set or a map is.
fn about(block: &[&str]) -> Vec<String> {
    const WORDS: [&str; 5] = ["type", "typeof", "flags", "timeout", "comment"];
    let is = |line: &&&str| line.split(' ').next().is_some_and(|it| WORDS.contains(&it));
    block
        .iter()
        .filter(is)
        .map(|&line| line.to_owned())
        .collect()
}

fn chain(block: &[&str]) -> Chain {
    let mut chain = Chain::default();
    for line in block {
        if line.starts_with("type ") && line.ends_with(';') {
            let policy = line
                .split_once("policy ")
                .and_then(|(_, policy)| policy.split_once(';'));
            chain.policy = policy.map(|(policy, _)| policy.to_owned());
        } else if !line.is_empty() && !line.starts_with("comment ") {
            chain.rules.push(rule(line));
        }
    }
    chain
}

/// A rule, its counters taken out of its text.
fn rule(line: &str) -> Rule {
    let Some((before, (counters, after))) = counters(line) else {
        return Rule::new(line);
    };
    Rule {
        text: format!("{before}counter{after}"),
        counters: Some(counters),
    }
}

/// What stands before `counter packets 1 bytes 2`, its numbers, and what follows.
fn counters(line: &str) -> Option<(&str, (Counters, &str))> {
    let (before, rest) = line.split_once("counter packets ")?;
    let (packets, rest) = rest.split_once(" bytes ")?;
    let (bytes, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
    let counters = Counters {
        packets: packets.parse().ok()?,
        bytes: bytes.parse().ok()?,
    };
    Some((before, (counters, after)))
}

/// The elements of a set's block: what stands in the braces after `elements =`, divided at commas that no
/// quotes and no braces enclose.
fn elements(block: &[&str]) -> Vec<String> {
    let mut lines = block
        .iter()
        .skip_while(|line| !line.starts_with("elements = {"));
    let first = lines
        .next()
        .and_then(|line| line.strip_prefix("elements = {"));
    let text: Vec<&str> = first
        .into_iter()
        .chain(lines.copied())
        .map(str::trim)
        .collect();
    let (mut elements, mut element) = (Vec::new(), String::new());
    let (mut quoted, mut depth) = (false, 0);
    for char in text.join(" ").chars() {
        match char {
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted && depth == 0 => break,
            '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                elements.push(std::mem::take(&mut element).trim().to_owned());
                continue;
            }
            _ => {}
        }
        element.push(char);
    }
    elements.push(element.trim().to_owned());
    elements.retain(|element| !element.is_empty());
    elements
}

/// An element's key and its value, without comment, counters and times: these stand after the key.
fn split_element(element: &str) -> (&str, Option<&str>) {
    const AFTER_KEY: [&str; 5] = [
        " comment ",
        " counter ",
        " timeout ",
        " expires ",
        " limit ",
    ];
    let (key, value) = match element.rsplit_once(" : ") {
        Some((key, value)) => (key, Some(value.trim())),
        None => (element, None),
    };
    let end = AFTER_KEY.iter().filter_map(|word| key.find(word)).min();
    let key = end.and_then(|end| key.get(..end)).unwrap_or(key);
    (key.trim(), value)
}

fn bad(text: &str, line: usize) -> NetfilterError {
    NetfilterError::Line {
        line,
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nft 1.0.6 printed it.
    const LISTING: &str = r#"table ip kube-proxy {
	comment "rules for kube-proxy"
	counter ct_inv {
		packets 0 bytes 0
	}

	set cluster-ips {
		type ipv4_addr
		comment "Active { ClusterIPs, of"
		elements = { 10.0.0.1, 10.0.0.2,
			     10.0.0.7 }
	}

	set dyn {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 3h
		elements = { 10.3.3.3 expires 2h59m59s996ms }
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "c"
		elements = { 10.0.0.1 . tcp . 80 : goto service-A,
			     10.0.0.2 . tcp . 443 comment "a, } b" : goto service-A }
	}

	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
	}

	chain service-A {
		ip daddr 10.0.0.1 tcp dport 80 ip saddr != 10.0.0.0/8 jump mark-for-masquerade
		numgen random mod 2 vmap { 0 : goto endpoint-A, 1 : goto endpoint-B }
	}

	chain pre { # handle 7
		type nat hook prerouting priority dstnat; policy accept;
		ct state invalid counter packets 3 bytes 120 drop comment "inv" # handle 9
		counter packets 1 bytes 40
	}
}
table ip6 kube-proxy {
}
"#;

    #[test]
    fn chains_rules_and_their_counters_are_read() {
        let tables = listing(LISTING).unwrap();
        let names: Vec<_> = tables
            .iter()
            .map(|t| (t.family.as_str(), t.name.as_str()))
            .collect();
        assert_eq!(names, [("ip", "kube-proxy"), ("ip6", "kube-proxy")]);
        let chains = &tables[0].table.chains;
        assert_eq!(chains.keys().collect::<Vec<_>>(), ["service-A", "pre"]);
        assert_eq!(chains["service-A"].rules.len(), 2);
        assert_eq!(chains["pre"].policy.as_deref(), Some("accept"));
        let rules = &chains["pre"].rules;
        assert_eq!(
            rules[0].text,
            "ct state invalid counter drop comment \"inv\""
        );
        assert_eq!(
            rules[0].counters,
            Some(Counters {
                packets: 3,
                bytes: 120
            })
        );
        assert_eq!(rules[1].text, "counter");
        assert_eq!(tables[0].table.counted("kube-proxy").len(), 2);
    }

    #[test]
    fn elements_are_found_by_key_or_whole() {
        let tables = listing(LISTING).unwrap();
        let table = &tables[0];
        assert_eq!(
            table.elements("cluster-ips").unwrap(),
            ["10.0.0.1", "10.0.0.2", "10.0.0.7"]
        );
        assert_eq!(table.elements("no-endpoint-services").unwrap().len(), 0);
        assert_eq!(table.elements("gone"), None);
        for element in [
            "10.0.0.2 . tcp . 443",
            "10.0.0.2 .  tcp . 443 : goto service-A",
            "10.0.0.1 . tcp . 80",
        ] {
            assert!(table.has_element("service-ips", element), "{element}");
        }
        assert!(table.has_element("dyn", "10.3.3.3"));
        for element in [
            "10.0.0.1",
            "10.0.0.1 . tcp . 80 : drop",
            "10.0.0.1 . tcp . 443",
        ] {
            assert!(!table.has_element("service-ips", element), "{element}");
        }
    }

    #[test]
    fn a_listing_that_breaks_off_is_an_error() {
        let half = LISTING.split_once("service-ips").unwrap().0;
        assert!(listing(half).is_err());
        assert!(listing("no listing").is_err());
        assert_eq!(listing("").unwrap(), []);
    }
}
