//! Names for what controllers create. The same seed and the same order of creations give the same names;
//! a name is never given twice, so that in a history it means one object.

use std::collections::BTreeMap;

use chainbreak_engine::fnv::fnv64;
use serde_json::{Value, json};

use super::seen::Key;

/// Kubernetes' alphabet for generated names: no vowels, nothing that looks like another.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a generated suffix.
const SUFFIX: usize = 5;
/// Longest name before the suffix, with its hyphen; with the suffix it is still a label's value.
const LONGEST_BASE: usize = 63 - SUFFIX;

/// Gives names, and knows in which order it gave them.
#[derive(Debug)]
pub(super) struct NameGenerator {
    seed: u64,
    counts: BTreeMap<Key, u64>,
    given: BTreeMap<Key, u64>,
}

impl NameGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            counts: BTreeMap::new(),
            given: BTreeMap::new(),
        }
    }

    /// A name for the next child of the owner with that namespace and name, which `taken` is false of.
    pub(super) fn name(&mut self, owner: &Key, taken: impl Fn(&Key) -> bool) -> String {
        let (namespace, base) = owner;
        loop {
            let count = self.counts.entry(owner.clone()).or_default();
            *count += 1;
            let text = format!("{}/{namespace}/{base}/{count}", self.seed);
            let stem: String = base.chars().take(LONGEST_BASE - 1).collect();
            let name = format!("{stem}-{}", suffix(fnv64(text.as_bytes())));
            let key = (namespace.clone(), name.clone());
            if !self.given.contains_key(&key) && !taken(&key) {
                let order = self.given.len() as u64;
                self.given.insert(key, order);
                return name;
            }
        }
    }

    /// The younger the greater. What others created is older than what we did.
    pub(super) fn order(&self, key: &Key) -> Option<u64> {
        self.given.get(key).copied()
    }
}

fn suffix(mut number: u64) -> String {
    let letters = ALPHABET.len() as u64;
    let letter = |_| {
        let at = usize::try_from(number % letters).expect("less than 27");
        number /= letters;
        char::from(ALPHABET[at])
    };
    (0..SUFFIX).map(letter).collect()
}

/// The hash that names a template, in the way of `pod-template-hash`: FNV-1a in decimal, with letters
/// for digits. Fields that say nothing do not count: kubectl, which is written in Go, adds some when it
/// writes a template back.
pub(super) fn template_hash(template: &impl serde::Serialize) -> String {
    let mut value = json!(template);
    prune(&mut value);
    let hash = fnv64(value.to_string().as_bytes());
    let short = (hash >> 32) ^ (hash & 0xffff_ffff);
    let letter = |digit: u8| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]);
    short.to_string().bytes().map(letter).collect()
}

/// Takes out nulls and whatever is empty.
fn prune(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, field| match field {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(seed: u64, count: usize) -> Vec<String> {
        let mut generator = NameGenerator::new(seed);
        let owner = ("test".to_owned(), "nginx-5d8f".to_owned());
        (0..count)
            .map(|_| generator.name(&owner, |_| false))
            .collect()
    }

    #[test]
    fn names_follow_from_the_seed_and_are_never_given_twice() {
        assert_eq!(names(7, 50), names(7, 50));
        assert_ne!(names(7, 50), names(8, 50));
        let many = names(7, 5000);
        assert_eq!(many.iter().collect::<BTreeSet<_>>().len(), many.len());
        assert!(many.iter().all(|name| name.starts_with("nginx-5d8f-")));
    }

    #[test]
    fn a_name_that_somebody_else_took_is_passed_over() {
        let owner = ("test".to_owned(), "nginx".to_owned());
        let first = NameGenerator::new(7).name(&owner, |_| false);
        let other = NameGenerator::new(7).name(&owner, |(_, name)| *name == first);
        assert_ne!(first, other);
    }

    #[test]
    fn a_template_written_back_by_kubectl_is_the_same_template() {
        let short = json!({ "spec": { "containers": [{ "name": "c" }] } });
        let long = json!({
            "metadata": { "creationTimestamp": null },
            "spec": { "containers": [{ "name": "c", "resources": {} }], "securityContext": {} },
        });
        assert_eq!(template_hash(&short), template_hash(&long));
        let other = json!({ "spec": { "containers": [{ "name": "d" }] } });
        assert_ne!(template_hash(&short), template_hash(&other));
    }

    #[test]
    fn a_long_name_stays_a_labels_value() {
        let owner = ("test".to_owned(), "x".repeat(253));
        assert_eq!(NameGenerator::new(7).name(&owner, |_| false).len(), 63);
    }
}
