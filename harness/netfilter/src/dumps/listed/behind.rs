//! What a listing has of a rule behind its columns: matches, and the target's options.

use crate::words::{number, quote};

/// What stands behind a rule's columns.
#[derive(Debug, Default)]
pub(super) struct Behind {
    pub(super) matches: Vec<String>,
    /// Of the target.
    pub(super) options: Vec<String>,
    /// Whether the target does not come back.
    pub(super) goes: bool,
    /// What the target is saved as, where that is another name.
    pub(super) alias: Option<&'static str>,
}

impl Behind {
    pub(super) fn read(text: &str, target: &str) -> Self {
        let mut behind = Self::default();
        let mut rest = text;
        while let Some((first, after)) = word(rest) {
            let read = if first == "[goto]" {
                behind.goes = true;
                Some(after)
            } else if (target, first) == ("CT", "NOTRACK") {
                behind.alias = Some("NOTRACK");
                Some(after)
            } else if first == "/*" {
                behind.comment(after)
            } else {
                behind.known(target, first, after)
            };
            let Some(behind_it) = read else {
                behind.matches.push(unknown(rest));
                break;
            };
            rest = behind_it;
        }
        behind
    }

    /// Takes in an option of the target, or a match, and says what stands behind it; nothing where it is not known. Words that only say what is
    /// logged stand last, and decide nothing.
    fn known<'a>(&mut self, target: &str, first: &str, after: &'a str) -> Option<&'a str> {
        let logs = match target {
            "LOG" => first == "LOG",
            "NFLOG" => first.starts_with("nflog-"),
            _ => false,
        };
        if logs {
            return Some("");
        }
        let mut words = Words(after);
        if self.option(target, first, &mut words) {
            return Some(words.0);
        }
        let mut words = Words(after);
        self.matched(first, &mut words).then_some(words.0)
    }

    fn comment<'a>(&mut self, after: &'a str) -> Option<&'a str> {
        let after = after.strip_prefix(' ')?;
        let (comment, rest) = match after.strip_prefix("*/") {
            Some(rest) => ("", rest),
            None => after.split_once(" */")?,
        };
        let comment = quote(comment);
        self.matches.push(format!("-m comment --comment {comment}"));
        Some(rest)
    }

    /// Takes in what a target says of itself, as far as it is known: whether it is the target's.
    fn option(&mut self, target: &str, first: &str, words: &mut Words<'_>) -> bool {
        let option = match (target, first) {
            (
                "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT",
                "random" | "random-fully" | "persistent",
            ) => Some(format!("--{first}")),
            ("DNAT", to) => to
                .strip_prefix("to:")
                .map(|to| format!("--to-destination {to}")),
            ("SNAT", to) => to.strip_prefix("to:").map(|to| format!("--to-source {to}")),
            ("MASQUERADE", "masq") => words.after("ports:").map(|it| format!("--to-ports {it}")),
            ("REDIRECT", "redir") => words.after("ports").map(|it| format!("--to-ports {it}")),
            ("REJECT", "reject-with") => words.take().map(|it| format!("--reject-with {it}")),
            ("CT", "CT") => words
                .take()
                .filter(|it| *it == "notrack")
                .map(|it| format!("--{it}")),
            ("MARK", "MARK") => words.two().and_then(|(how, value)| marked(how, value)),
            ("TCPMSS", "TCPMSS") => match words.two() {
                Some(("clamp", "to")) => words.take().map(|_| "--clamp-mss-to-pmtu".to_owned()),
                Some(("set", size)) => Some(format!("--set-mss {size}")),
                _ => None,
            },
            _ => None,
        };
        let is_its = option.is_some();
        self.options.extend(option);
        is_its
    }

    /// Takes in a match, as far as it is known: whether it is.
    fn matched(&mut self, first: &str, words: &mut Words<'_>) -> bool {
        let (not, first) = if first == "!" {
            ("! ", words.take().unwrap_or_default())
        } else {
            ("", first)
        };
        if !not.is_empty() && !TURNED.contains(&first) {
            return false;
        }
        let read = match first {
            "ctstate" | "ctstatus" | "ctorigdst" | "ctorigsrc" | "ctorigdstport"
            | "ctorigsrcport" | "ctdir" => words
                .take()
                .map(|it| format!("-m conntrack {not}--{first} {it}")),
            "state" => words.take().map(|it| format!("-m state {not}--state {it}")),
            "match-set" => words
                .two()
                .map(|(set, of)| format!("-m set {not}--match-set {set} {of}")),
            "mark" | "connmark" => words.after("match").map(|it| match (it, words.0) {
                ("!", _) => format!("-m {first} ! --mark {}", words.take().unwrap_or_default()),
                (value, _) => format!("-m {first} --mark {value}"),
            }),
            "tcp" | "udp" | "sctp" | "dccp" => of_ports(first, words),
            "nfacct-name" => words
                .take()
                .map(|it| format!("-m nfacct --nfacct-name {it}")),
            // What is listed of any type.
            "icmptype" if words.0.trim_start().starts_with("255") => {
                words.take().map(|_| "-m icmp --icmp-type any".to_owned())
            }
            "icmptype" => words.take().map(|it| format!("-m icmp --icmp-type {it}")),
            "ipv6-icmptype" => words
                .take()
                .map(|it| format!("-m icmp6 --icmpv6-type {it}")),
            "multiport" => words.two().map(|(which, ports)| {
                let (not, ports) = turned(ports);
                format!("-m multiport {not}--{which} {ports}")
            }),
            "ADDRTYPE" => words.after("match").map(|it| of_types(it, words)),
            "statistic" => of_chance(words),
            "rpfilter" => Some(flags(
                "-m rpfilter",
                &["loose", "validmark", "accept-local", "invert"],
                words,
            )),
            "recent:" => recent(words),
            "owner" => owner(not, words),
            "limit:" => limit(words),
            _ => None,
        };
        let is_known = read.is_some();
        self.matches.extend(read);
        is_known
    }
}

