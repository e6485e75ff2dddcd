//! nft's tables in memory: what a transaction makes of them, as the kernel would, and what it refuses.
//!
//! The line form is read as agents write it (sigs.k8s.io/knftables, objects.go): `add`, `flush` and `delete`
//! of tables, chains, rules, sets, maps and elements. Whether a rule's expressions exist is not asked.

use std::collections::BTreeMap;

use super::{
    NftTable,
    content::{Chain, Content, ELEMENT, Set},
    normal::tokens,
};

/// Why a command fails. Nothing of its transaction has happened then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A line that is none of nft's, or none that is known here.
    #[error("/dev/stdin:{line}:1-1: Error: syntax error, unexpected {text}")]
    Syntax {
        /// Which line of the input, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// The kernel does not do what a line asks for.
    #[error("/dev/stdin:{line}:1-1: Error: Could not process rule: {reason}")]
    Kernel {
        /// Which line of the input, from 1.
        line: usize,
        /// Why.
        reason: Reason,
    },
    /// What is to be listed is not there.
    #[error("{0}")]
    Missing(Reason),
}

/// The words of an error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// ENOENT.
    #[error("No such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("File exists")]
    Exists,
    /// EBUSY.
    #[error("Device or resource busy")]
    Busy,
}

/// All tables, by family and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables(pub(super) BTreeMap<(String, String), Content>);

impl Tables {
    /// Makes a transaction happen, all of it or nothing.
    pub fn apply(&mut self, input: &str) -> Result<(), Refusal> {
        let mut changed = self.clone();
        for (line, number) in input.lines().zip(1..) {
            let words = tokens(line);
            if !words.is_empty() {
                changed.line(&words, line, number)?;
            }
        }
        *self = changed;
        Ok(())
    }

    fn line(&mut self, words: &[String], text: &str, number: usize) -> Result<(), Refusal> {
        let syntax = || Refusal::Syntax {
            line: number,
            text: text.to_owned(),
        };
        let [verb, object, family, table, rest @ ..] = words else {
            return Err(syntax());
        };
        let key = (family.clone(), table.clone());
        let done = match (verb.as_str(), object.as_str()) {
            ("add", "table") => {
                self.0.entry(key).or_default();
                Ok(())
            }
            ("delete", "table") => self.0.remove(&key).map(drop).ok_or(Reason::NotFound),
            _ => {
                let [name, rest @ ..] = rest else {
                    return Err(syntax());
                };
                match self.0.get_mut(&key) {
                    None => Err(Reason::NotFound),
                    Some(content) => content
                        .take(verb, object, name, rest, text)
                        .ok_or_else(syntax)?,
                }
            }
        };
        done.map_err(|reason| Refusal::Kernel {
            line: number,
            reason,
        })
    }

    /// Every chain, set and map with its lines: `ip kube-proxy chain services`. What a set holds stands in lines that
    /// begin with `element`.
    pub fn places(&self) -> Vec<(String, Vec<String>)> {
        let mut places = Vec::new();
        for ((family, table), content) in &self.0 {
            let chains = content.chains.iter();
            places
                .extend(chains.map(|(name, chain)| {
                    (format!("{family} {table} chain {name}"), chain.lines())
                }));
            let sets = content.sets.iter();
            places.extend(
                sets.map(|(name, set)| {
                    (format!("{family} {table} {} {name}", set.word), set.lines())
                }),
            );
        }
        places
    }

    /// The tables that have these places.
    pub fn of_places<'a>(places: impl IntoIterator<Item = (&'a str, &'a [String])>) -> Self {
        let mut tables = Self::default();
        for (place, lines) in places {
            let words: Vec<&str> = place.split(' ').collect();
            let [family, table, word, name] = words.as_slice() else {
                continue;
            };
            let key = ((*family).to_owned(), (*table).to_owned());
            let content = tables.0.entry(key).or_default();
            match *word {
                "chain" => drop(content.chains.insert((*name).to_owned(), Chain::of(lines))),
                word => drop(
                    content
                        .sets
                        .insert((*name).to_owned(), Set::of(word, lines)),
                ),
            }
        }
        tables
    }
}

/// The places of a listed table, as [`Tables::places`] names them.
pub fn places(listed: &NftTable) -> Vec<(String, Vec<String>)> {
    let place = |word: &str, name: &str| {
        let (family, table) = (&listed.family, &listed.name);
        format!("{family} {table} {word} {name}")
    };
    let chains = listed.table.chains.iter().map(|(name, chain)| {
        let about = listed.about.get(&format!("chain {name}"));
        let rules = chain.rules.iter().map(|it| it.text.clone());
        (
            place("chain", name),
            about.into_iter().flatten().cloned().chain(rules).collect(),
        )
    });
    let sets = listed.sets.iter().map(|(name, elements)| {
        let about = |word: &str| listed.about.get(&format!("{word} {name}"));
        let word = if about("map").is_some() { "map" } else { "set" };
        let elements = elements
            .iter()
            .map(|it| format!("{ELEMENT} {}", untimed(it)));
        let about = about(word).into_iter().flatten().cloned();
        (place(word, name), about.chain(elements).collect())
    });
    chains.chain(sets).collect()
}

