//! Rules of iptables-save, read into conditions and an action. What is not known stays as its words.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{
    matches::{CASES, IfName, Kind, Masked, Match, Ports, Side, Test, states},
    packet::{Protocol, TcpFlags},
    rules::{Indexed, Part},
    target,
};
use crate::{rule::Rule, words::join};

/// An option with its values.
pub(super) struct Clause<'a> {
    pub(super) not: bool,
    pub(super) option: Cow<'a, str>,
    pub(super) values: Vec<Cow<'a, str>>,
}

impl Clause<'_> {
    /// Its only value.
    pub(super) fn value(&self) -> Option<&str> {
        match self.values.as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }

    /// As it was written.
    pub(super) fn text(&self) -> String {
        let not = self.not.then_some("!").into_iter();
        let values = self.values.iter().map(|it| &**it);
        join(not.chain([&*self.option]).chain(values))
    }
}

/// Reads a rule. `chains` are the table's, by name.
pub(super) fn rule(rule: &Rule, chains: &BTreeMap<String, usize>) -> Indexed {
    let clauses = clauses(rule);
    let is_target = |it: &Clause| matches!(&*it.option, "-j" | "--jump" | "-g" | "--goto");
    let at = clauses.iter().position(is_target);
    let (conditions, target) = clauses.split_at(at.unwrap_or(clauses.len()));
    let mut reader = Reader::default();
    for clause in conditions {
        reader.read(clause);
    }
    let mut parts: Vec<Part> = reader.matches.into_iter().map(Part::If).collect();
    parts.push(Part::Do(target::action(target, chains)));
    Indexed {
        parts,
        text: rule.text.clone(),
    }
}

/// The words of a rule by option. A `!` stands before its option; old ones stand before the value.
fn clauses(rule: &Rule) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    let mut not = false;
    let mut words = rule.words();
    while let Some(word) = words.next() {
        if word == "!" {
            not = true;
        } else if word.starts_with('-') && word.len() > 1 {
            let takes_any = matches!(&*word, "--comment" | "--log-prefix" | "--nflog-prefix");
            clauses.push(Clause {
                not: std::mem::take(&mut not),
                option: word,
                values: Vec::from_iter(if takes_any { words.next() } else { None }),
            });
        } else if let Some(clause) = clauses.last_mut() {
            clause.not |= std::mem::take(&mut not);
            clause.values.push(word);
        }
    }
    clauses
}

/// Conditions as they are read: options belong to the match that was named last.
#[derive(Default)]
struct Reader {
    matches: Vec<Match>,
    module: String,
}

impl Reader {
    fn read(&mut self, clause: &Clause<'_>) {
        if matches!(&*clause.option, "-m" | "--match") {
            clause
                .value()
                .unwrap_or_default()
                .clone_into(&mut self.module);
            return self.begin(clause);
        }
        if self.goes_on(clause) {
            return;
        }
        match read(&self.module, clause) {
            Read::Asks(test) => self.push(clause.not, test),
            Read::Nothing => {}
            Read::Unknown => self.unknown(clause.text()),
        }
    }

    fn push(&mut self, not: bool, test: Test) {
        self.matches.push(Match { not, test });
    }

    /// A match that asks something without any option.
    fn begin(&mut self, clause: &Clause<'_>) {
        match &*self.module {
            "rpfilter" => self.push(
                false,
                Test::ReverseRoute {
                    loose: false,
                    with_mark: false,
                    accept_local: false,
                },
            ),
            "recent" => self.push(
                false,
                Test::Recent {
                    name: "DEFAULT".to_owned(),
                    only_notes: false,
                },
            ),
            module if KNOWN.contains(&module) => {}
            _ => self.unknown(clause.text()),
        }
    }

    /// An option that says more of the condition before it.
    fn goes_on(&mut self, clause: &Clause<'_>) -> bool {
        let Some(last) = self.matches.last_mut() else {
            return false;
        };
        match (&mut last.test, &*clause.option) {
            (Test::ReverseRoute { loose, .. }, "--loose") => *loose = true,
            (Test::ReverseRoute { with_mark, .. }, "--validmark") => *with_mark = true,
            (Test::ReverseRoute { accept_local, .. }, "--accept-local") => *accept_local = true,
            (Test::ReverseRoute { .. }, "--invert") => last.not = true,
            (Test::Kind { only_of_input, .. }, "--limit-iface-in") => *only_of_input = true,
            (Test::Recent { name, .. }, "--name") => {
                clause.value().unwrap_or_default().clone_into(name);
            }
            (Test::Recent { only_notes, .. }, "--set") => *only_notes = true,
            (Test::Recent { .. }, "--rcheck" | "--update") => last.not = clause.not,
            (Test::Recent { .. }, "--seconds" | "--reap" | "--mask" | "--rsource" | "--rdest") => {}
            _ => return false,
        }
        true
    }

    /// Options of one match that is not known are one condition.
    fn unknown(&mut self, words: String) {
        match self.matches.last_mut() {
            Some(Match {
                test: Test::Unknown(known),
                ..
            }) if !words.starts_with("-m ") => {
                known.push(' ');
                known.push_str(&words);
            }
            _ => self.push(false, Test::Unknown(words)),
        }
    }
}

/// Matches whose options [`read`] knows.
const KNOWN: [&str; 17] = [
    "addrtype",
    "comment",
    "connmark",
    "conntrack",
    "icmp",
    "icmp6",
    "mark",
    "multiport",
    "nfacct",
    "rpfilter",
    "sctp",
    "set",
    "state",
    "statistic",
    "tcp",
    "udp",
    "udplite",
];

