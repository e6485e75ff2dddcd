//! The one spelling of a rule, so that what an agent wrote is recognised in what iptables-save prints:
//! `-m tcp -p tcp -d 10.0.0.1 --dport 80` is `-d 10.0.0.1/32 -p tcp -m tcp --dport 80`.
//!
//! A rule is a set of clauses (an option, its values, maybe a `!`). `-m` and protocol matches that follow
//! from other clauses are dropped; what remains is spelled as iptables-save 1.8 spells it, and sorted.
//! Known limit: two matches of the same kind in one rule lose their grouping.

use std::{borrow::Cow, net::IpAddr};

use crate::words::{join, number, words};

/// The normal form of a rule's text.
pub(crate) fn form(text: &str) -> String {
    let mut clauses: Vec<String> = clauses(text)
        .into_iter()
        .filter_map(|clause| spell(&clause))
        .collect();
    clauses.sort_unstable();
    clauses.join(" ")
}

/// Words grouped by option; a `!` before the option or before its value comes first.
fn clauses(text: &str) -> Vec<Vec<Cow<'_, str>>> {
    let mut clauses: Vec<Vec<Cow<'_, str>>> = Vec::new();
    let mut negated = false;
    let mut words = words(text);
    while let Some(word) = words.next() {
        if word == "!" {
            // `--mark ! 5` negates the clause that is open: only an option without value can be so.
            match clauses.last_mut() {
                Some(last) if last.len() == 1 && takes_value(&last[0]) => last.insert(0, word),
                _ => negated = true,
            }
            continue;
        }
        if word.starts_with('-') && word.len() > 1 {
            let comment = word == "--comment";
            let mut clause = Vec::from_iter(std::mem::take(&mut negated).then_some("!".into()));
            clause.push(word);
            clause.extend(if comment { words.next() } else { None });
            clauses.push(clause);
        } else {
            match clauses.last_mut() {
                Some(clause) => clause.push(word),
                None => clauses.push(vec![word]),
            }
        }
    }
    clauses
}

/// Options seen in front of an inner `!` by iptables' old grammar.
fn takes_value(option: &str) -> bool {
    matches!(
        option,
        "-s" | "-d" | "-p" | "-i" | "-o" | "--mark" | "--dport" | "--sport" | "--ctstate"
    )
}