/// Without the time that an element has left.
fn untimed(element: &str) -> &str {
    element
        .split_once(" expires ")
        .map_or(element, |(element, _)| element)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "add table ip t { comment \"c\" ; }\n\
        add chain ip t a { type filter hook input priority 0 ; }\nadd chain ip t b\n\
        add set ip t s { type ipv4_addr ; flags dynamic,timeout ; timeout 10800s ; }\n\
        add map ip t m { type ipv4_addr . inet_service : verdict ; comment \"x ; y\" ; }\n\
        add rule ip t a ct state new jump b\nadd rule ip t a ip saddr @s drop comment \"d e\"\n\
        add element ip t m { 10.0.0.1 . 80 comment \"n/s:p\" : goto b }\n";

    fn started() -> Tables {
        let mut tables = Tables::default();
        tables.apply(START).unwrap();
        tables
    }

    #[test]
    fn a_transaction_makes_chains_rules_sets_and_elements() {
        let places: BTreeMap<_, _> = started().places().into_iter().collect();
        assert_eq!(
            places["ip t chain a"],
            [
                "type filter hook input priority 0 policy accept",
                "ct state new jump b",
                "ip saddr @s drop comment \"d e\""
            ]
        );
        assert_eq!(places["ip t chain b"], Vec::<String>::new());
        assert_eq!(
            places["ip t set s"],
            [
                "flags dynamic , timeout",
                "timeout 10800s",
                "type ipv4_addr"
            ]
        );
        assert_eq!(
            places["ip t map m"],
            [
                "type ipv4_addr . inet_service : verdict",
                "comment \"x ; y\"",
                "element 10.0.0.1 . 80 comment \"n/s:p\" : goto b"
            ]
        );
        let again = Tables::of_places(
            places
                .iter()
                .map(|(it, lines)| (it.as_str(), lines.as_slice())),
        );
        assert_eq!(again, started());
    }

    #[test]
    fn a_rule_is_inserted_before_all_others_and_never_where_it_is_not_known() {
        let mut tables = started();
        tables.apply("insert rule ip t a counter accept\n").unwrap();
        let places: BTreeMap<_, _> = tables.places().into_iter().collect();
        let rules = &places["ip t chain a"][1..];
        assert_eq!(rules[..2], ["counter accept", "ct state new jump b"]);
        let beside = tables.apply("insert rule ip t a position 7 drop\n");
        assert!(matches!(beside, Err(Refusal::Syntax { .. })), "{beside:?}");
        let to_nowhere = tables.apply("insert rule ip t a jump c\n");
        assert!(matches!(to_nowhere, Err(Refusal::Kernel { .. })));
    }

    #[test]
    fn what_the_kernel_refuses_is_refused_whole() {
        let refused = [
            ("delete chain ip t b", Reason::Busy),
            ("delete set ip t s", Reason::Busy),
            ("delete chain ip t c", Reason::NotFound),
            ("flush chain ip t c", Reason::NotFound),
            ("add rule ip t c drop", Reason::NotFound),
            ("add rule ip t b jump c", Reason::NotFound),
            ("add rule ip t b ip saddr @c drop", Reason::NotFound),
            ("add rule ip u b drop", Reason::NotFound),
            ("delete table ip u", Reason::NotFound),
            ("delete element ip t m { 10.0.0.2 . 80 }", Reason::NotFound),
            (
                "add element ip t m { 10.0.0.2 . 80 : goto c }",
                Reason::NotFound,
            ),
            (
                "add element ip t m { 10.0.0.1 . 80 : drop }",
                Reason::Exists,
            ),
            (
                "add chain ip t a { type filter hook input priority 1 ; }",
                Reason::Exists,
            ),
        ];
        for (line, reason) in refused {
            let mut tables = started();
            let input = format!("flush chain ip t a\nadd rule ip t a ip saddr @s jump b\n{line}\n");
            let refusal = tables.apply(&input).unwrap_err();
            assert_eq!(refusal, Refusal::Kernel { line: 3, reason }, "{line}");
            assert_eq!(tables, started(), "{line}");
        }
    }

    #[test]
    fn what_nothing_uses_any_more_can_be_deleted() {
        let mut tables = started();
        let input = "flush chain ip t a\ndelete element ip t m { 10.0.0.1 . 80 }\n\
                     delete chain ip t b\ndelete set ip t s\ndelete map ip t m\n";
        tables.apply(input).unwrap();
        assert_eq!(tables.places().len(), 1);
        assert!(tables.apply("frobnicate ip t a b").is_err());
    }
}
