//! The matches of a rule.

use std::net::IpAddr;

use ipnet::IpNet;

use super::listed::unknown;
use crate::words::number;

/// All of them, as iptables saves them. Those from the first one on that is not known are one that nobody knows.
pub(super) fn read(words: &[&str]) -> Vec<String> {
    let mut reader = Reader {
        words,
        protocol: None,
    };
    let mut parts = Vec::new();
    while !reader.words.is_empty() {
        let left = reader.words;
        let Some(part) = reader.one() else {
            parts.push(unknown(&left.join(" ")));
            break;
        };
        parts.push(part);
    }
    parts
}

/// What is still to be read.
struct Reader<'w> {
    words: &'w [&'w str],
    /// What was said of the protocol.
    protocol: Option<&'w str>,
}

/// How a set of options says that something must not be.
const NOT: &str = "! ";

impl<'w> Reader<'w> {
    fn one(&mut self) -> Option<String> {
        let [first, rest @ ..] = self.words else {
            return None;
        };
        match (*first, rest) {
            ("ip" | "ip6", ["saddr", ..]) => self.skip(2).address("-s"),
            ("ip" | "ip6", ["daddr", ..]) => self.skip(2).address("-d"),
            ("iifname", _) => self.skip(1).interface("-i"),
            ("oifname", _) => self.skip(1).interface("-o"),
            ("meta", ["l4proto", ..]) | ("ip", ["protocol", ..]) => self.skip(2).protocol(),
            ("tcp", ["flags", ..]) => self.skip(2).flags(),
            ("tcp" | "udp" | "sctp" | "dccp", ["sport" | "dport", ..]) => self.ports(first),
            ("icmp", ["type", "echo-request", ..]) => Some(self.take(3, "-m icmp --icmp-type 8")),
            ("icmpv6", ["type", "echo-request", ..]) => {
                Some(self.take(3, "-m icmp6 --icmpv6-type 128"))
            }
            ("ip", ["frag-off", "&", _, "!=", _, ..]) => Some(self.take(6, "-f")),
            ("ip", ["frag-off", "&", _, "==", _, ..]) => Some(self.take(6, "! -f")),
            ("mark", _) => self.skip(1).marked("mark"),
            ("ct", ["mark", ..]) => self.skip(2).marked("connmark"),
            ("ct", ["state", ..]) => self.skip(2).states(),
            ("ct", ["original", ..]) => self.original(),
            ("fib", _) => self.skip(1).kind(),
            ("meta", ["random", "&", "2147483647", "<", below, ..]) => {
                let probability = f64::from(number(below)?) / f64::from(1_u32 << 31);
                let mode = format!("-m statistic --mode random --probability {probability:.11}");
                Some(self.take(6, mode))
            }
            ("numgen", ["inc", "mod", every, packet, ..]) => {
                let mode = format!("-m statistic --mode nth --every {every} --packet {packet}");
                number(packet)?;
                Some(self.take(5, mode))
            }
            ("limit", ["rate", rate, rest @ ..]) if rate.contains('/') => {
                let rate = rate.replace("/second", "/sec").replace("/minute", "/min");
                // 1.0.6 leaves out what is iptables' default.
                let (length, burst) = match rest {
                    ["burst", burst, "packets", ..] => (6, *burst),
                    _ => (3, "5"),
                };
                Some(self.take(
                    length,
                    format!("-m limit --limit {rate} --limit-burst {burst}"),
                ))
            }
            ("skuid", _) => self.skip(1).owner("--uid-owner"),
            ("skgid", _) => self.skip(1).owner("--gid-owner"),
            // It counts, and matches every packet. What counts is not printed.
            ("xt", ["match", "nfacct" | "\"nfacct\"", ..]) => {
                Some(self.take(3, "-m nfacct --nfacct-name as-listed"))
            }
            // `ct status` among them: 1.8.9 has `dnat` there for `! --ctstate RELATED,ESTABLISHED,DNAT`, and for `--ctstate DNAT`.
            _ => None,
        }
    }

    fn skip(&mut self, count: usize) -> &mut Self {
        self.words = self.words.get(count..).unwrap_or_default();
        self
    }

    /// A match of so many words.
    fn take(&mut self, count: usize, part: impl Into<String>) -> String {
        self.skip(count);
        part.into()
    }

    fn next(&mut self) -> Option<&'w str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn next_if(&mut self, is: impl FnOnce(&str) -> bool) -> Option<&'w str> {
        self.words.first().filter(|it| is(it))?;
        self.next()
    }

