//! How times, counts and foreign text are written, the same in every report.

use std::iter;

use chainbreak_model::is_hidden;
use serde::Serialize;

/// Microseconds of the case as `s.mmm`.
pub fn clock(us: u64) -> String {
    format!("{}.{:03}", us / 1_000_000, us / 1_000 % 1_000)
}

/// A length of time, in the unit in which a person would say it.
pub fn length(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{} ms", (us + 500) / 1_000),
        1_000_000..60_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => format!("{} min {} s", us / 60_000_000, us / 1_000_000 % 60),
    }
}

/// `1 chain`, `2 chains`.
pub fn count(n: usize, what: &str) -> String {
    let plural = match what.strip_suffix('h').or(what.strip_suffix('s')) {
        _ if n == 1 => "",
        Some(_) => "es",
        None => "s",
    };
    format!("{n} {what}{plural}")
}

/// `3 cases: 2 as expected, 1 skipped`, of how many came to what; none where there are no cases.
pub(crate) fn tally(parts: &[(usize, &str)]) -> Option<String> {
    let all = parts.iter().map(|(n, _)| n).sum();
    let some = parts.iter().filter(|(n, _)| *n > 0);
    let some: Vec<String> = some.map(|(n, words)| format!("{n} {words}")).collect();
    (all > 0).then(|| format!("{}: {}", count(all, "case"), some.join(", ")))
}

