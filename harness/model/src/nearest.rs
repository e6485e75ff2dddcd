//! "Did you mean": the nearest of the names that would have been right.

use strsim::osa_distance;

/// The candidate that a person most likely meant, if any is near enough: at most a third of the
/// letters differ, a swap of two neighbours counting as one difference and letters of either case being alike.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A word this long was not misspelt by a person; comparing it would take a while.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    let near = candidates
        .into_iter()
        .map(|name| (osa_distance(&lower, &name.to_lowercase()), name));
    let longest = |name: &str| word.chars().count().max(name.chars().count());
    let (_, name) = near
        .filter(|(far, name)| far * 3 <= longest(name).max(3))
        .min_by_key(|(far, _)| *far)?;
    Some(name)
}

/// A hint for a word that is none of the candidates: the nearest one, or all of them when they are few.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if let Some(name) = nearest(word, candidates.iter().copied()) {
        return Some(format!("did you mean {name:?}?"));
    }
    match candidates.as_slice() {
        [only] => Some(format!("there is only {only:?}")),
        [_, _, ..] if candidates.len() <= 12 => {
            Some(format!("there are: {}", candidates.join(", ")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_finds_what_was_meant_and_a_strange_one_finds_nothing() {
        let words = ["client", "traffic", "timeline"];
        assert_eq!(nearest("clinet", words), Some("client"));
        assert_eq!(nearest("trafic", words), Some("traffic"));
        assert_eq!(nearest("TimeLine", words), Some("timeline"));
        assert_eq!(nearest("promise", words), None);
    }
}
