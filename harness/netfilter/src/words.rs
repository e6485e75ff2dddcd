//! Words of a rule line, split and quoted as iptables-restore and iptables-save do it
//! (iptables 1.8, `add_param_to_argv` and `xtables_save_string`).

use std::borrow::Cow;

const BLANK: [char; 3] = [' ', '\t', '\n'];
const STOP: [char; 4] = [' ', '\t', '\n', '"'];

/// Splits a line into its words. A quote may open inside a word and its end always ends the word;
/// a backslash escapes inside quotes only. A quote that never closes runs to the end of the line.
pub fn words(line: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let (word, tail) = first_word(rest)?;
        rest = tail;
        Some(word)
    })
}

fn first_word(line: &str) -> Option<(Cow<'_, str>, &str)> {
    let line = line.trim_start_matches(BLANK);
    if line.is_empty() {
        return None;
    }
    let (plain, tail) = line.split_at(line.find(STOP).unwrap_or(line.len()));
    match tail.strip_prefix('"') {
        None => Some((Cow::Borrowed(plain), tail)),
        Some(quoted) => {
            let (word, tail) = unquote(plain, quoted);
            Some((word, tail.unwrap_or_default()))
        }
    }
}

/// The word that `plain` and the text after an opening quote make, and what follows the closing one.
fn unquote<'a>(plain: &str, quoted: &'a str) -> (Cow<'a, str>, Option<&'a str>) {
    if plain.is_empty()
        && let Some((word, tail)) = quoted.split_once('"')
        && !word.contains('\\')
    {
        return (Cow::Borrowed(word), Some(tail));
    }
    let mut word = plain.to_owned();
    let mut chars = quoted.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => return (Cow::Owned(word), Some(chars.as_str())),
            '\\' => word.extend(chars.next()),
            char => word.push(char),
        }
    }
    (Cow::Owned(word), None)
}

/// Whether every quote of the line is closed.
pub(crate) fn is_closed(line: &str) -> bool {
    let mut rest = line;
    while let Some((_, quoted)) = rest.split_once('"') {
        match unquote("", quoted).1 {
            Some(tail) => rest = tail,
            None => return false,
        }
    }
    true
}

/// The word as iptables-save prints it: bare when it is made of letters, digits, `-` and `_`, else
/// quoted. Option values that iptables prints bare (`10.0.0.1/32`, `!`) are [`join`]'s concern.
pub fn quote(word: &str) -> Cow<'_, str> {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        return Cow::Borrowed(word);
    }
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for char in word.chars() {
        if "\"\\'".contains(char) {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted.push('"');
    Cow::Owned(quoted)
}

/// A line that splits into these words again. Only words that would not survive bare are quoted;
/// comments always are as iptables-save quotes them.
pub fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = String::new();
    let mut after_comment = false;
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        if after_comment || word.is_empty() || word.contains(STOP) {
            line.push_str(&quote(word));
        } else {
            line.push_str(word);
        }
        after_comment = word == "--comment";
    }
    line
}

/// Reads a number, hexadecimal after `0x`.
pub(crate) fn number(text: &str) -> Option<u32> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Whether it is digits and nothing else.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_split_as_iptables_restore_splits_them() {
        let line = "-A  X -m comment\t--comment \"it\\'s \\\"q\\\" \\\\ x\" a\"b c\"d \"\" -j DROP";
        let split: Vec<_> = words(line).collect();
        let expected = [
            "-A",
            "X",
            "-m",
            "comment",
            "--comment",
            "it's \"q\" \\ x",
            "ab c",
            "d",
            "",
            "-j",
            "DROP",
        ];
        assert_eq!(split, expected);
    }

    #[test]
    fn an_open_quote_is_seen() {
        assert!(is_closed(r#"a "b" "c \" d""#));
        assert!(!is_closed(r#"a "b" "c \""#));
    }

    proptest! {
        #[test]
        fn joined_words_split_into_the_same_words(
            words_in in proptest::collection::vec("[ -~é]{0,12}", 0..8)
        ) {
            let line = join(words_in.iter().map(String::as_str));
            let split: Vec<_> = words(&line).map(Cow::into_owned).collect();
            prop_assert_eq!(split, words_in);
            prop_assert!(is_closed(&line));
        }

        #[test]
        fn a_quoted_word_is_one_word(word in "\\PC{0,20}") {
            let line = quote(&word).into_owned();
            prop_assert_eq!(words(&line).collect::<Vec<_>>(), vec![Cow::Borrowed(word.as_str())]);
        }
    }
}