/// A share as percent. Rounded down, so that 100 % means all of them.
pub fn percent(part: usize, whole: usize) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let hundredths = part * 10_000 / whole;
    match hundredths % 100 {
        0 => format!("{} %", hundredths / 100),
        _ => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

/// At most `width` characters, the last one an ellipsis when something was cut off.
pub fn cut(text: &str, width: usize) -> String {
    let text = shown(text);
    if text.chars().count() <= width {
        return text;
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(iter::once('…')).collect()
}

/// At most `width` characters, with an ellipsis for what was cut out of the middle: what names have in
/// common is mostly at their beginning, so more of the end is kept.
pub fn cut_within(text: &str, width: usize) -> String {
    let text = shown(text);
    let length = text.chars().count();
    if length <= width {
        return text;
    }
    let head = width.saturating_sub(1) / 3;
    let tail = width.saturating_sub(1) - head;
    let kept = text.chars().take(head).chain(iter::once('…'));
    kept.chain(text.chars().skip(length - tail)).collect()
}

/// The text in lines of at most `width` characters, broken at spaces where there are any; continued lines
/// begin four further in than the first.
pub fn wrap(text: &str, width: usize) -> String {
    let text = clean(text);
    let indent = text.chars().take_while(|c| *c == ' ').count();
    let next = (indent + 4).min(width / 2);
    let words = indent.max(next) + 1;
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let (mut rest, mut lead) = (&*chars, 0);
    while lead + rest.len() > width {
        let room = width.max(1) - lead;
        let mut begin = rest.iter().take(room + 1);
        let space = begin.rposition(|c| *c == ' ');
        let space = space.filter(|&at| lead + at > words);
        let (line, tail) = rest.split_at(space.unwrap_or(room));
        out.extend(iter::repeat_n(&' ', lead).chain(line).chain(['\n'].iter()));
        let blanks = tail.iter().take_while(|c| c.is_whitespace()).count();
        (rest, lead) = (&tail[blanks..], next);
    }
    out.extend(iter::repeat_n(&' ', lead).chain(rest));
    inert(&out)
}

/// Foreign text as a terminal and the log of a CI may have it.
pub fn shown(text: &str) -> String {
    inert(&clean(text))
}

/// GitHub's runner obeys a line that begins with `::` and a word, and `##[` anywhere in it; Azure's obeys `##vso[`, too. No
/// blank before such a line keeps them from it.
fn inert(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace("##[", "## [").replace("##vso[", "## vso[");
        let words = line.trim_start();
        let command = words
            .strip_prefix("::")
            .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
        match command {
            Some(word) => {
                let indent = " ".repeat(line.chars().count() - words.chars().count());
                format!("{indent}: :{word}")
            }
            None => line,
        }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// A value as JSON in one line, which [`shown`] would leave as it is: neither a terminal nor the log of a CI obeys what others wrote into
/// its texts, and whoever reads it gets them whole. What would be obeyed is written by its number.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|json| by_number(&json))
}

/// The same over several lines, with the end of the last one.
pub fn document(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|json| by_number(&json) + "\n")
}

/// Outside of texts JSON is ASCII, and in them line ends are escaped already.
fn by_number(json: &str) -> String {
    let json = json.replace("##[", "#\\u0023[");
    let json = json.replace("##vso[", "#\\u0023vso[");
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_hidden(c) {
            out.push(c);
        } else {
            let mut units = [0; 2];
            let units = c.encode_utf16(&mut units).iter();
            out.extend(units.map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

/// Foreign text without terminal escapes, characters that turn its direction, and those that XML 1.0 forbids. Line ends
/// become `\n`; tabs stay.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_control_sequence(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => {}
            _ if is_hidden(c) => {}
            _ => out.push(c),
        }
    }
    out
}

/// The same in one line.
pub(crate) fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text between the marks of XML or HTML, and in their quoted attributes.
pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

type Rest<'a> = iter::Peekable<std::str::Chars<'a>>;

/// What follows ESC: a control sequence (`[…m`), a string up to BEL or ESC `\`, or a short escape.
fn skip_escape(rest: &mut Rest<'_>) {
    match rest.next() {
        Some('[') => skip_control_sequence(rest),
        Some(']' | 'P' | 'X' | '^' | '_') => {
            // An unterminated string would swallow everything: it ends with its line at the latest.
            while let Some(c) = rest.next_if(|&c| c != '\n') {
                if c == '\u{7}' || (c == '\u{1b}' && rest.next_if_eq(&'\\').is_some()) {
                    break;
                }
            }
        }
        Some(' '..='/') => drop(rest.next()),
        _ => {}
    }
}

/// Parameters and intermediates, then one final character. A character that fits nowhere ends the
/// sequence and stays.
fn skip_control_sequence(rest: &mut Rest<'_>) {
    while rest.next_if(|c| (' '..='?').contains(c)).is_some() {}
    rest.next_if(|c| ('@'..='~').contains(c));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_loses_escapes_and_forbidden_characters_and_nothing_else() {
        assert_eq!(
            clean("\u{1b}[1;31mred\u{1b}[0m\ttab\r\nnext\rline"),
            "red\ttab\nnext\nline"
        );
        assert_eq!(
            clean("\u{1b}]0;title\u{7}text\u{1b}]8;;x\u{1b}\\link"),
            "textlink"
        );
        assert_eq!(clean("\u{1b}]never ended\nnext"), "\nnext");
        assert_eq!(clean("a\0b\u{1}c\u{fffe}d\u{9b}2Je\u{7f}"), "abcde");
        assert_eq!(
            clean("ünïcode → 漢字 🦀 <&>\"']]>"),
            "ünïcode → 漢字 🦀 <&>\"']]>"
        );
        assert_eq!(clean("\u{1b}"), "");
    }

    #[test]
    fn no_text_turns_its_direction() {
        assert_eq!(clean("a\u{202e}b\u{2066}c\u{200f}d\u{61c}e"), "abcde");
    }

    #[test]
    fn no_line_is_a_command_to_the_runner_of_a_ci() {
        let said = "text\n  ::error file=a::b\n::1 answers ::\n##[error]c ##vso[task]d";
        let inert = "text\n  : :error file=a::b\n::1 answers ::\n## [error]c ## vso[task]d";
        assert_eq!(shown(said), inert);
        assert_eq!(wrap("    ::error::a", 80), "    : :error::a");
        assert_eq!(wrap("one two ::error::a", 14), "one two\n    : :error::a");
        assert_eq!(cut("::error::\u{1b}[31ma", 80), ": :error::a");
    }

    #[test]
    fn json_commands_nobody_and_loses_nothing_of_what_it_tells() {
        let text =
            "::error::\u{1b}[31m\u{9b}2J\u{202e}\"\n##[error]c ##vso[task]d ünïcode 🦀 \\u202e";
        for told in [json(&[text]).unwrap(), document(&[text]).unwrap()] {
            assert_eq!(shown(&told), told);
            assert!(told.contains("ünïcode 🦀"), "{told}");
            let read: [String; 1] = serde_json::from_str(&told).unwrap();
            assert_eq!(read, [text]);
        }
    }

    #[test]
    fn a_hundred_percent_means_all() {
        assert_eq!(percent(99_999, 100_000), "99.99 %");
        assert_eq!(percent(7, 7), "100 %");
        assert_eq!(percent(0, 0), "–");
    }

    #[test]
    fn lengths_are_said_as_a_person_says_them() {
        let said = [7, 50_400, 3_200_000, 200_000_000].map(length);
        assert_eq!(said, ["7 µs", "50 ms", "3.2 s", "3 min 20 s"]);
        assert_eq!(clock(4_810_999), "4.810");
        assert_eq!(
            [count(1, "flush"), count(2, "flush"), count(0, "chain")],
            ["1 flush", "2 flushes", "0 chains"]
        );
    }

    #[test]
    fn cut_text_fits_and_says_that_it_was_cut() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut_within("abcdefghij", 7), "ab…ghij");
        assert_eq!(cut_within("äöü", 3), "äöü");
    }

    #[test]
    fn wrapped_text_keeps_every_word_and_no_line_is_too_wide() {
        let text = "  12.345  n2  felix  deleted KUBE-SVC-IU46S4VZFN77LK6S and whatnot";
        assert_eq!(
            wrap(text, 44),
            "  12.345  n2  felix  deleted\n      KUBE-SVC-IU46S4VZFN77LK6S and whatnot"
        );
        for width in 8..80 {
            let wrapped = wrap(text, width);
            assert!(
                wrapped.lines().all(|line| line.chars().count() <= width),
                "{width}: {wrapped}"
            );
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(letters(&wrapped), letters(text));
        }
    }
}
