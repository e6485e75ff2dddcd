//! What is in a table of nft's: chains with their rules, sets and maps with their elements, and what leads from one to
//! another.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    normal::{normal, tokens},
    tables::Reason,
};

/// What a line begins with that is an element.
pub(super) const ELEMENT: &str = "element";

/// What is in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) chains: BTreeMap<String, Chain>,
    pub(super) sets: BTreeMap<String, Set>,
}

/// Its lines in order: what kind of chain it is, if the kernel calls it, its comment, its rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chain {
    base: Option<String>,
    comment: Option<String>,
    rules: Vec<String>,
}

/// A set or a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    /// `set` or `map`.
    pub(super) word: String,
    /// What it is: its type, flags and timeout.
    kind: Vec<String>,
    comment: Option<String>,
    /// By key; what a map leads to, and the element's comment.
    pub(super) elements: BTreeMap<String, Element>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) value: Option<String>,
    pub(super) comment: Option<String>,
}

impl Content {
    /// None when the line is not known here.
    pub(super) fn take(
        &mut self,
        verb: &str,
        object: &str,
        name: &str,
        rest: &[String],
        text: &str,
    ) -> Option<Result<(), Reason>> {
        Some(match (verb, object) {
            ("add", "chain") => self.add_chain(name, &body(rest)),
            ("add", "rule") => self
                .rule(name, text)
                .map(|(chain, rule)| chain.rules.push(rule)),
            ("insert", "rule") if !is_beside_another(rest) => self
                .rule(name, text)
                .map(|(chain, rule)| chain.rules.insert(0, rule)),
            ("add", "set" | "map") => self.add_set(object, name, &body(rest)),
            ("add", "element") => self.add_elements(name, rest),
            ("flush", "chain") => self.chain(name).map(|it| it.rules.clear()),
            ("flush", "set" | "map") => self.set(name).map(|it| it.elements.clear()),
            ("delete", "chain") => self.delete_chain(name),
            ("delete", "set" | "map") => self.delete_set(name),
            ("delete", "element") => self.delete_elements(name, rest),
            _ => return None,
        })
    }

    fn chain(&mut self, name: &str) -> Result<&mut Chain, Reason> {
        self.chains.get_mut(name).ok_or(Reason::NotFound)
    }

    fn set(&mut self, name: &str) -> Result<&mut Set, Reason> {
        self.sets.get_mut(name).ok_or(Reason::NotFound)
    }

