//! Listings of `conntrack`: statistics (`-S`) and entries (`-L`).

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{
    counters::{RuleCounters, Site},
    rule::Counters,
};

/// Sums what `conntrack -S` prints for each CPU: `drop`, `early_drop`, `insert_failed`, `invalid`, ….
/// Words without a number are passed over.
pub fn statistics(listing: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for word in listing.split_ascii_whitespace() {
        if let Some((name, value)) = word.split_once('=')
            && name != "cpu"
            && let Ok(value) = value.parse::<u64>()
        {
            let sum: &mut u64 = sums.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    sums
}

/// As which table conntrack's own drops are listed.
pub(crate) const TABLE: &str = "conntrack";
pub(crate) const DROP: &str = "drop";
pub(crate) const FULL: &str = "(table full)";
pub(crate) const INSERT_FAILED: &str = "insert_failed";
pub(crate) const TAKEN: &str = "(tuple taken)";

/// The packets that `conntrack -S` says were dropped without a rule, as a census counts them: connections for
/// which the table had no room, and those whose tuple another one had. The kernel counts the second as
/// `drop`, too (Linux 6.1, `nf_ct_resolve_clash`). Their bytes are not known.
pub fn dropping(listing: &str) -> RuleCounters {
    let sums = statistics(listing);
    let of = |name: &str| sums.get(name).copied().unwrap_or_default();
    let full = of(DROP).saturating_sub(of(INSERT_FAILED));
    let site = |chain: &str, rule: &str, packets| {
        let site = Site {
            table: TABLE.to_owned(),
            chain: chain.to_owned(),
            rule: rule.to_owned(),
        };
        (site, Counters { packets, bytes: 0 })
    };
    RuleCounters::from([
        site(DROP, FULL, full),
        site(INSERT_FAILED, TAKEN, of(INSERT_FAILED)),
    ])
}

/// One direction of a connection. ICMP has an [`Echo`] in the place of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tuple {
    /// From.
    pub src: IpAddr,
    /// To.
    pub dst: IpAddr,
    /// From which port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// To which port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// What ICMP has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<Echo>,
}

/// What conntrack tells ICMP's questions and answers apart by (Linux 6.18, `nf_conntrack_tuple.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Echo {
    /// ICMP's type: 8 asks for an echo and 0 is one; of IPv6 128 and 129.
    #[serde(rename = "type")]
    pub kind: u8,
    /// ICMP's code.
    pub code: u8,
    /// The identifier, by which who asked knows the answer.
    pub id: u16,
}

/// One entry of the connection table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Flow {
    /// `tcp`, `udp`, `icmp`.
    pub protocol: String,
    /// Seconds until it goes; an offloaded entry shows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// `ESTABLISHED`, `TIME_WAIT`; UDP has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// As the first packet came.
    pub original: Tuple,
    /// As answers come: differs from the mirrored original where addresses were translated.
    pub reply: Tuple,
    /// No answer was seen.
    pub unreplied: bool,
    /// Kept when the table is full.
    pub assured: bool,
    /// The connection's mark.
    pub mark: u32,
}

impl Flow {
    /// Reads one line of `conntrack -L`, with or without `-o extended`; none when it is not an entry.
    pub fn parse(line: &str) -> Option<Self> {
        const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];
        let mut words = line.split_ascii_whitespace().peekable();
        if words.next_if(|word| FAMILIES.contains(word)).is_some() {
            words.next();
        }
        let protocol = words.next().filter(|word| !FAMILIES.contains(word))?;
        // The protocol's number.
        words.next()?.parse::<u8>().ok()?;
        let timeout = words.next_if(|word| word.parse::<u64>().is_ok());
        let plain = |word: &&str| !word.contains('=') && !word.starts_with('[');
        let state = words.next_if(plain).map(str::to_owned);
        let rest: Vec<&str> = words.collect();
        // The second address from which packets come begins the other direction.
        let begins = |(at, word): (usize, &&str)| word.starts_with("src=").then_some(at);
        let second = rest.iter().enumerate().filter_map(begins).nth(1)?;
        let (original, reply) = rest.split_at(second);
        Some(Self {
            protocol: protocol.to_owned(),
            timeout: timeout.and_then(|text| text.parse().ok()),
            state,
            original: Tuple::parse(original)?,
            reply: Tuple::parse(reply)?,
            unreplied: rest.contains(&"[UNREPLIED]"),
            assured: rest.contains(&"[ASSURED]"),
            mark: value(&rest, "mark")
                .and_then(|mark| mark.parse().ok())
                .unwrap_or(0),
        })
    }

    /// Where packets of the original direction really go.
    pub fn backend(&self) -> (IpAddr, Option<u16>) {
        (self.reply.src, self.reply.sport)
    }
}

impl Tuple {
    fn parse(words: &[&str]) -> Option<Self> {
        let port = |name| value(words, name)?.parse().ok();
        Some(Self {
            src: value(words, "src")?.parse().ok()?,
            dst: value(words, "dst")?.parse().ok()?,
            sport: port("sport"),
            dport: port("dport"),
            echo: Echo::parse(words),
        })
    }
}

impl Echo {
    fn parse(words: &[&str]) -> Option<Self> {
        Some(Self {
            kind: value(words, "type")?.parse().ok()?,
            code: value(words, "code")?.parse().ok()?,
            id: value(words, "id")?.parse().ok()?,
        })
    }
}

