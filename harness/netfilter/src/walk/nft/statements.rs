//! One rule of nft's: its statements from left to right. From a word on that is not known up to the verdict, all is one
//! condition that nothing here can tell.

use std::net::IpAddr;

use super::Names;
use crate::{
    nft::normal::{normal, tokens},
    walk::{
        elements::Elements,
        matches::{Match, Test},
        rules::{Action, Indexed, Part, Port},
        target,
    },
    words::number,
};

/// The most ways of one `numgen` that are told apart.
const MOST_WAYS: u32 = 65_536;

/// A rule's words, and how far they are read.
pub(super) struct Reader<'a> {
    pub(super) tokens: &'a [&'a str],
    pub(super) at: usize,
    pub(super) names: &'a Names,
    parts: Vec<Part>,
}

impl<'a> Reader<'a> {
    /// Reads a rule.
    pub(super) fn rule(text: &str, names: &'a Names) -> Indexed {
        let line = tokens(&normal(text));
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        let mut reader = Reader::new(&words, names);
        while reader.at < words.len() {
            let (at, known) = (reader.at, reader.parts.len());
            if reader.statement().is_none() {
                reader.parts.truncate(known);
                reader.at = at;
                reader.unknown();
            }
        }
        Indexed {
            parts: without_counters(reader.parts),
            text: text.to_owned(),
        }
    }

    /// Reads an element of a set or map.
    pub(super) fn element(text: &str, names: &Names, set: &mut Elements) {
        let line = tokens(&normal(text));
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        Reader::new(&words, names).add_element(&[], set);
    }