    fn add_chain(&mut self, name: &str, body: &[String]) -> Result<(), Reason> {
        let made = Chain::of(body);
        match self.chains.get(name) {
            None => drop(self.chains.insert(name.to_owned(), made)),
            Some(known) if made.base.is_some() && known.base != made.base => {
                return Err(Reason::Exists);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// A rule that is to be made, and its chain.
    fn rule(&mut self, name: &str, text: &str) -> Result<(&mut Chain, String), Reason> {
        // What stands behind verb, object, family, table and chain.
        let mut rule = text.trim();
        for _ in 0..5 {
            let rest = rule.split_once(char::is_whitespace);
            rule = rest.map_or("", |(_, rest)| rest.trim_start());
        }
        if !self.has_all(&Uses::of(rule)) {
            return Err(Reason::NotFound);
        }
        Ok((self.chain(name)?, rule.to_owned()))
    }

    fn has_all(&self, uses: &Uses) -> bool {
        uses.chains.iter().all(|it| self.chains.contains_key(it))
            && uses.sets.iter().all(|it| self.sets.contains_key(it))
    }

    fn add_set(&mut self, word: &str, name: &str, body: &[String]) -> Result<(), Reason> {
        let made = Set::of(word, body);
        match self.sets.get_mut(name) {
            None => drop(self.sets.insert(name.to_owned(), made)),
            Some(known) if untimed_kind(&known.kind) != untimed_kind(&made.kind) => {
                return Err(Reason::Exists);
            }
            // Another timeout is taken over, and none as well (measured with Linux 6.18).
            Some(known) => known.kind = made.kind,
        }
        Ok(())
    }

    fn add_elements(&mut self, name: &str, rest: &[String]) -> Result<(), Reason> {
        for (key, element) in elements(rest) {
            let uses = Uses::of(element.value.as_deref().unwrap_or_default());
            if !self.has_all(&uses) {
                return Err(Reason::NotFound);
            }
            let elements = &mut self.set(name)?.elements;
            match elements.get(&key) {
                Some(known) if known.value != element.value => return Err(Reason::Exists),
                Some(_) => {}
                None => drop(elements.insert(key, element)),
            }
        }
        Ok(())
    }

    fn delete_elements(&mut self, name: &str, rest: &[String]) -> Result<(), Reason> {
        let set = self.set(name)?;
        for (key, _) in elements(rest) {
            set.elements.remove(&key).ok_or(Reason::NotFound)?;
        }
        Ok(())
    }

    /// Its own rules go with it; others that lead to it keep it.
    fn delete_chain(&mut self, name: &str) -> Result<(), Reason> {
        self.chain(name)?;
        if self.uses(Some(name)).chains.contains(name) {
            return Err(Reason::Busy);
        }
        self.chains.remove(name);
        Ok(())
    }

    fn delete_set(&mut self, name: &str) -> Result<(), Reason> {
        self.set(name)?;
        if self.uses(None).sets.contains(name) {
            return Err(Reason::Busy);
        }
        self.sets.remove(name);
        Ok(())
    }

    /// What everything but that chain uses.
    fn uses(&self, but: Option<&str>) -> Uses {
        let others = self
            .chains
            .iter()
            .filter(|(name, _)| but != Some(name.as_str()));
        let rules = others.flat_map(|(_, chain)| &chain.rules);
        let elements = self.sets.values().flat_map(|set| set.elements.values());
        let values = elements.filter_map(|element| element.value.as_ref());
        let mut uses = Uses::default();
        for text in rules.chain(values) {
            uses.add(text);
        }
        uses
    }
}

/// Whether a rule is to stand before or behind one that is there.
fn is_beside_another(rest: &[String]) -> bool {
    let first = rest.first().map(String::as_str);
    matches!(first, Some("position" | "handle" | "index"))
}

impl Chain {
    /// Of lines as [`Tables::places`] gives them, or of those in its braces.
    pub(super) fn of(lines: &[String]) -> Self {
        let mut chain = Self::default();
        for line in lines {
            if line.starts_with("type ") && line.contains(" hook ") {
                chain.base = Some(normal(line));
            } else if line.starts_with("comment ") {
                chain.comment = Some(line.clone());
            } else {
                chain.rules.push(line.clone());
            }
        }
        chain
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let about = self.base.iter().chain(&self.comment);
        about.chain(&self.rules).cloned().collect()
    }
}

impl Set {
    pub(super) fn of(word: &str, lines: &[String]) -> Self {
        let mut set = Self {
            word: word.to_owned(),
            kind: Vec::new(),
            comment: None,
            elements: BTreeMap::new(),
        };
        for line in lines {
            if let Some(element) = line.strip_prefix(ELEMENT) {
                set.elements.extend(element_of(&tokens(element)));
            } else if line.starts_with("comment ") {
                set.comment = Some(line.clone());
            } else {
                set.kind.push(normal(line));
            }
        }
        set.kind.sort_unstable();
        set
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let elements = self.elements.iter().map(|(key, element)| {
            let comment = element.comment.iter().map(|it| format!(" {it}"));
            let value = element.value.iter().map(|it| format!(" : {it}"));
            let more: String = comment.chain(value).collect();
            format!("{ELEMENT} {key}{more}")
        });
        let about = self.kind.iter().chain(&self.comment).cloned();
        about.chain(elements).collect()
    }
}

/// Chains and sets that are named in a rule or a value.
#[derive(Debug, Default)]
struct Uses {
    chains: BTreeSet<String>,
    sets: BTreeSet<String>,
}

impl Uses {
    fn of(text: &str) -> Self {
        let mut uses = Self::default();
        uses.add(text);
        uses
    }

    fn add(&mut self, text: &str) {
        let words = tokens(text);
        for (word, next) in words.iter().zip(words.iter().skip(1)) {
            if word == "jump" || word == "goto" {
                self.chains.insert(next.clone());
            }
        }
        let sets = words.iter().filter_map(|word| word.strip_prefix('@'));
        self.sets.extend(sets.map(str::to_owned));
    }
}

fn untimed_kind(kind: &[String]) -> Vec<&String> {
    let lines = kind.iter();
    lines.filter(|line| !line.starts_with("timeout ")).collect()
}

/// The lines in braces, which semicolons divide.
fn body(rest: &[String]) -> Vec<String> {
    let inside = rest.iter().filter(|it| *it != "{" && *it != "}").cloned();
    let inside: Vec<String> = inside.collect();
    let lines = inside.split(|it| it == ";").map(|it| it.join(" "));
    lines.filter(|it| !it.is_empty()).collect()
}

/// The elements in braces, which commas divide.
fn elements(rest: &[String]) -> Vec<(String, Element)> {
    let inside = rest.iter().filter(|it| *it != "{" && *it != "}").cloned();
    let inside: Vec<String> = inside.collect();
    inside
        .split(|it| it == ",")
        .filter_map(element_of)
        .collect()
}

/// Key, comment and value: `10.0.0.1 . tcp . 80 comment "a" : goto b`.
fn element_of(words: &[String]) -> Option<(String, Element)> {
    let colon = words.iter().position(|it| it == ":");
    let (key, value) = words.split_at(colon.unwrap_or(words.len()));
    let comment = key.iter().position(|it| it == "comment");
    let (key, comment) = key.split_at(comment.unwrap_or(key.len()));
    let key = normal(&key.join(" "));
    let value = value.get(1..).map(|it| it.join(" "));
    let comment = (!comment.is_empty()).then(|| comment.join(" "));
    (!key.is_empty()).then_some((key, Element { value, comment }))
}