/// What an option comes to.
enum Read {
    Asks(Test),
    /// It asks nothing.
    Nothing,
    Unknown,
}

impl From<Option<Test>> for Read {
    fn from(test: Option<Test>) -> Self {
        test.map_or(Self::Unknown, Self::Asks)
    }
}

fn read(module: &str, clause: &Clause<'_>) -> Read {
    let option = &*clause.option;
    match (module, option) {
        (_, "--comment" | "--nfacct-name") => return Read::Nothing,
        ("statistic", "--mode") if clause.value() == Some("random") => return Read::Nothing,
        ("tcp", "--tcp-flags") => return flags(clause).into(),
        ("set", "--match-set") => return in_set(clause).into(),
        (_, "--syn") => {
            let of = TcpFlags(0x17);
            let set = TcpFlags::SYN;
            return Read::Asks(Test::Flags { of, set });
        }
        _ => {}
    }
    let Some(value) = clause.value() else {
        return Read::Unknown;
    };
    match option {
        "-s" | "--source" | "--src" => address(Side::Src, value).into(),
        "-d" | "--destination" | "--dst" => address(Side::Dst, value).into(),
        "-i" | "--in-interface" => Read::Asks(Test::Input(IfName::parse(value))),
        "-o" | "--out-interface" => Read::Asks(Test::Output(IfName::parse(value))),
        "-p" | "--protocol" | "--proto" if matches!(value, "all" | "0") => Read::Nothing,
        "-p" | "--protocol" | "--proto" => Protocol::parse(value).map(Test::Protocol).into(),
        _ => of_module(module, option, value).into(),
    }
}

fn flags(clause: &Clause<'_>) -> Option<Test> {
    let [of, set] = clause.values.as_slice() else {
        return None;
    };
    let (of, set) = (TcpFlags::parse(of)?, TcpFlags::parse(set)?);
    Some(Test::Flags { of, set })
}

fn address(side: Side, value: &str) -> Option<Test> {
    net(value).map(|net| Test::Address(side, net))
}

fn of_module(module: &str, option: &str, value: &str) -> Option<Test> {
    match (module, option) {
        ("conntrack" | "state", _) => of_conntrack(option, value),
        ("multiport", "--ports") => Ports::parse(value).map(Test::AnyPort),
        ("multiport", "--sports" | "--source-ports") | (_, "--sport" | "--source-port") => {
            port(Side::Src, value)
        }
        ("multiport", "--dports" | "--destination-ports")
        | (_, "--dport" | "--destination-port") => port(Side::Dst, value),
        ("mark", "--mark") => Masked::parse(value).map(Test::Mark),
        ("connmark", "--mark") => Masked::parse(value).map(Test::ConnectionMark),
        ("addrtype", "--src-type") => kind(Side::Src, value),
        ("addrtype", "--dst-type") => kind(Side::Dst, value),
        ("icmp", "--icmp-type") | ("icmp6", "--icmpv6-type") => {
            value.parse().ok().map(|kind| Test::Icmp { kind })
        }
        ("statistic", "--probability") => chance(value).map(Test::Chance),
        _ => None,
    }
}

fn of_conntrack(option: &str, value: &str) -> Option<Test> {
    match option {
        "--ctstate" | "--state" => states::parse(value).map(Test::State),
        "--ctorigsrc" => net(value).map(|net| Test::Original(Side::Src, net)),
        "--ctorigdst" => net(value).map(|net| Test::Original(Side::Dst, net)),
        "--ctorigdstport" => Ports::parse(value).map(Test::OriginalPort),
        "--ctdir" if value == "ORIGINAL" => Some(Test::OriginalDirection),
        _ => None,
    }
}

/// Reads a network, or an address as one of its own.
pub(super) fn net(value: &str) -> Option<IpNet> {
    let host = || value.parse::<IpAddr>().ok().map(IpNet::from);
    value.parse().ok().or_else(host)
}

fn port(side: Side, value: &str) -> Option<Test> {
    Ports::parse(value).map(|ports| Test::Port(side, ports))
}

fn kind(side: Side, value: &str) -> Option<Test> {
    let one = |name| {
        Some(match name {
            "LOCAL" => Kind::Local,
            "UNICAST" => Kind::Unicast,
            "BROADCAST" => Kind::Broadcast,
            "MULTICAST" => Kind::Multicast,
            "BLACKHOLE" => Kind::Blackhole,
            "UNREACHABLE" => Kind::Unreachable,
            "PROHIBIT" => Kind::Prohibit,
            _ => return None,
        })
    };
    Some(Test::Kind {
        side,
        kinds: value.split(',').map(one).collect::<Option<_>>()?,
        only_of_input: false,
    })
}

/// The kernel keeps probabilities in units of 2⁻³¹ (iptables 1.8, `libxt_statistic.c`: `lround`).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of 0 to 1 times 2³¹"
)]
fn chance(value: &str) -> Option<u32> {
    let share: f64 = value.parse().ok()?;
    (0.0..=1.0)
        .contains(&share)
        .then(|| (share * f64::from(CASES)).round() as u32)
}

fn in_set(clause: &Clause<'_>) -> Option<Test> {
    let [name, keys] = clause.values.as_slice() else {
        return None;
    };
    let key = |word| match word {
        "src" => Some(Side::Src),
        "dst" => Some(Side::Dst),
        _ => None,
    };
    Some(Test::Set {
        name: name.to_string(),
        keys: keys.split(',').map(key).collect::<Option<_>>()?,
    })
}