    fn new<'b>(tokens: &'b [&'b str], names: &'b Names) -> Reader<'b> {
        Reader {
            tokens,
            at: 0,
            names,
            parts: Vec::new(),
        }
    }

    pub(super) fn rest(&self) -> &'a [&'a str] {
        self.tokens.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.rest().first().copied()
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    pub(super) fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.at += usize::from(is);
        is
    }

    pub(super) fn ask(&mut self, not: bool, test: Test) {
        self.parts.push(Part::If(Match { not, test }));
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "what reads a statement ends with it"
    )]
    pub(super) fn act(&mut self, action: Action) -> Option<()> {
        self.parts.push(Part::Do(action));
        Some(())
    }

    /// Passes over what is not known, up to a word that ends a rule.
    fn unknown(&mut self) {
        const VERDICTS: [&str; 9] = [
            "accept",
            "drop",
            "return",
            "reject",
            "jump",
            "goto",
            "masquerade",
            "notrack",
            "comment",
        ];
        let from = self.at;
        self.at += 1;
        while self.peek().is_some_and(|it| !VERDICTS.contains(&it)) {
            self.at += 1;
        }
        let words = self.tokens.get(from..self.at).unwrap_or_default();
        self.ask(false, Test::Unknown(words.join(" ")));
    }

    fn statement(&mut self) -> Option<()> {
        let rest = self.rest();
        if let Some(verdict) = self.verdict() {
            return self.act(verdict);
        }
        match *rest {
            ["counter", ..] => {
                self.at += 1;
                self.act(Action::Count)
            }
            ["comment", _, ..] => {
                self.at += 2;
                Some(())
            }
            ["log", ..] => {
                self.at += 1;
                while matches!(self.peek(), Some("prefix" | "level" | "group" | "flags")) {
                    self.at += 2;
                }
                self.act(Action::Count)
            }
            ["update" | "add", _, "{", ..] => {
                let end = rest.iter().position(|it| *it == "}")?;
                self.at += end + 1;
                self.act(Action::Count)
            }
            ["mark", "set", ..] => self.set_mark(false),
            ["ct", "mark", "set", ..] => self.set_mark(true),
            ["masquerade" | "snat" | "dnat" | "redirect", ..] => self.translation(),
            ["numgen", ..] => {
                let ways = self.numgen("vmap")?;
                let actions = ways
                    .into_iter()
                    .map(|(_, action)| action.unwrap_or(Action::Count));
                self.act(Action::OneOf(actions.collect()))
            }
            _ => self.condition(),
        }
    }

    pub(super) fn verdict(&mut self) -> Option<Action> {
        let chain = |name: &str, names: &Names| names.chains.get(name).copied();
        let (action, length) = match *self.rest() {
            ["accept", ..] => (Action::Accept, 1),
            ["drop", ..] => (Action::Drop, 1),
            ["return", ..] => (Action::Return, 1),
            ["continue", ..] => (Action::Count, 1),
            ["notrack", ..] => (Action::Untrack, 1),
            ["reject", ..] => return Some(self.reject()),
            ["jump", name, ..] => match chain(name, self.names) {
                Some(number) => (Action::Jump(number), 2),
                None => (Action::Unknown(format!("jump {name}")), 2),
            },
            ["goto", name, ..] => match chain(name, self.names) {
                Some(number) => (Action::Goto(number), 2),
                None => (Action::Unknown(format!("goto {name}")), 2),
            },
            _ => return None,
        };
        self.at += length;
        Some(action)
    }

    fn reject(&mut self) -> Action {
        self.at += 1;
        if !self.take("with") {
            return Action::Reject("icmp-port-unreachable".to_owned());
        }
        let mut words = Vec::new();
        while let Some(word) = self.peek().filter(|it| *it != "comment") {
            words.push(word);
            self.at += 1;
        }
        Action::Reject(words.join(" "))
    }

    /// `mark set mark | 16384`.
    fn set_mark(&mut self, of_connection: bool) -> Option<()> {
        self.at += if of_connection { 3 } else { 2 };
        let (clear, flip) = match *self.rest() {
            ["ct", "mark", ..] if !of_connection => {
                self.at += 2;
                let all = u32::MAX;
                return self.act(Action::RestoreMark {
                    packet: all,
                    connection: all,
                });
            }
            ["mark", ..] if of_connection => {
                self.at += 1;
                let all = u32::MAX;
                return self.act(Action::SaveMark {
                    packet: all,
                    connection: all,
                });
            }
            ["mark", ..] => {
                self.at += 1;
                self.mark_changes()?
            }
            ["ct", "mark", ..] => {
                self.at += 2;
                self.mark_changes()?
            }
            [value, ..] => {
                self.at += 1;
                (u32::MAX, number(value)?)
            }
            [] => return None,
        };
        self.act(if of_connection {
            Action::ConnectionMark { clear, flip }
        } else {
            Action::Mark { clear, flip }
        })
    }

    /// `& 65535 | 16384 ^ 1`: one after the other.
    fn mark_changes(&mut self) -> Option<(u32, u32)> {
        let (mut clear, mut flip) = (0, 0);
        while let Some(operator @ ("&" | "|" | "^")) = self.peek() {
            self.at += 1;
            let value = number(self.next()?)?;
            (clear, flip) = match operator {
                "&" => (clear | !value, flip & value),
                "|" => (clear | value, flip & !value | value),
                _ => (clear, flip ^ value),
            };
        }
        Some((clear, flip))
    }

    fn translation(&mut self) -> Option<()> {
        let word = self.next()?;
        if matches!(self.peek(), Some("ip" | "ip6")) {
            self.at += 1;
        }
        let to = self.take("to");
        if to && self.peek() == Some("numgen") {
            let ways = self.numgen("map")?;
            let ends = ways
                .into_iter()
                .map(|(end, _)| end)
                .collect::<Option<Vec<_>>>()?;
            return (word == "dnat").then(|| self.act(Action::DnatToOneOf(ends)))?;
        }
        let (address, port) = if to {
            target::end(self.next()?)?
        } else {
            (None, None)
        };
        let mut drawn = false;
        while let Some("random" | "fully-random" | "persistent") = self.peek() {
            drawn |= self.next() != Some("persistent");
        }
        let source = match port {
            Some(port) => Port::Is(port),
            None if drawn => Port::Drawn,
            None => Port::Kept,
        };
        self.act(match word {
            "masquerade" => Action::Masquerade(source),
            "snat" => Action::Snat(address, source),
            "redirect" => Action::Redirect(port),
            _ => Action::Dnat(address, port),
        })
    }

    /// `numgen random mod 2 map { 0 : 10.0.0.1 . 80, 1 : … }`: what each number leads to.
    fn numgen(&mut self, map: &str) -> Option<Vec<Way>> {
        let ["numgen", "random" | "inc", "mod", ways, word, "{", ..] = *self.rest() else {
            return None;
        };
        if word != map {
            return None;
        }
        let ways = number(ways).filter(|it| *it <= MOST_WAYS)?;
        self.at += 6;
        let mut led: Vec<Way> = (0..ways).map(|_| (None, None)).collect();
        loop {
            let key = self.next()?;
            let (first, last) = key.split_once('-').unwrap_or((key, key));
            let (first, last) = (number(first)?, number(last)?);
            if !self.take(":") {
                return None;
            }
            let way = match map {
                "vmap" => (None, Some(self.verdict()?)),
                _ => (Some(self.end()?), None),
            };
            for number in first..=last {
                *led.get_mut(usize::try_from(number).ok()?)? = way.clone();
            }
            match self.next()? {
                "}" => return Some(led),
                "," => {}
                _ => return None,
            }
        }
    }

    /// `10.0.0.1 . 80`, or the address alone.
    fn end(&mut self) -> Option<(IpAddr, Option<u16>)> {
        let address = self.next()?.parse().ok()?;
        let port = if self.take(".") {
            Some(self.next()?.parse().ok()?)
        } else {
            None
        };
        Some((address, port))
    }
}

/// A rule that does something is not told to count besides.
fn without_counters(mut parts: Vec<Part>) -> Vec<Part> {
    let counts = |part: &Part| matches!(part, Part::Do(Action::Count));
    if parts
        .iter()
        .any(|it| matches!(it, Part::Do(_)) && !counts(it))
    {
        parts.retain(|it| !counts(it));
    }
    parts
}

/// What a number of `numgen` leads to.
type Way = (Option<(IpAddr, Option<u16>)>, Option<Action>);
