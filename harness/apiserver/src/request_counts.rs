//! Who asked for what, and how it was answered: what tells which request an agent is stuck on, and
//! what of the API is missing.
//!
//! Bounded: of very many different requests the longest unseen are forgotten, and of very many unknown
//! ones only the first are noted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use jiff::Timestamp;

/// How many different requests are remembered.
const MAX_ASKED: usize = 8192;
/// How many different unknown requests are noted.
const MAX_UNKNOWN: usize = 1000;
/// The longest user agent or path that is remembered whole, in bytes.
const MAX_TEXT: usize = 512;

/// A kind of request: the same request of the same client with the same answer counts as one.
/// Ordered by client, then by what was asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Where the request came from.
    pub peer: IpAddr,
    /// Who the client says it is; empty when it does not.
    pub user_agent: String,
    /// The path, without the query.
    pub path: String,
    /// `GET`.
    pub method: String,
    /// Whether changes were asked for, not the present state.
    pub watch: bool,
    /// The HTTP status of the answer.
    pub status: u16,
    /// When it was asked last.
    pub last: Timestamp,
}

/// `GET /api/v1/nodes (watch): 200`.
impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watch = if self.watch { " (watch)" } else { "" };
        write!(f, "{} {}{watch}: {}", self.method, self.path, self.status)
    }
}

/// Is told of each unknown request when it comes first from a client.
pub type OnUnknown = Arc<dyn Fn(&Asked) + Send + Sync>;

/// An [`Asked`] without its time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    peer: IpAddr,
    user_agent: String,
    path: String,
    method: String,
    watch: bool,
    status: u16,
}

#[derive(Debug, Clone, Copy)]
struct Tally {
    count: u64,
    last: Timestamp,
}

/// Every request so far.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    asked: BTreeMap<Entry, Tally>,
    unknown: BTreeMap<Entry, Tally>,
}

impl RequestCounts {
    pub(crate) fn note(&mut self, asked: &Asked) {
        if self.asked.len() >= MAX_ASKED && !self.asked.contains_key(&entry(asked)) {
            self.forget();
        }
        count(&mut self.asked, asked);
    }

    /// Whether it is the first of its kind, which somebody may want to hear of.
    pub(crate) fn note_unknown(&mut self, asked: &Asked) -> bool {
        let known = self.unknown.contains_key(&entry(asked));
        if known || self.unknown.len() < MAX_UNKNOWN {
            count(&mut self.unknown, asked);
            return !known;
        }
        false
    }

    /// Forgets the quarter that was not seen for the longest time.
    fn forget(&mut self) {
        let oldest: BTreeSet<(Timestamp, Entry)> = self
            .asked
            .iter()
            .map(|(entry, tally)| (tally.last, entry.clone()))
            .collect();
        for (_, entry) in oldest.iter().take(MAX_ASKED / 4) {
            self.asked.remove(entry);
        }
    }

    pub(crate) fn asked(&self) -> Vec<(Asked, u64)> {
        told(&self.asked)
    }

    pub(crate) fn unknown(&self) -> Vec<(Asked, u64)> {
        told(&self.unknown)
    }
}

/// The beginning of a text that anybody may have sent.
pub(crate) fn shortened(text: &str) -> String {
    let fits = |(at, c): &(usize, char)| at + c.len_utf8() <= MAX_TEXT;
    let kept = text.char_indices().take_while(fits);
    kept.map(|(_, c)| c).collect()
}

fn entry(asked: &Asked) -> Entry {
    Entry {
        peer: asked.peer,
        user_agent: asked.user_agent.clone(),
        path: asked.path.clone(),
        method: asked.method.clone(),
        watch: asked.watch,
        status: asked.status,
    }
}

fn count(tallies: &mut BTreeMap<Entry, Tally>, asked: &Asked) {
    let last = asked.last;
    let tally = tallies
        .entry(entry(asked))
        .or_insert(Tally { count: 0, last });
    tally.count += 1;
    tally.last = last;
}

fn told(tallies: &BTreeMap<Entry, Tally>) -> Vec<(Asked, u64)> {
    let told = tallies.iter().map(|(entry, tally)| {
        let entry = entry.clone();
        let asked = Asked {
            peer: entry.peer,
            user_agent: entry.user_agent,
            path: entry.path,
            method: entry.method,
            watch: entry.watch,
            status: entry.status,
            last: tally.last,
        };
        (asked, tally.count)
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, second: i64) -> Asked {
        Asked {
            peer: IpAddr::from([10, 0, 1, 1]),
            user_agent: "agent".to_owned(),
            path: path.to_owned(),
            method: "GET".to_owned(),
            watch: false,
            status: 404,
            last: Timestamp::from_second(second).unwrap(),
        }
    }

    #[test]
    fn the_same_request_is_counted_and_its_last_time_kept() {
        let mut counts = RequestCounts::default();
        for second in 1..=3 {
            counts.note(&asked("/a", second));
        }
        counts.note(&asked("/b", 2));
        assert_eq!(counts.asked(), [(asked("/a", 3), 3), (asked("/b", 2), 1)]);
    }

    #[test]
    fn of_too_many_requests_the_longest_unseen_are_forgotten() {
        let mut counts = RequestCounts::default();
        let most = i64::try_from(MAX_ASKED).unwrap();
        for n in 0..most {
            counts.note(&asked(&format!("/{n}"), n));
        }
        counts.note(&asked("/0", most));
        counts.note(&asked("/new", most));
        let paths: BTreeSet<String> = counts.asked().into_iter().map(|(a, _)| a.path).collect();
        assert!(paths.len() <= MAX_ASKED);
        assert!(paths.contains("/0") && paths.contains("/new"));
        assert!(!paths.contains("/1"));
    }

    #[test]
    fn an_unknown_request_is_news_once_and_too_many_are_none() {
        let mut counts = RequestCounts::default();
        assert!(counts.note_unknown(&asked("/a", 1)));
        assert!(!counts.note_unknown(&asked("/a", 2)));
        for n in 0..2 * MAX_UNKNOWN {
            counts.note_unknown(&asked(&format!("/{n}"), 3));
        }
        assert_eq!(counts.unknown().len(), MAX_UNKNOWN);
        assert!(!counts.note_unknown(&asked("/late", 4)));
    }

    #[test]
    fn a_text_without_end_is_cut_between_characters() {
        assert_eq!(shortened("kube-proxy/v1"), "kube-proxy/v1");
        assert!(shortened(&"é".repeat(1000)).len() <= MAX_TEXT);
        assert!(shortened(&format!("a{}", "é".repeat(1000))).len() < MAX_TEXT);
    }
}