    /// Whether the next value is what must not be.
    fn not(&mut self) -> &'static str {
        match self.next_if(|it| ["!=", "!", "=="].contains(&it)) {
            Some("!=" | "!") => NOT,
            _ => "",
        }
    }

    /// A value that is no set.
    fn value(&mut self) -> Option<&'w str> {
        self.next_if(|it| !["{", "&", ".", "|"].contains(&it) && !it.starts_with('@'))
    }

    /// Values with commas between them.
    fn values(&mut self) -> Option<Vec<&'w str>> {
        let mut all = vec![self.value()?];
        while self.next_if(|it| it == ",").is_some() {
            all.push(self.value()?);
        }
        Some(all)
    }

    fn address(&mut self, option: &str) -> Option<String> {
        let (not, value) = (self.not(), self.value()?);
        let net: Option<IpNet> = value.parse().ok();
        let net = net.or_else(|| value.parse().map(IpAddr::into).ok())?;
        Some(format!("{not}{option} {net}"))
    }

    fn interface(&mut self, option: &str) -> Option<String> {
        let (not, name) = (self.not(), self.value()?.trim_matches('"'));
        let name = name.replace('*', "+");
        Some(format!("{not}{option} {name}"))
    }

    /// 1.1.3 says it once more before a target that takes one.
    fn protocol(&mut self) -> Option<String> {
        let (not, value) = (self.not(), self.value()?);
        if not.is_empty() && self.protocol.replace(value) == Some(value) {
            return Some(String::new());
        }
        Some(format!("{not}-p {value}"))
    }

    /// What says the protocol, where nothing has said it yet.
    fn of(&mut self, protocol: &'w str) -> String {
        if self.protocol.replace(protocol) == Some(protocol) {
            String::new()
        } else {
            format!("-p {protocol} ")
        }
    }

    /// `tcp sport 1024-65535 tcp dport 1-1023`, `tcp dport { 80, 443 }`.
    fn ports(&mut self, protocol: &'w str) -> Option<String> {
        let of = self.of(protocol);
        let side = self.words.get(1)?;
        if matches!(self.words, [_, _, "{", ..] | [_, _, "!=", "{", ..]) {
            let not = self.skip(2).not();
            self.next_if(|it| it == "{")?;
            let all = self.values()?.join(",").replace('-', ":");
            self.next_if(|it| it == "}")?;
            return Some(format!("{of}-m multiport {not}--{side}s {all}"));
        }
        let mut parts = vec![format!("{of}-m {protocol}")];
        while let [next, side @ ("sport" | "dport"), rest @ ..] = self.words
            && *next == protocol
            && !matches!(rest, ["{", ..] | ["!=", "{", ..])
        {
            self.skip(2);
            let (not, value) = (self.not(), self.value()?.replace('-', ":"));
            parts.push(format!("{not}--{side} {value}"));
        }
        Some(parts.join(" "))
    }

    /// `syn / fin,syn,rst,ack` (1.0.6), `& (fin | syn | rst | ack) == syn` (1.1.3): those that are set, of those that are looked at.
    fn flags(&mut self) -> Option<String> {
        let (not, set, of) = if self.next_if(|it| it == "&").is_some() {
            let of = self.flag_names()?;
            (self.not(), self.flag_names()?, of)
        } else {
            let (not, set) = (self.not(), self.flag_names()?);
            self.next_if(|it| it == "/")?;
            (not, set, self.flag_names()?)
        };
        let text = format!("{}-m tcp {not}--tcp-flags {of} {set}", self.of("tcp"));
        Some(text)
    }

    /// `fin,syn`, `(fin | syn)`, as iptables has their names.
    fn flag_names(&mut self) -> Option<String> {
        const KNOWN: [&str; 6] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
        let mut names = Vec::new();
        loop {
            let name = self.value()?.trim_matches(['(', ')']);
            let name = KNOWN.iter().find(|it| it.eq_ignore_ascii_case(name))?;
            names.push(*name);
            if self.next_if(|it| it == "," || it == "|").is_none() {
                return Some(names.join(","));
            }
        }
    }

    /// `mark & 0x4000 == 0x4000`, `mark != 0x4`.
    fn marked(&mut self, what: &str) -> Option<String> {
        let mask = match self.next_if(|it| it == "&") {
            Some(_) => Some(number(self.value()?)?),
            None => None,
        };
        let not = self.not();
        let value = number(self.value()?)?;
        let mask = mask.map(|mask| format!("/{mask:#x}")).unwrap_or_default();
        Some(format!("-m {what} {not}--mark {value:#x}{mask}"))
    }

    fn states(&mut self) -> Option<String> {
        let (not, all) = (self.not(), self.values()?);
        let all = all.join(",").to_uppercase();
        Some(format!("-m conntrack {not}--ctstate {all}"))
    }

    /// `ct original daddr 10.96.0.1 ct original proto-dst 443`.
    fn original(&mut self) -> Option<String> {
        let mut parts = vec!["-m conntrack".to_owned()];
        while let ["ct", "original", what, ..] = self.words {
            let option = match *what {
                "daddr" => "--ctorigdst",
                "saddr" => "--ctorigsrc",
                "proto-dst" => "--ctorigdstport",
                "proto-src" => "--ctorigsrcport",
                _ => return None,
            };
            self.skip(3);
            let (not, value) = (self.not(), self.value()?);
            parts.push(format!("{not}{option} {value}"));
        }
        Some(parts.join(" "))
    }

    /// `daddr type local`, `saddr . oif type local`.
    fn kind(&mut self) -> Option<String> {
        let option = match self.next()? {
            "daddr" => "--dst-type",
            "saddr" => "--src-type",
            _ => return None,
        };
        let limit = match self.next_if(|it| it == ".") {
            Some(_) => match self.next()? {
                "iif" => " --limit-iface-in",
                "oif" => " --limit-iface-out",
                _ => return None,
            },
            None => "",
        };
        self.next_if(|it| it == "type")?;
        let (not, kind) = (self.not(), self.value()?.to_uppercase());
        Some(format!("-m addrtype {not}{option} {kind}{limit}"))
    }

    fn owner(&mut self, option: &str) -> Option<String> {
        let (not, value) = (self.not(), self.value()?);
        Some(format!("-m owner {not}{option} {value}"))
    }
}
