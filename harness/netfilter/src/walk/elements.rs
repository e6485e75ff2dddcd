//! Sets and maps of nft as they are looked up: by a key of one or more fields.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{
    flight::{Flight, Output},
    matches::{Answer, Side},
    rules::Action,
};

/// What of a packet a key is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Address(Side),
    Port(Side),
    Protocol,
    Input,
    Output,
    Mark,
    /// Bits of the connection's state.
    State,
}

/// One field of an element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    Address(IpAddr),
    Number(u32),
    Name(String),
}

/// One field of an element that stands for several values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    Is(Value),
    Net(IpNet),
    Between(Value, Value),
}

/// The elements of a set, or of a map with what they lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Elements {
    exact: BTreeMap<Vec<Value>, Option<Action>>,
    patterns: Vec<(Vec<Pattern>, Option<Action>)>,
    /// Words of elements that are not known here.
    unknown: Option<String>,
}

/// What a look-up finds.
pub(super) enum Found<'a> {
    Nothing,
    Element(Option<&'a Action>),
    Open(String),
}

impl Elements {
    /// Adds an element.
    pub(super) fn add(&mut self, key: Vec<Pattern>, action: Option<Action>) {
        let exact: Option<Vec<Value>> = key
            .iter()
            .map(|pattern| match pattern {
                Pattern::Is(Value::Name(name)) if name.ends_with('*') => None,
                Pattern::Is(value) => Some(value.clone()),
                _ => None,
            })
            .collect();
        match exact {
            Some(exact) => drop(self.exact.insert(exact, action)),
            None => self.patterns.push((key, action)),
        }
    }

    /// Notes an element that cannot be read.
    pub(super) fn add_unknown(&mut self, words: &str) {
        self.unknown = Some(words.to_owned());
    }

    /// What the packet's fields lead to.
    pub(super) fn find(&self, flight: &Flight, fields: &[Field]) -> Found<'_> {
        if fields.contains(&Field::Output) && flight.output == Output::Unknown {
            return Found::Open("the output interface: no routes are known".to_owned());
        }
        let key: Option<Vec<Value>> = fields.iter().map(|field| field.of(flight)).collect();
        let Some(key) = key else {
            return Found::Nothing;
        };
        if let Some(action) = self.exact.get(&key) {
            return Found::Element(action.as_ref());
        }
        let fits = |patterns: &[Pattern]| {
            patterns.len() == key.len()
                && patterns.iter().zip(&key).all(|(it, value)| it.fits(value))
        };
        if let Some((_, action)) = self.patterns.iter().find(|(patterns, _)| fits(patterns)) {
            return Found::Element(action.as_ref());
        }
        match &self.unknown {
            Some(words) => Found::Open(words.clone()),
            None => Found::Nothing,
        }
    }

    /// Whether the packet is in the set.
    pub(super) fn has(&self, flight: &Flight, fields: &[Field]) -> Answer {
        match self.find(flight, fields) {
            Found::Nothing => Answer::No,
            Found::Element(_) => Answer::Yes,
            Found::Open(words) => Answer::Open(words),
        }
    }
}

impl Field {
    /// Its value; none when the packet has no such field, and nothing matches it then.
    fn of(self, flight: &Flight) -> Option<Value> {
        let packet = &flight.packet;
        let ports = packet.protocol.has_ports();
        match self {
            Self::Address(side) => Some(Value::Address(flight.address(side))),
            Self::Port(Side::Src) => ports.then(|| Value::Number(packet.sport.into())),
            Self::Port(Side::Dst) => ports.then(|| Value::Number(packet.dport.into())),
            Self::Protocol => Some(Value::Number(packet.protocol.0.into())),
            Self::Input => flight.input().map(|it| Value::Name(it.to_owned())),
            Self::Output => flight.output().map(|it| Value::Name(it.to_owned())),
            Self::Mark => Some(Value::Number(packet.mark)),
            Self::State => Some(Value::Number((flight.states() & 31).into())),
        }
    }
}

impl Pattern {
    fn fits(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Is(Value::Name(name)), Value::Name(is)) => match name.strip_suffix('*') {
                Some(begins) => is.starts_with(begins),
                None => name == is,
            },
            (Self::Is(is), value) => is == value,
            (Self::Net(net), Value::Address(address)) => net.contains(address),
            (Self::Net(_), _) => false,
            (Self::Between(first, last), value) => (first..=last).contains(&value),
        }
    }
}
