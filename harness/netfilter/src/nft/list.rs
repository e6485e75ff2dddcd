//! What `nft --json list` prints of tables in memory: names, and the elements of a set or a map.

use serde_json::{Value, json};

use super::{
    content::{Element, Set},
    normal::tokens,
    tables::{Reason, Refusal, Tables},
};

impl Tables {
    /// The listing that these arguments of nft ask for.
    pub fn list(&self, arguments: &[&str]) -> Result<String, Refusal> {
        let words = arguments.iter().filter(|it| !it.starts_with('-'));
        let words: Vec<&str> = words.copied().collect();
        let objects = match words.as_slice() {
            ["list", "table", family, table] => self.table(family, table)?,
            ["list", plural, family] => self.all(plural, family),
            ["list", word @ ("set" | "map"), family, table, name] => {
                vec![self.set(word, family, table, name)?]
            }
            _ => Vec::new(),
        };
        Ok(json!({ "nftables": objects }).to_string())
    }

    fn table(&self, family: &str, table: &str) -> Result<Vec<Value>, Refusal> {
        let key = (family.to_owned(), table.to_owned());
        if !self.0.contains_key(&key) {
            return Err(Refusal::Missing(Reason::NotFound));
        }
        let objects = self.objects(family).into_iter();
        Ok(objects
            .filter(|(_, it)| it["table"] == table)
            .map(wrapped)
            .collect())
    }

    fn all(&self, plural: &str, family: &str) -> Vec<Value> {
        let word = plural.trim_end_matches('s');
        let objects = self.objects(family).into_iter();
        objects.filter(|(it, _)| it == word).map(wrapped).collect()
    }

    /// What kind each chain, set and map of the family is, and its name.
    fn objects(&self, family: &str) -> Vec<(String, Value)> {
        let mut objects = Vec::new();
        for ((_, table), content) in self.0.iter().filter(|((it, _), _)| it == family) {
            let named = |name: &str| json!({ "family": family, "table": table, "name": name });
            let chains = content.chains.keys();
            objects.extend(chains.map(|name| ("chain".to_owned(), named(name))));
            let sets = content.sets.iter();
            objects.extend(sets.map(|(name, set)| (set.word.clone(), named(name))));
        }
        objects
    }

    fn set(&self, word: &str, family: &str, table: &str, name: &str) -> Result<Value, Refusal> {
        let content = self.0.get(&(family.to_owned(), table.to_owned()));
        let set = content.and_then(|content| content.sets.get(name));
        let set = set.filter(|set| set.word == word);
        let set = set.ok_or(Refusal::Missing(Reason::NotFound))?;
        let mut object = json!({ "family": family, "table": table, "name": name });
        if !set.elements.is_empty() {
            object["elem"] = elements(set);
        }
        Ok(wrapped((word.to_owned(), object)))
    }
}

fn wrapped((word, object): (String, Value)) -> Value {
    json!({ word: object })
}

fn elements(set: &Set) -> Value {
    let elements = set.elements.iter().map(|(key, element)| {
        let key = commented(key, element);
        match &element.value {
            Some(value) => json!([key, verdict(value)]),
            None => key,
        }
    });
    elements.collect()
}

fn commented(key: &str, element: &Element) -> Value {
    let parts: Vec<Value> = key.split(" . ").map(scalar).collect();
    let key = match parts.as_slice() {
        [only] => only.clone(),
        parts => json!({ "concat": parts }),
    };
    let comment = element.comment.as_deref();
    match comment.and_then(|it| it.strip_prefix("comment ")) {
        Some(comment) => json!({ "elem": { "val": key, "comment": comment.trim_matches('"') } }),
        None => key,
    }
}

fn scalar(text: &str) -> Value {
    text.parse::<u64>()
        .map_or_else(|_| json!(text), |number| json!(number))
}

/// `goto x` leads somewhere, `drop` does not.
fn verdict(value: &str) -> Value {
    match tokens(value).as_slice() {
        [word, target] => json!({ word: { "target": target } }),
        _ => json!({ value: null }),
    }
}