fn spell(clause: &[Cow<'_, str>]) -> Option<String> {
    let (negation, clause) = match clause.first() {
        Some(word) if word == "!" => ("! ", &clause[1..]),
        _ => ("", clause),
    };
    let (option, values) = clause.split_first()?;
    let option = short(option);
    if option == "-m" || is_default(option, values) {
        return None;
    }
    let (option, values) = value(option, values);
    let words = std::iter::once(option).chain(values.iter().map(String::as_str));
    Some(format!("{negation}{}", join(words)))
}

fn short(option: &str) -> &str {
    match option {
        "--jump" => "-j",
        "--goto" => "-g",
        "--source" | "--src" => "-s",
        "--destination" | "--dst" => "-d",
        "--protocol" | "--proto" => "-p",
        "--in-interface" => "-i",
        "--out-interface" => "-o",
        "--match" => "-m",
        "--source-port" => "--sport",
        "--destination-port" => "--dport",
        "--source-ports" => "--sports",
        "--destination-ports" => "--dports",
        other => other,
    }
}

/// What `recent` looks at of an IPv6 address unless told otherwise: all of it.
const WHOLE_V6: &str = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";

/// Clauses that iptables-save prints and nobody needs to write.
fn is_default(option: &str, values: &[Cow<'_, str>]) -> bool {
    match values {
        [] => option == "--rsource",
        [value] => matches!(
            (option, &**value),
            (
                "--reject-with",
                "icmp-port-unreachable" | "icmp6-port-unreachable"
            ) | ("--mask", "255.255.255.255" | WHOLE_V6)
                | ("-s" | "-d", "0.0.0.0/0" | "::/0")
        ),
        _ => false,
    }
}

fn value<'a>(option: &'a str, values: &[Cow<'_, str>]) -> (&'a str, Vec<String>) {
    let [only] = values else {
        return (option, values.iter().map(ToString::to_string).collect());
    };
    let set_xmark = |value: String| ("--set-xmark", vec![value]);
    match option {
        "-s" | "-d" => (option, vec![with_prefix(only)]),
        "--or-mark" => set_xmark(format!("{0}/{0}", in_hex(only))),
        "--xor-mark" => set_xmark(format!("{}/0x0", in_hex(only))),
        "--set-mark" if !only.contains('/') => set_xmark(format!("{}/0xffffffff", in_hex(only))),
        // What is set is cleared before (iptables 1.8, libxt_MARK.c and libxt_CONNMARK.c).
        "--set-mark" => {
            let (value, mask) = only.split_once('/').unwrap_or((only, ""));
            match (number(value), number(mask)) {
                (Some(value), Some(mask)) => set_xmark(format!("{value:#x}/{:#x}", value | mask)),
                _ => (option, vec![only.to_string()]),
            }
        }
        "--mark" => {
            let mark = masked(only);
            let whole = mark.strip_suffix("/0xffffffff").map(str::to_owned);
            (option, vec![whole.unwrap_or(mark)])
        }
        "--and-mark" => {
            let mask = number(only).unwrap_or_default();
            set_xmark(format!("0x0/{:#x}", !mask))
        }
        "--set-xmark" | "--restore-mark" => (option, vec![masked(only)]),
        "--probability" => (option, vec![probability(only)]),
        "--ctstate" | "--state" => {
            let mut states: Vec<&str> = only.split(',').collect();
            states.sort_unstable();
            (option, vec![states.join(",")])
        }
        _ => (option, vec![only.to_string()]),
    }
}

fn with_prefix(address: &str) -> String {
    match address.parse() {
        Ok(IpAddr::V4(_)) => format!("{address}/32"),
        Ok(IpAddr::V6(_)) => format!("{address}/128"),
        Err(_) => address.to_owned(),
    }
}

fn masked(mark: &str) -> String {
    match mark.split_once('/') {
        Some((value, mask)) => format!("{}/{}", in_hex(value), in_hex(mask)),
        None => in_hex(mark),
    }
}

fn in_hex(text: &str) -> String {
    number(text).map_or_else(|| text.to_owned(), |number| format!("{number:#x}"))
}

/// The kernel keeps probabilities in units of 2⁻³¹.
fn probability(text: &str) -> String {
    text.parse::<f64>().map_or_else(
        |_| text.to_owned(),
        |share| format!("{:.0}", (share * 2f64.powi(31)).round()),
    )
}

#[cfg(test)]
mod tests {
    use super::form;

    #[test]
    fn written_and_saved_rules_have_one_form() {
        let pairs = [
            (
                r#"-m comment --comment "a b" -m tcp -p tcp -d 10.96.10.10 --dport 80 -j X"#,
                r#"-d 10.96.10.10/32 -p tcp -m comment --comment "a b" -m tcp --dport 80 -j X"#,
            ),
            (
                "-j MARK --xor-mark 0x00004000",
                "-j MARK --set-xmark 0x4000/0x0",
            ),
            (
                "-j MARK --or-mark 0x00004000",
                "-j MARK --set-xmark 0x4000/0x4000",
            ),
            (
                "--jump MARK --set-mark 0x1/0x3",
                "-j MARK --set-xmark 0x1/0x3",
            ),
            (
                "--jump MARK --set-mark 0x8/0x3",
                "-j MARK --set-xmark 0x8/0xb",
            ),
            (
                "-m mark --mark 0x3000000/0xffffffff --goto X",
                "-m mark --mark 0x3000000 -g X",
            ),
            (
                "-m mark ! --mark 0x00004000/0x00004000 --jump RETURN",
                "-m mark ! --mark 0x4000/0x4000 -j RETURN",
            ),
            (
                "-m statistic --mode random --probability 0.3333333333 -j X",
                "-m statistic --mode random --probability 0.33333333349 -j X",
            ),
            (
                "-s 0.0.0.0/0 -j REJECT",
                "-j REJECT --reject-with icmp-port-unreachable",
            ),
            (
                "! -s 10.0.0.0/8 -d 127.0.0.0/8 -j X",
                "-d 127.0.0.0/8 ! --source 10.0.0.0/8 -j X",
            ),
        ];
        for (written, saved) in pairs {
            assert_eq!(form(written), form(saved));
        }
    }

    #[test]
    fn different_rules_have_different_forms() {
        let rules = [
            "-s 10.0.0.1/32 -j X",
            "! -s 10.0.0.1/32 -j X",
            "-s 10.0.0.1/32 -j Y",
            "-s 10.0.0.1/32 -g X",
            "-s 10.0.0.0/8 -j X",
            "-m mark --mark 0x1 -j X",
        ];
        let forms: std::collections::BTreeSet<_> = rules.iter().map(|rule| form(rule)).collect();
        assert_eq!(forms.len(), rules.len());
    }
}