/// Matches before which an exclamation mark is listed.
const TURNED: [&str; 10] = [
    "ctstate",
    "ctstatus",
    "ctorigdst",
    "ctorigsrc",
    "ctorigdstport",
    "ctorigsrcport",
    "ctdir",
    "state",
    "match-set",
    "owner",
];

/// A match that nobody knows, for words that are not known.
pub(in crate::dumps) fn unknown(words: &str) -> String {
    format!("-m as-listed {}", as_listed(words))
}

/// A comment with words that are not known: nobody takes a comment's for an option.
pub(in crate::dumps) fn as_listed(words: &str) -> String {
    let words = format!("as listed: {}", words.trim());
    format!("-m comment --comment {}", quote(&words))
}

/// The words behind what was read.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let (word, rest) = word(self.0)?;
        self.0 = rest;
        Some(word)
    }

    fn two(&mut self) -> Option<(&'a str, &'a str)> {
        Some((self.take()?, self.take()?))
    }

    /// The word behind this one, which is next.
    fn after(&mut self, expected: &str) -> Option<&'a str> {
        self.next_if(|it| it == expected)?;
        self.take()
    }

    /// The next one, if it is such.
    fn next_if(&mut self, is: impl FnOnce(&str) -> bool) -> Option<&'a str> {
        let (word, rest) = word(self.0)?;
        is(word).then(|| {
            self.0 = rest;
            word
        })
    }
}

/// `dpt:80`, `spts:1024:65535`, `dpt:!80`, `flags:0x17/0x02`.
fn of_ports(protocol: &str, words: &mut Words<'_>) -> Option<String> {
    let mut text = format!("-m {protocol}");
    let options = [
        ("dpt:", "--dport"),
        ("dpts:", "--dport"),
        ("spt:", "--sport"),
        ("spts:", "--sport"),
        ("flags:", "--tcp-flags"),
    ];
    let known = |word: &str| options.iter().any(|(prefix, _)| word.starts_with(prefix));
    while let Some(word) = words.next_if(known) {
        let found = options
            .iter()
            .find_map(|(prefix, option)| Some((*option, word.strip_prefix(prefix)?)));
        let Some((option, value)) = found else { break };
        let (not, value) = turned(value);
        let value = match option {
            "--tcp-flags" => tcp_flags(value)?,
            _ => value.to_owned(),
        };
        text += &[" ", not, option, " ", &value].concat();
    }
    Some(text)
}

/// `0x17/0x02` as `FIN,SYN,RST,ACK SYN`. Other bits have no names.
fn tcp_flags(text: &str) -> Option<String> {
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
    let named = |part: &str| {
        let Some(bits) = part.strip_prefix("0x") else {
            return Some(part.to_owned());
        };
        let bits = u8::from_str_radix(bits, 16)
            .ok()
            .filter(|it| it >> names.len() == 0)?;
        let set = names.iter().enumerate();
        let set = set.filter(|(at, _)| bits & (1 << at) != 0);
        let set: Vec<&str> = set.map(|(_, name)| *name).collect();
        Some(if set.is_empty() {
            "NONE".to_owned()
        } else {
            set.join(",")
        })
    };
    let (mask, wanted) = text.split_once('/')?;
    Some(format!("{} {}", named(mask)?, named(wanted)?))
}

