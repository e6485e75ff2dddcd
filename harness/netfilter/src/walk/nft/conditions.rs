//! What a rule of nft's asks: fields, connections, routes.

use std::sync::Arc;

use super::{
    fields::{field, pattern},
    statements::Reader,
};
use crate::{
    walk::{
        elements::{Elements, Field, Pattern, Value},
        matches::{IfName, Kind, Masked, Ports, Side, Test, states},
        packet::{Protocol, TcpFlags},
        rules::Action,
    },
    words::number,
};

impl Reader<'_> {
    pub(super) fn condition(&mut self) -> Option<()> {
        match *self.rest() {
            ["ct", word, ..] if word != "state" || !self.is_looked_up() => self.connection(word),
            ["fib", ..] => self.fib(),
            ["tcp", "flags", ..] => self.flags(),
            ["mark", "&", ..] => {
                self.at += 1;
                let (not, mark) = self.masked()?;
                self.ask(not, Test::Mark(mark));
                Some(())
            }
            // Of 31 bits that are drawn, as `statistic` does it.
            ["meta", "random", "&", "2147483647", "<", cases, ..] => {
                self.at += 6;
                let cases = number(cases)?;
                self.ask(false, Test::Chance(cases));
                Some(())
            }
            _ => self.fields(),
        }
    }

    /// Whether `ct state` is looked up in a set or map.
    fn is_looked_up(&self) -> bool {
        let mut words = self.rest().iter().skip(2);
        words
            .next()
            .is_some_and(|it| matches!(*it, "{" | "vmap" | ".") || it.starts_with('@'))
    }

    /// What is asked of the packet's connection.
    fn connection(&mut self, what: &str) -> Option<()> {
        self.at += 2;
        match what {
            "state" => {
                let not = self.negated();
                let bits = self.bits()?;
                self.ask(not, Test::State(bits));
            }
            "status" => {
                let bits = self.bits()?;
                let known = states::SNAT | states::DNAT;
                if bits & !known != 0 {
                    return None;
                }
                self.ask(false, Test::State(bits));
            }
            "direction" => {
                let reply = self.next()? == "reply";
                self.ask(reply, Test::OriginalDirection);
            }
            "mark" => {
                let (not, mark) = self.masked()?;
                self.ask(not, Test::ConnectionMark(mark));
            }
            "original" => {
                if matches!(self.peek(), Some("ip" | "ip6")) {
                    self.at += 1;
                }
                let side = match self.next()? {
                    "saddr" => Side::Src,
                    "daddr" => Side::Dst,
                    _ => return None,
                };
                let not = self.negated();
                let Test::Address(side, net) = single(Field::Address(side), self.next()?)? else {
                    return None;
                };
                self.ask(not, Test::Original(side, net));
            }
            _ => return None,
        }
        Some(())
    }

    /// `& 16384 == 0`, `!= 1` or `1`: whether it is negated, and the mark.
    fn masked(&mut self) -> Option<(bool, Masked)> {
        let mask = if self.take("&") {
            number(self.next()?)?
        } else {
            u32::MAX
        };
        let not = self.negated();
        let value = number(self.next()?)?;
        Some((not, Masked { value, mask }))
    }

    /// `fib daddr type local`, `fib saddr . mark . iif oif 0`.
    fn fib(&mut self) -> Option<()> {
        self.at += 1;
        let mut keys = vec![self.next()?];
        while self.take(".") {
            keys.push(self.next()?);
        }
        let what = self.next()?;
        let not = self.negated();
        let value = self.next()?;
        let has = |key: &str| keys.contains(&key);
        if what == "type" {
            let side = if has("saddr") { Side::Src } else { Side::Dst };
            let kinds = vec![kind_of(value)?];
            let only_of_input = has("iif");
            self.ask(
                not,
                Test::Kind {
                    side,
                    kinds,
                    only_of_input,
                },
            );
            return Some(());
        }
        if !matches!(what, "oif" | "oifname") || !has("saddr") {
            return None;
        }
        let missing = match value {
            "0" | "missing" => true,
            // As `nft -n` prints it.
            "exists" | "1" => false,
            _ => return None,
        };
        let test = Test::ReverseRoute {
            loose: !has("iif"),
            with_mark: has("mark"),
            accept_local: false,
        };
        self.ask(missing != not, test);
        Some(())
    }

    /// `tcp flags syn / fin,syn,rst,ack`, `tcp flags & (fin | syn) == syn` or `tcp flags syn`.
    fn flags(&mut self) -> Option<()> {
        self.at += 2;
        self.ask(false, Test::Protocol(Protocol::TCP));
        if self.take("&") {
            let of = self.listed("|")?;
            let not = self.negated();
            let set = self.listed("|")?;
            self.ask(not, Test::Flags { of, set });
            return Some(());
        }
        let not = self.negated();
        let set = self.listed(",")?;
        // Alone it asks whether one of them is set, which is no `Test::Flags`.
        if !self.take("/") {
            return None;
        }
        let of = self.listed(",")?;
        self.ask(not, Test::Flags { of, set });
        Some(())
    }

    /// Flags with something between them, maybe in parentheses.
    fn listed(&mut self, between: &str) -> Option<TcpFlags> {
        let flag = |word: &str| TcpFlags::parse(word.trim_matches(['(', ')']));
        let mut all = flag(self.next()?)?;
        while self.take(between) {
            all = TcpFlags(all.0 | flag(self.next()?)?.0);
        }
        Some(all)
    }

    fn negated(&mut self) -> bool {
        let not = self.take("!=") || self.take("!");
        not || {
            self.take("==");
            false
        }
    }

    /// `new,established`.
    fn bits(&mut self) -> Option<u16> {
        let mut bits = states::parse(self.next()?)?;
        while self.take(",") {
            bits |= states::parse(self.next()?)?;
        }
        Some(bits)
    }

    /// `ip daddr . meta l4proto . th dport` and what they are asked for.
    fn fields(&mut self) -> Option<()> {
        let mut fields = Vec::new();
        loop {
            let (field, length, protocol) = field(self.rest())?;
            self.at += length;
            fields.push(field);
            if let Some(protocol) = protocol {
                self.ask(false, Test::Protocol(protocol));
            }
            if !self.take(".") {
                break;
            }
        }
        if self.take("vmap") {
            let elements = self.elements(&fields)?;
            return self.act(Action::Verdict(fields, elements));
        }
        let not = self.negated();
        let grouped = self
            .peek()
            .is_some_and(|it| it == "{" || it.starts_with('@'));
        if !grouped && let [field] = *fields.as_slice() {
            let test = single(field, self.next()?)?;
            self.ask(not, test);
            return Some(());
        }
        let elements = if grouped {
            self.elements(&fields)?
        } else {
            let mut one = Elements::default();
            let key = self.key(&fields)?;
            one.add(key, None);
            Arc::new(one)
        };
        self.ask(
            not,
            Test::Lookup {
                keys: fields,
                elements,
            },
        );
        Some(())
    }

    /// A set: by name, or as it stands there.
    fn elements(&mut self, fields: &[Field]) -> Option<Arc<Elements>> {
        if let Some(name) = self.peek()?.strip_prefix('@') {
            self.at += 1;
            return self.names.sets.get(name).cloned();
        }
        if !self.take("{") {
            return None;
        }
        let mut elements = Elements::default();
        while !self.take("}") {
            let from = self.at;
            self.add_element(fields, &mut elements);
            self.take(",");
            if self.at == from {
                return None;
            }
        }
        Some(Arc::new(elements))
    }

    pub(super) fn add_element(&mut self, fields: &[Field], set: &mut Elements) {
        let from = self.at;
        if self.read_element(fields, set).is_none() {
            let words = self.tokens.get(from..).unwrap_or_default();
            let end = words.iter().position(|it| matches!(*it, "," | "}"));
            let words = words.get(..end.unwrap_or(words.len())).unwrap_or_default();
            set.add_unknown(&words.join(" "));
            self.at = from + words.len();
        }
    }

    fn read_element(&mut self, fields: &[Field], set: &mut Elements) -> Option<()> {
        let key = self.key(fields)?;
        while let Some("comment" | "expires" | "timeout") = self.peek() {
            self.at += 2;
        }
        if self.take("counter") {
            self.at += 4 * usize::from(self.peek() == Some("packets"));
        }
        let action = if self.take(":") {
            Some(self.verdict()?)
        } else {
            None
        };
        set.add(key, action);
        Some(())
    }

    fn key(&mut self, fields: &[Field]) -> Option<Vec<Pattern>> {
        let mut key = Vec::new();
        loop {
            let field = fields.get(key.len()).copied();
            key.push(pattern(field, self.next()?)?);
            if !self.take(".") {
                return Some(key);
            }
        }
    }
}