/// What the first word of that name says: `80` of `dport=80`.
fn value<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let mut pairs = words.iter().filter_map(|word| word.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// As `conntrack -L` lists it, but for the protocol's number, which is 0.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} 0", self.protocol)?;
        if let Some(timeout) = self.timeout {
            write!(f, " {timeout}")?;
        }
        if let Some(state) = &self.state {
            write!(f, " {state}")?;
        }
        let no_answer = if self.unreplied { " [UNREPLIED]" } else { "" };
        write!(f, " {}{no_answer} {}", self.original, self.reply)?;
        let assured = if self.assured { " [ASSURED]" } else { "" };
        write!(f, "{assured} mark={}", self.mark)
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src={} dst={}", self.src, self.dst)?;
        if let Some(sport) = self.sport {
            write!(f, " sport={sport}")?;
        }
        if let Some(dport) = self.dport {
            write!(f, " dport={dport}")?;
        }
        if let Some(Echo { kind, code, id }) = self.echo {
            write!(f, " type={kind} code={code} id={id}")?;
        }
        Ok(())
    }
}

/// Reads a whole `conntrack -L`; lines that are no entries are passed over.
pub fn flows(listing: &str) -> impl Iterator<Item = Flow> {
    listing.lines().filter_map(Flow::parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;

    #[test]
    fn statistics_are_summed_over_cpus() {
        let listing =
            "cpu=0   \tfound=1 invalid=2 insert=0 drop=3 \ncpu=1   \tfound=4 invalid=5 drop=0 \n";
        let sums = statistics(listing);
        assert_eq!((sums["found"], sums["invalid"], sums["drop"]), (5, 7, 3));
        assert!(!sums.contains_key("cpu"));
    }

    #[test]
    fn a_sum_over_cpus_that_no_number_holds_is_the_largest_one() {
        let sums = statistics(&format!("cpu=0 drop={}\ncpu=1 drop=1\n", u64::MAX));
        assert_eq!(sums["drop"], u64::MAX);
    }

    #[test]
    fn a_full_table_and_a_taken_tuple_are_different_drops() {
        let counted =
            dropping("cpu=0 drop=5 insert_failed=1 early_drop=9\ncpu=1 drop=2 insert_failed=1\n");
        let told: Vec<_> = counted
            .iter()
            .map(|(site, counters)| (site.rule.as_str(), counters.packets, site.owner()))
            .collect();
        let kernel = Owner::Kernel;
        assert_eq!(told, [(FULL, 5, kernel), (TAKEN, 2, kernel)]);
        assert!(counted.keys().all(|site| site.meaning().is_some()));
    }

    #[test]
    fn a_translated_tcp_entry_names_its_backend() {
        let line = "ipv4     2 tcp      6 431999 ESTABLISHED src=10.20.1.2 dst=10.96.10.10 sport=40000 \
            dport=80 src=10.20.10.127 dst=10.20.1.2 sport=8080 dport=40000 [ASSURED] mark=4 use=1";
        let flow = Flow::parse(line).unwrap();
        assert_eq!(flow.state.as_deref(), Some("ESTABLISHED"));
        assert_eq!(
            (flow.timeout, flow.mark, flow.assured, flow.unreplied),
            (Some(431_999), 4, true, false)
        );
        assert_eq!(flow.original.dport, Some(80));
        assert_eq!(
            flow.backend(),
            ("10.20.10.127".parse().unwrap(), Some(8080))
        );
    }

    #[test]
    fn entries_without_state_or_ports_are_read() {
        let udp = "udp      17 29 src=10.0.0.1 dst=10.0.0.2 sport=5 dport=53 [UNREPLIED] src=10.0.0.2 dst=10.0.0.1 sport=53 dport=5 mark=0 use=1";
        let icmp = "icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=7 src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=7 mark=0 use=1";
        let read: Vec<Flow> = flows(&format!(
            "{udp}\n{icmp}\nconntrack v1.4.7: 2 flow entries have been shown.\n"
        ))
        .collect();
        assert_eq!(read.len(), 2);
        for flow in &read {
            assert_eq!(Flow::parse(&flow.to_string()).as_ref(), Some(flow));
        }
        assert!(read[0].unreplied && read[0].state.is_none());
        assert_eq!(read[1].original.sport, None);
        let echo = |kind| Echo {
            kind,
            code: 0,
            id: 7,
        };
        assert_eq!(read[1].original.echo, Some(echo(8)));
        assert_eq!(read[1].reply.echo, Some(echo(0)));
    }

    #[test]
    fn a_port_belongs_to_the_direction_in_which_it_stands() {
        let only = |original, reply| {
            let (there, back) = ("src=10.0.0.1 dst=10.0.0.2", "src=10.0.0.2 dst=10.0.0.1");
            format!("udp 17 29 {there}{original} {back}{reply} mark=0")
        };
        let of_reply = Flow::parse(&only("", " sport=53 dport=5")).unwrap();
        assert_eq!(of_reply.original.dport, None);
        assert_eq!(
            (of_reply.reply.sport, of_reply.reply.dport),
            (Some(53), Some(5))
        );
        let one = Flow::parse(&only(" dport=53", " sport=53")).unwrap();
        for flow in [of_reply, one] {
            assert_eq!(Flow::parse(&flow.to_string()), Some(flow));
        }
    }

    #[test]
    fn a_family_is_no_protocol() {
        let tuples = "src=10.0.0.1 dst=10.0.0.2 src=10.0.0.2 dst=10.0.0.1";
        assert!(Flow::parse(&format!("ipv4 2 udp 17 29 {tuples}")).is_some());
        assert_eq!(Flow::parse(&format!("ipv4 2 ipv4 17 29 {tuples}")), None);
    }
}
