//! Names for the numbers that `nft -n` prints in their place (nft 1.0.6): of protocols, of states and directions of connections, of kinds
//! of addresses, of TCP's flags. Agents name them, and so does nft where it is not asked for numbers.

use std::borrow::Cow;

use super::NftTable;

/// What numbers are called.
type Names = &'static [(u32, &'static str)];

const NONE: Names = &[];
/// As `/etc/protocols` has them.
const PROTOCOLS: Names = &[
    (1, "icmp"),
    (4, "ipencap"),
    (6, "tcp"),
    (17, "udp"),
    (47, "gre"),
    (58, "ipv6-icmp"),
    (132, "sctp"),
];
const STATES: Names = &[
    (1, "invalid"),
    (2, "established"),
    (4, "related"),
    (8, "new"),
    (64, "untracked"),
];
const STATUSES: Names = &[
    (1, "expected"),
    (2, "seen-reply"),
    (4, "assured"),
    (8, "confirmed"),
    (16, "snat"),
    (32, "dnat"),
    (512, "dying"),
];
const DIRECTIONS: Names = &[(0, "original"), (1, "reply")];
const FLAGS: Names = &[
    (1, "fin"),
    (2, "syn"),
    (4, "rst"),
    (8, "psh"),
    (16, "ack"),
    (32, "urg"),
    (64, "ecn"),
    (128, "cwr"),
];
/// `RTN_…` of `uapi/linux/rtnetlink.h`.
const KINDS: Names = &[
    (0, "unspec"),
    (1, "unicast"),
    (2, "local"),
    (3, "broadcast"),
    (4, "anycast"),
    (5, "multicast"),
    (6, "blackhole"),
    (7, "unreachable"),
    (8, "prohibit"),
];

/// Fields of two words whose values have names.
const FIELDS: [([&str; 2], Names); 8] = [
    (["meta", "l4proto"], PROTOCOLS),
    (["ip", "protocol"], PROTOCOLS),
    (["ip6", "nexthdr"], PROTOCOLS),
    (["ct", "protocol"], PROTOCOLS),
    (["ct", "state"], STATES),
    (["ct", "status"], STATUSES),
    (["ct", "direction"], DIRECTIONS),
    (["tcp", "flags"], FLAGS),
];
/// Fields of one word.
const SHORT: [&str; 5] = ["iif", "iifname", "oif", "oifname", "mark"];
/// What the other fields begin with, which have two words.
const LONG: [&str; 9] = [
    "meta", "ct", "ip", "ip6", "th", "tcp", "udp", "sctp", "ether",
];
/// Types of sets whose elements have names.
const TYPES: [(&str, Names); 6] = [
    ("inet_proto", PROTOCOLS),
    ("ct_state", STATES),
    ("ct_status", STATUSES),
    ("ct_dir", DIRECTIONS),
    ("fib_addrtype", KINDS),
    ("tcp_flag", FLAGS),
];
/// More than nft takes together (`NFT_REG32_COUNT` registers, Linux 6.18).
const MOST_FIELDS: usize = 16;
/// What stands between a field and its value, or between two values.
const OPERATORS: [&str; 7] = ["!=", "==", "!", "&", "|", "/", "vmap"];

impl NftTable {
    /// Has names in its rules and elements, wherever nft printed numbers.
    pub(crate) fn name_numbers(&mut self) {
        let chains = self.table.chains.values_mut();
        for rule in chains.flat_map(|chain| &mut chain.rules) {
            if let Some(named) = rule_of(&rule.text) {
                rule.text = named;
            }
        }
        for (name, elements) in &mut self.sets {
            let about = ["set", "map"].map(|word| self.about.get(&format!("{word} {name}")));
            let columns = of_set(about.into_iter().flatten().flatten());
            for element in elements {
                if let Some(named) = element_of(element, &columns) {
                    *element = named;
                }
            }
        }
    }
}

/// A rule with names; `None` where it has none of these numbers. A field's values stand behind it: `meta l4proto != 6`, `ct state 0x2,0x4`,
/// `ip daddr . meta l4proto { 10.0.0.1 . 6 }`, `meta l4proto vmap { 6 : accept }`.
fn rule_of(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split(' ').collect();
    let mut named = Named::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let rest = words.get(at..).unwrap_or_default();
        // What somebody wrote.
        if word.starts_with('"') {
            let is_alone = word.len() > 1 && word.ends_with('"');
            let end = rest.iter().skip(1).position(|it| it.ends_with('"'));
            let length = end.map_or(rest.len(), |end| end + 2);
            let length = if is_alone { 1 } else { length };
            named.keep(rest.get(..length).unwrap_or_default());
            at += length;
            continue;
        }
        let named_fields =
            |(_, columns): &(usize, Vec<Names>)| columns.iter().any(|it| !it.is_empty());
        if let Some((length, columns)) = columns(rest).filter(named_fields) {
            let (fields, values) = rest.split_at(length);
            named.keep(fields);
            at += length + named.values(values, &columns);
        } else {
            named.keep(&[word]);
            at += 1;
        }
    }
    named.text()
}

/// An element of a set of that type, as [`of_set`] has it.
fn element_of(text: &str, columns: &[Names]) -> Option<String> {
    let words: Vec<&str> = text.split(' ').collect();
    let ends = |word: &&str| matches!(*word, ":" | "comment" | "expires" | "timeout" | "counter");
    let end = words.iter().position(ends);
    let (key, about) = words.split_at(end.unwrap_or(words.len()));
    let mut named = Named::default();
    named.concatenated(key, columns);
    named.keep(about);
    named.text()
}

