//! What `ipset` made: sets and their elements (ipset 7.17).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{Doubt, Ran};

/// All sets by name: what each is of, and its elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sets(BTreeMap<String, (String, BTreeSet<String>)>);

impl Sets {
    pub(super) fn take(&mut self, ran: Ran<'_>) -> Result<(), Doubt> {
        let arguments: Vec<&str> = ran.argv.iter().skip(1).map(String::as_str).collect();
        let restores = arguments.contains(&"restore") || arguments.contains(&"-R");
        match (ran.exit, restores) {
            (0, _) => {}
            (128.., _) => return Err(Doubt("it was killed at its work".to_owned())),
            (_, false) => return Ok(()),
            (_, true) => return Err(Doubt("it failed at one of its lines".to_owned())),
        }
        if !restores {
            return self.line(&arguments);
        }
        let mut changed = self.clone();
        for line in ran.input.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            changed.line(&words)?;
        }
        *self = changed;
        Ok(())
    }

    fn line(&mut self, words: &[&str]) -> Result<(), Doubt> {
        let plain = |word: &&&str| !matches!(**word, "-exist" | "-!" | "-quiet" | "-q");
        let words: Vec<&str> = words.iter().filter(plain).copied().collect();
        match *words.as_slice() {
            ["create" | "n" | "-N", name, ref kind @ ..] => {
                self.0
                    .entry(name.to_owned())
                    .or_insert_with(|| (kind.join(" "), BTreeSet::new()));
            }
            ["add" | "-A", name, ref element @ ..] => {
                self.get(name)?.1.insert(element.join(" "));
            }
            ["del" | "-D", name, ref element @ ..] => {
                self.get(name)?.1.remove(&element.join(" "));
            }
            ["flush" | "-F", name] => self.get(name)?.1.clear(),
            ["flush" | "-F"] => self.0.values_mut().for_each(|it| it.1.clear()),
            ["destroy" | "x" | "-X", name] => drop(self.0.remove(name)),
            ["destroy" | "x" | "-X"] => self.0.clear(),
            ["swap" | "-W", one, other] => {
                let (first, second) = (self.get(one)?.clone(), self.get(other)?.clone());
                self.0.insert(one.to_owned(), second);
                self.0.insert(other.to_owned(), first);
            }
            ["rename" | "e" | "-E", name, to] => {
                let set = self.get(name)?.clone();
                self.0.remove(name);
                self.0.insert(to.to_owned(), set);
            }
            [] | ["COMMIT" | "list" | "save" | "test" | "version" | "help", ..] => {}
            [word, ..] if word.starts_with(['-', '#']) => {}
            _ => return Err(Doubt(format!("it is not known here: {}", words.join(" ")))),
        }
        Ok(())
    }

    fn get(&mut self, name: &str) -> Result<&mut (String, BTreeSet<String>), Doubt> {
        let unknown = || Doubt(format!("nobody was seen to make the set {name}"));
        self.0.get_mut(name).ok_or_else(unknown)
    }
}

impl fmt::Display for Sets {
    /// As `ipset save` prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, (kind, elements)) in &self.0 {
            writeln!(f, "create {name} {kind}")?;
            for element in elements {
                writeln!(f, "add {name} {element}")?;
            }
        }
        Ok(())
    }
}
