//! What a listing has of a rule behind its columns: matches, and the target's options.

use crate::words::quote;

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
                let words = &mut Words(after);
                let taken = behind.option(target, first, words) || behind.matched(first, words);
                taken.then_some(words.0)
            };
            let Some(behind_it) = read else {
                let unknown = quote(rest.trim()).into_owned();
                behind
                    .matches
                    .push(format!("-m as-listed --words {unknown}"));
                break;
            };
            rest = behind_it;
        }
        behind
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
            "tcp" | "udp" | "sctp" | "dccp" => Some(of_ports(first, words)),
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
            "owner" => words.two().and_then(|(which, _match)| {
                let option = match which {
                    "UID" => "--uid-owner",
                    "GID" => "--gid-owner",
                    _ => return None,
                };
                words
                    .take()
                    .map(|it| format!("-m owner {not}{option} {it}"))
            }),
            "limit:" => words.after("avg").map(|rate| {
                let burst = words.after("burst").unwrap_or("5");
                format!("-m limit --limit {rate} --limit-burst {burst}")
            }),
            _ => None,
        };
        let is_known = read.is_some();
        self.matches.extend(read);
        is_known
    }
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
        (self.take()? == expected).then(|| self.take())?
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
fn of_ports(protocol: &str, words: &mut Words<'_>) -> String {
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
            "--tcp-flags" => tcp_flags(value),
            _ => value.to_owned(),
        };
        text += &[" ", not, option, " ", &value].concat();
    }
    text
}

/// `0x17/0x02` as `FIN,SYN,RST,ACK SYN`.
fn tcp_flags(text: &str) -> String {
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
    let named = |part: &str| {
        let Some(bits) = part
            .strip_prefix("0x")
            .and_then(|it| u8::from_str_radix(it, 16).ok())
        else {
            return part.to_owned();
        };
        let set = names
            .iter()
            .enumerate()
            .filter(|(at, _)| bits & (1 << at) != 0);
        let set: Vec<&str> = set.map(|(_, name)| *name).collect();
        if set.is_empty() {
            "NONE".to_owned()
        } else {
            set.join(",")
        }
    };
    let (mask, wanted) = text.split_once('/').unwrap_or((text, ""));
    format!("{} {}", named(mask), named(wanted))
}

/// `ADDRTYPE match dst-type LOCAL limit-out`.
fn of_types(first: &str, words: &mut Words<'_>) -> String {
    let mut text = String::from("-m addrtype");
    let mut word = Some(first);
    while let Some(option) = word {
        text += &match option {
            "limit-in" => " --limit-iface-in".to_owned(),
            "limit-out" => " --limit-iface-out".to_owned(),
            _ => {
                let (not, kind) = turned(words.take().unwrap_or_default());
                format!(" {not}--{option} {kind}")
            }
        };
        word = words.next_if(|it| matches!(it, "src-type" | "dst-type" | "limit-in" | "limit-out"));
    }
    text
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
    let mut text = format!("-m recent {does}");
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
        text += &match word {
            "reap" => " --reap".to_owned(),
            "TTL-Match" => " --rttl".to_owned(),
            "side:" => format!(" --r{}", words.take()?),
            "hit_count:" => format!(" --hitcount {}", words.take()?),
            _ => format!(" --{} {}", word.trim_end_matches(':'), words.take()?),
        };
    }
    Some(text)
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
fn marked(how: &str, value: &str) -> Option<String> {
    let bits = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let to = match how {
        "xset" => value.to_owned(),
        "set" => format!("{value}/0xffffffff"),
        "or" => format!("{value}/{value}"),
        "xor" => format!("{value}/0x0"),
        "and" => format!("0x0/{:#x}", !bits(value)?),
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