/// What the fields of a set's elements are called, by what is said of it: `type ipv4_addr . inet_proto . inet_service : verdict`, `typeof ip daddr
/// . meta l4proto`.
fn of_set<'a>(about: impl IntoIterator<Item = &'a String>) -> Vec<Names> {
    for line in about {
        let (line, _) = line.split_once(" : ").unwrap_or((line, ""));
        if let Some(types) = line.strip_prefix("type ") {
            return types.split(" . ").map(of_type).collect();
        }
        if let Some(fields) = line.strip_prefix("typeof ") {
            let fields: Vec<&str> = fields.split(' ').collect();
            return columns(&fields).map_or_else(Vec::new, |(_, columns)| columns);
        }
    }
    Vec::new()
}

fn of_type(name: &str) -> Names {
    let known = TYPES.iter().find(|(known, _)| *known == name);
    known.map_or(NONE, |(_, names)| names)
}

/// How many words the fields have that stand here, and what their values are called.
fn columns(words: &[&str]) -> Option<(usize, Vec<Names>)> {
    let (mut length, mut columns) = (0, Vec::new());
    while columns.len() < MOST_FIELDS {
        let (long, names) = field(words.get(length..)?)?;
        length += long;
        columns.push(names);
        if words.get(length) != Some(&".") {
            return Some((length, columns));
        }
        length += 1;
    }
    None
}

/// How many words a field has, and what its values are called.
fn field(words: &[&str]) -> Option<(usize, Names)> {
    match *words {
        ["fib", _, ref rest @ ..] => {
            // `. iif`, and what is asked of both.
            let keys = rest
                .chunks(2)
                .take_while(|it| it.first() == Some(&"."))
                .count();
            let what = *rest.get(2 * keys)?;
            Some((2 * keys + 3, if what == "type" { KINDS } else { NONE }))
        }
        [word, ..] if SHORT.contains(&word) => Some((1, NONE)),
        [first, second, ..] => {
            let known = FIELDS.iter().find(|(name, _)| *name == [first, second]);
            let names = known.map(|(_, names)| *names);
            let names = names.or_else(|| LONG.contains(&first).then_some(NONE));
            Some((2, names?))
        }
        _ => None,
    }
}

/// Words of a line, those that were numbers by their names.
#[derive(Default)]
struct Named<'a> {
    words: Vec<Cow<'a, str>>,
    had_numbers: bool,
}

impl<'a> Named<'a> {
    fn keep(&mut self, words: &[&'a str]) {
        self.words.extend(words.iter().map(|it| Cow::Borrowed(*it)));
    }

    /// Takes the values of these fields; says how many words they are.
    fn values(&mut self, words: &[&'a str], columns: &[Names]) -> usize {
        let mut at = self.operators(words);
        if words.get(at) == Some(&"{") {
            let rest = words.get(at + 1..).unwrap_or_default();
            let inside = rest.split(|it| *it == "}").next().unwrap_or_default();
            self.keep(&["{"]);
            for element in inside.split_inclusive(|it| it.ends_with(',')) {
                let colon = element.iter().position(|it| *it == ":");
                let (key, value) = element.split_at(colon.unwrap_or(element.len()));
                self.concatenated(key, columns);
                self.keep(value);
            }
            return at + 1 + inside.len();
        }
        let names = columns.first().copied().unwrap_or(NONE);
        while let Some(value) = words.get(at) {
            self.value(value, names);
            let operators = self.operators(words.get(at + 1..).unwrap_or_default());
            at += 1 + operators;
            if operators == 0 {
                break;
            }
        }
        at
    }

    /// Keeps the operators at the beginning; says how many they are.
    fn operators(&mut self, words: &[&'a str]) -> usize {
        let length = words.iter().take_while(|it| OPERATORS.contains(it)).count();
        self.keep(words.get(..length).unwrap_or_default());
        length
    }

    /// `10.0.0.1 . 6 . 80`.
    fn concatenated(&mut self, key: &[&'a str], columns: &[Names]) {
        let mut columns = columns.iter();
        let mut names = columns.next();
        for word in key {
            if *word == "." {
                names = columns.next();
                self.keep(&["."]);
            } else {
                self.value(word, names.copied().unwrap_or(NONE));
            }
        }
    }

    /// `0x2,0x4`, or one of several in parentheses or before a comma.
    fn value(&mut self, word: &'a str, names: Names) {
        let inside = word.trim_start_matches('(').trim_end_matches([',', ')']);
        let parts = inside
            .split(',')
            .map(|part| name(part, names).unwrap_or(part));
        let named = parts.collect::<Vec<_>>().join(",");
        if named == inside {
            self.keep(&[word]);
        } else {
            self.had_numbers = true;
            self.words
                .push(Cow::Owned(word.replacen(inside, &named, 1)));
        }
    }

    /// All of them, where there is a name that was a number.
    fn text(self) -> Option<String> {
        self.had_numbers.then(|| self.words.join(" "))
    }
}

fn name(number: &str, names: Names) -> Option<&'static str> {
    let number = match number.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => number.parse().ok()?,
    };
    let known = names.iter().find(|(known, _)| *known == number);
    known.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests;
