//! The options of a request, read from its query string.

use std::{collections::BTreeMap, time::Duration};

use crate::{error::ApiError, object::Key};

/// The parameters of a query string, decoded; of a repeated one the first counts, but where [`Query::all`] are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let mut parameters: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters
                .entry(decode(name))
                .or_default()
                .push(decode(value));
        }
        Self(parameters)
    }

    /// A parameter; empty when absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.all(name).first().map_or("", String::as_str)
    }

    /// A parameter that may be repeated, in order.
    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether a parameter is there and not empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1")
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|error: std::num::ParseIntError| {
                    ApiError::BadRequest(format!("invalid {name} {text:?}: {error}"))
                }),
        }
    }

    /// How long a watch lasts at most; none when the client leaves it to the server, also with 0.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, ApiError> {
        let seconds = self.number("timeoutSeconds")?.filter(|s| *s > 0);
        // A year is forever, and does not overflow a clock.
        let seconds = seconds.map(|s| s.min(31_536_000));
        Ok(seconds.map(Duration::from_secs))
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'+', _) => bytes.push(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high * 16 + low);
                    rest = after;
                }
                _ => bytes.push(b'%'),
            },
            _ => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|d| u8::try_from(d).ok())
}

/// Where a list that was cut by `limit` goes on: the revision it is of and the last key told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Continue {
    pub(crate) revision: u64,
    pub(crate) after: Key,
}

impl Continue {
    /// `7.namespace.name`; a namespace has no dots.
    pub(crate) fn token(&self) -> String {
        format!(
            "{}.{}.{}",
            self.revision, self.after.namespace, self.after.name
        )
    }

    pub(crate) fn parse(token: &str) -> Result<Self, ApiError> {
        let mut parts = token.splitn(3, '.');
        let mut part = || parts.next();
        let parsed = || {
            let revision = part()?.parse().ok()?;
            Some(Self {
                revision,
                after: Key::new(part()?, part()?),
            })
        };
        let mut parsed = parsed;
        parsed().ok_or_else(|| ApiError::BadRequest(format!("continue key is not valid: {token}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        let query = Query::parse("labelSelector=%21a%2Cb+in+%28c%29&watch=1&x=%zz%4");
        assert_eq!(query.text("labelSelector"), "!a,b in (c)");
        assert!(query.flag("watch"));
        assert_eq!(query.text("x"), "%zz%4");
    }

    #[test]
    fn a_number_that_is_none_is_refused() {
        assert_eq!(Query::parse("limit=5").number("limit"), Ok(Some(5)));
        assert!(Query::parse("limit=-5").number("limit").is_err());
    }

    #[test]
    fn a_continue_token_leads_back_to_its_place() {
        let place = Continue {
            revision: 7,
            after: Key::new("a-b", "x.y.z"),
        };
        assert_eq!(Continue::parse(&place.token()), Ok(place));
        assert!(Continue::parse("nonsense").is_err());
    }
}
