//! Fields of a packet as nft names them, and values as it prints them.

use std::net::IpAddr;

use crate::{
    walk::{
        elements::{Field, Pattern, Value},
        matches::{Side, states},
        packet::Protocol,
    },
    words::number,
};

/// A field by its name, how many words that has, and the protocol that a packet must carry to have it.
pub(super) fn field(words: &[&str]) -> Option<(Field, usize, Option<Protocol>)> {
    let side = |word: &str| match word {
        "saddr" | "sport" => Some(Side::Src),
        "daddr" | "dport" => Some(Side::Dst),
        _ => None,
    };
    let plain = |field, length| Some((field, length, None));
    match *words {
        ["ip" | "ip6", word @ ("saddr" | "daddr"), ..] => plain(Field::Address(side(word)?), 2),
        ["meta", "l4proto", ..] | ["ip", "protocol", ..] | ["ip6", "nexthdr", ..] => {
            plain(Field::Protocol, 2)
        }
        ["th", word @ ("sport" | "dport"), ..] => plain(Field::Port(side(word)?), 2),
        [
            protocol @ ("tcp" | "udp" | "sctp"),
            word @ ("sport" | "dport"),
            ..,
        ] => {
            let protocol = Protocol::parse(protocol);
            Some((Field::Port(side(word)?), 2, protocol))
        }
        ["meta", "iifname" | "iif", ..] => plain(Field::Input, 2),
        ["meta", "oifname" | "oif", ..] => plain(Field::Output, 2),
        ["iifname" | "iif", ..] => plain(Field::Input, 1),
        ["oifname" | "oif", ..] => plain(Field::Output, 1),
        ["mark", ..] => plain(Field::Mark, 1),
        ["ct", "state", ..] => plain(Field::State, 2),
        _ => None,
    }
}

/// One value of a field: an address, a network, a range, a number, a name.
pub(super) fn pattern(field: Option<Field>, text: &str) -> Option<Pattern> {
    if let Some(value) = value(field, text) {
        return Some(Pattern::Is(value));
    }
    if let Ok(net) = text.parse() {
        return Some(Pattern::Net(net));
    }
    let (first, last) = text.split_once('-')?;
    Some(Pattern::Between(value(field, first)?, value(field, last)?))
}

fn value(field: Option<Field>, text: &str) -> Option<Value> {
    if let Some(name) = text.strip_prefix('"').and_then(|it| it.strip_suffix('"')) {
        return Some(Value::Name(name.to_owned()));
    }
    if field == Some(Field::State) {
        return states::parse(text).map(|bits| Value::Number(bits.into()));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(Value::Address(address));
    }
    if let Some(number) = number(text) {
        return Some(Value::Number(number));
    }
    Protocol::parse(text).map(|it| Value::Number(it.0.into()))
}
