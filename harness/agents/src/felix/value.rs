//! Values of Felix's parameters: how the API writes them and how Felix parses the text.

use std::time::Duration;

use regex::Regex;
use serde_json::Value as Json;

/// How a parameter's text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    /// A number of seconds.
    Seconds,
    /// A number of milliseconds.
    Millis,
    /// One of these words, in any case.
    OneOf(&'static [&'static str]),
    /// 32 bits, of which at least two are set.
    Mask,
    Number,
    /// Words separated by commas.
    List,
    /// A regular expression.
    Pattern,
}

/// A parsed value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Bool(bool),
    Word(String),
    Time(Duration),
    Number(u32),
    List(Vec<String>),
}

impl Kind {
    /// The value, unless the text is not one.
    pub(super) fn parse(self, raw: &str) -> Option<Value> {
        match self {
            Self::Bool => match raw.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "y" | "t" => Some(Value::Bool(true)),
                "false" | "0" | "no" | "n" | "f" => Some(Value::Bool(false)),
                _ => None,
            },
            Self::Seconds => time(raw, 1.0),
            Self::Millis => time(raw, 0.001),
            Self::OneOf(words) => {
                let word = words.iter().find(|word| word.eq_ignore_ascii_case(raw))?;
                Some(Value::Word((*word).to_owned()))
            }
            Self::Mask => {
                let mask = number(raw)?;
                (mask.count_ones() >= 2).then_some(Value::Number(mask))
            }
            Self::Number => number(raw).map(Value::Number),
            Self::List => {
                let words: Vec<String> =
                    raw.split(',').map(|word| word.trim().to_owned()).collect();
                words
                    .iter()
                    .all(|word| is_interface(word))
                    .then_some(Value::List(words))
            }
            Self::Pattern => Regex::new(raw).ok().map(|_it| Value::Word(raw.to_owned())),
        }
    }

    /// What Felix says of a text that is no value.
    pub(super) fn complaint(self) -> &'static str {
        match self {
            Self::Bool => "invalid boolean",
            Self::Seconds | Self::Millis => "invalid float",
            Self::OneOf(_) => "unknown option",
            Self::Mask => "invalid mark: needs to have 2 bits set",
            Self::Number => "invalid int",
            Self::List => "invalid Linux interface name",
            Self::Pattern => "invalid regexp",
        }
    }
}

/// Felix takes a negative time for what it says: earlier than now. A clock here knows none, so it is 0.
fn time(raw: &str, unit: f64) -> Option<Value> {
    let seconds = raw
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())?
        * unit;
    Duration::try_from_secs_f64(seconds.max(0.0))
        .ok()
        .map(Value::Time)
}

fn number(raw: &str) -> Option<u32> {
    match raw.strip_prefix("0x").or_else(|| raw.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => raw.parse().ok(),
    }
}

fn is_interface(word: &str) -> bool {
    let fits = (1..=15).contains(&word.len());
    fits && word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c))
}

/// A field of the API as the text that Felix's configuration sees (configurationprocessor.go);
/// nothing for an unset field. A duration becomes a number of seconds, or of milliseconds.
pub(super) fn from_api(value: &Json, millis: bool) -> Option<String> {
    match value {
        Json::Null => None,
        Json::String(text) if text.is_empty() => None,
        Json::String(text) => Some(match go_seconds(text) {
            Some(seconds) if millis => (seconds * 1000.0).to_string(),
            Some(seconds) => seconds.to_string(),
            None => text.clone(),
        }),
        Json::Array(items) => {
            let item = |item: &Json| {
                item.as_str()
                    .map_or_else(|| item.to_string(), str::to_owned)
            };
            Some(items.iter().map(item).collect::<Vec<_>>().join(","))
        }
        other => Some(other.to_string()),
    }
}

/// Go's `time.ParseDuration`, in seconds: `1h30m`, `2.5s`, `0`.
fn go_seconds(text: &str) -> Option<f64> {
    if text == "0" {
        return Some(0.0);
    }
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_durations_become_the_numbers_felix_reads() {
        let api = |text: &str, millis| from_api(&Json::from(text), millis).unwrap();
        assert_eq!(api("2s", false), "2");
        assert_eq!(api("1m30s", false), "90");
        assert_eq!(api("0", false), "0");
        assert_eq!(api("0s", false), "0");
        assert_eq!(api("250ms", false), "0.25");
        assert_eq!(api("50ms", true), "50");
        assert_eq!(api("Append", false), "Append");
        assert_eq!(from_api(&Json::from(true), false).unwrap(), "true");
        assert_eq!(from_api(&Json::Null, false), None);
    }

    #[test]
    fn a_text_that_is_no_value_is_refused() {
        assert_eq!(Kind::Bool.parse("maybe"), None);
        assert_eq!(Kind::Seconds.parse("2s"), None);
        assert_eq!(Kind::Seconds.parse("NaN"), None);
        assert_eq!(Kind::Mask.parse("0x10000"), None);
        assert_eq!(Kind::OneOf(&["insert"]).parse("prepend"), None);
        assert_eq!(Kind::List.parse("cali,"), None);
        assert_eq!(Kind::Pattern.parse("^(eth"), None);
    }
}