/// `ADDRTYPE match dst-type LOCAL limit-out`.
fn of_types(first: &str, words: &mut Words<'_>) -> String {
    let mut parts = vec!["-m addrtype".to_owned()];
    let mut word = Some(first);
    while let Some(option) = word {
        parts.push(match option {
            "limit-in" => "--limit-iface-in".to_owned(),
            "limit-out" => "--limit-iface-out".to_owned(),
            _ => {
                let (not, kind) = turned(words.take().unwrap_or_default());
                format!("{not}--{option} {kind}")
            }
        });
        word = words.next_if(|it| matches!(it, "src-type" | "dst-type" | "limit-in" | "limit-out"));
    }
    parts.join(" ")
}

/// `owner UID match 0`.
fn owner(not: &str, words: &mut Words<'_>) -> Option<String> {
    let option = match words.take()? {
        "UID" => "--uid-owner",
        "GID" => "--gid-owner",
        _ => return None,
    };
    let of = words.after("match")?;
    Some(format!("-m owner {not}{option} {of}"))
}

/// `limit: avg 5/sec burst 7`.
fn limit(words: &mut Words<'_>) -> Option<String> {
    let rate = words.after("avg")?;
    let burst = words.after("burst").unwrap_or("5");
    Some(format!("-m limit --limit {rate} --limit-burst {burst}"))
}

/// `statistic mode random probability 0.5`, `statistic mode nth every 3 packet 1`.
fn of_chance(words: &mut Words<'_>) -> Option<String> {
    let mode = words.after("mode")?;
    let not = words.next_if(|it| it == "!").map_or("", |_| "! ");
    let (option, value) = words.two()?;
    let mut text = format!("-m statistic --mode {mode} {not}--{option} {value}");
    if mode == "nth" {
        let packet = words
            .next_if(|it| it == "packet")
            .and_then(|_| words.take());
        text += &[" --packet ", packet.unwrap_or("0")].concat();
    }
    Some(text)
}

/// `recent: CHECK seconds: 10800 reap name: KUBE-SEP-X side: source mask: 255.255.255.255`.
fn recent(words: &mut Words<'_>) -> Option<String> {
    let does = match words.take()? {
        "SET" => "--set",
        "CHECK" => "--rcheck",
        "UPDATE" => "--update",
        "REMOVE" => "--remove",
        _ => return None,
    };
    let mut parts = vec![format!("-m recent {does}")];
    let known = [
        "seconds:",
        "hit_count:",
        "reap",
        "name:",
        "side:",
        "mask:",
        "TTL-Match",
    ];
    while let Some(word) = words.next_if(|it| known.contains(&it)) {
        parts.push(match word {
            "reap" => "--reap".to_owned(),
            "TTL-Match" => "--rttl".to_owned(),
            "side:" => format!("--r{}", words.take()?),
            "hit_count:" => format!("--hitcount {}", words.take()?),
            _ => format!("--{} {}", word.trim_end_matches(':'), words.take()?),
        });
    }
    Some(parts.join(" "))
}

/// Those of these words that come next, as options.
fn flags(of: &str, known: &[&str], words: &mut Words<'_>) -> String {
    let mut text = of.to_owned();
    while let Some(flag) = words.next_if(|it| known.contains(&it)) {
        text += &[" --", flag].concat();
    }
    text
}

/// `MARK or 0x4000`, as the value and the bits that it is for.
pub(in crate::dumps) fn marked(how: &str, value: &str) -> Option<String> {
    let to = match how {
        "xset" => value.to_owned(),
        "set" => format!("{value}/0xffffffff"),
        "or" => format!("{value}/{value}"),
        "xor" => format!("{value}/0x0"),
        "and" => format!("0x0/{:#x}", !number(value)?),
        _ => return None,
    };
    Some(format!("--set-xmark {to}"))
}

/// The first word, and what stands behind it.
pub(super) fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    (!word.is_empty()).then_some((word, rest))
}

/// `!10.20.0.0/16`: whether it is turned round, as a prefix of an option.
pub(super) fn turned(text: &str) -> (&'static str, &str) {
    text.strip_prefix('!')
        .map_or(("", text), |text| ("! ", text))
}