fn kind_of(name: &str) -> Option<Kind> {
    Some(match name {
        "local" => Kind::Local,
        "unicast" => Kind::Unicast,
        "broadcast" => Kind::Broadcast,
        "multicast" => Kind::Multicast,
        _ => return None,
    })
}

/// One field that is one value.
fn single(field: Field, text: &str) -> Option<Test> {
    Some(match (field, pattern(Some(field), text)?) {
        (Field::Address(side), Pattern::Is(Value::Address(address))) => {
            Test::Address(side, address.into())
        }
        (Field::Address(side), Pattern::Net(net)) => Test::Address(side, net),
        (Field::Port(side), _) => Test::Port(side, Ports::parse(text)?),
        (Field::Protocol, Pattern::Is(Value::Number(number))) => {
            Test::Protocol(Protocol(u8::try_from(number).ok()?))
        }
        (Field::Mark, Pattern::Is(Value::Number(value))) => Test::Mark(Masked {
            value,
            mask: u32::MAX,
        }),
        (Field::Input, Pattern::Is(Value::Name(name))) => Test::Input(IfName::parse(&name)),
        (Field::Output, Pattern::Is(Value::Name(name))) => Test::Output(IfName::parse(&name)),
        (field, pattern) => {
            let mut elements = Elements::default();
            elements.add(vec![pattern], None);
            Test::Lookup {
                keys: vec![field],
                elements: Arc::new(elements),
            }
        }
    })
}
