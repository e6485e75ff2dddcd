//! Whether anybody looked: what the history says was watched, and the gaps in it.

use crate::{
    case::Origin,
    event::{Event, EventKind, WatchTarget},
    verdict::Span,
};

/// What was watched of one thing.
#[derive(Debug)]
pub(super) struct Coverage {
    target: WatchTarget,
    /// Shorter gaps between looks are none. `None` while the history has not said that it tells what was watched.
    within_us: Option<u64>,
    /// Each with why it ended.
    stretches: Vec<(Span, Option<String>)>,
}

impl Coverage {
    pub(super) fn of(target: WatchTarget) -> Self {
        Self {
            target,
            within_us: None,
            stretches: Vec::new(),
        }
    }

    pub(super) fn see(&mut self, event: &Event) {
        match &event.what {
            EventKind::Watching {
                within_us,
                unrecorded_us,
            } => {
                let elsewhere = unrecorded_us.filter(|_| self.is_unrecorded());
                self.within_us = Some(elsewhere.unwrap_or(*within_us));
            }
            EventKind::Watched(watched) if watched.target == self.target => {
                let span = Span {
                    from_us: watched.from_us,
                    to_us: watched.to_us,
                };
                self.stretches.push((span, watched.ended.clone()));
            }
            _ => {}
        }
    }

    /// Whether it is of a place where no backend records who writes.
    fn is_unrecorded(&self) -> bool {
        matches!(
            self.target,
            WatchTarget::Rules {
                at: Origin::Pod { .. } | Origin::Host(_)
            }
        )
    }

    /// Why that time was not watched as a whole; `None` when it was, and for a history that does not tell.
    pub(super) fn gap(&self, window: Span) -> Option<String> {
        let within_us = match self.target {
            // What is not read of a log may be anything, however short the time.
            WatchTarget::Log { .. } => self.within_us.map(|_| 0)?,
            WatchTarget::Rules { .. } | WatchTarget::Requests { .. } => self.within_us?,
        };
        let touches = |span: &Span| {
            span.from_us <= window.to_us + within_us && span.to_us + within_us >= window.from_us
        };
        let mut stretches: Vec<_> = self.stretches.iter().collect();
        stretches.retain(|(span, _)| touches(span));
        stretches.sort_by_key(|(span, _)| span.from_us);
        if stretches.is_empty() {
            return Some(self.blind(window));
        }
        let (mut until, mut why) = (window.from_us, None);
        for (span, ended) in &stretches {
            if span.from_us > until + within_us {
                return Some(self.unwatched(until, span.from_us, why));
            }
            if span.to_us >= until {
                (until, why) = (span.to_us, ended.as_deref());
            }
        }
        (window.to_us > until + within_us).then(|| self.unwatched(until, window.to_us, why))
    }

    /// The same of a moment.
    pub(super) fn gap_at(&self, at_us: u64) -> Option<String> {
        self.gap(Span {
            from_us: at_us,
            to_us: at_us,
        })
    }

    /// Why nothing at all was watched in that time.
    fn blind(&self, window: Span) -> String {
        let before = self.stretches.iter();
        let before = before.filter(|(span, _)| span.to_us < window.from_us);
        match before.max_by_key(|(span, _)| span.to_us) {
            Some((span, why)) => self.unwatched(span.to_us, window.to_us, why.as_deref()),
            None => format!("{} not watched", self.target),
        }
    }

    fn unwatched(&self, from_us: u64, to_us: u64, why: Option<&str>) -> String {
        let [from, length] = [from_us, to_us - from_us].map(|us| us as f64 / 1e6);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        format!(
            "{} not watched for {length:.2} s, from {from:.2} s on{why}",
            self.target
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Watched;

    /// A second of looks.
    fn watched(at: Origin, unrecorded_us: Option<u64>) -> Coverage {
        let target = WatchTarget::Rules { at };
        let mut coverage = Coverage::of(target.clone());
        let watched = Watched {
            target,
            from_us: 0,
            to_us: 1_000_000,
            ended: None,
        };
        let bounds = EventKind::Watching {
            within_us: 200_000,
            unrecorded_us,
        };
        for what in [bounds, EventKind::Watched(watched)] {
            coverage.see(&Event { at_us: 0, what });
        }
        coverage
    }

    /// Why half a second after them was not watched.
    fn gap(at: Origin, unrecorded_us: Option<u64>) -> Option<String> {
        watched(at, unrecorded_us).gap(Span {
            from_us: 0,
            to_us: 1_500_000,
        })
    }

    #[test]
    fn a_moment_was_watched_when_the_last_look_ended_shortly_before_it() {
        let looks = watched(Origin::Node("n1".into()), None);
        assert_eq!(looks.gap_at(1_000_020), None);
        assert!(looks.gap_at(1_200_001).is_some());
    }

    #[test]
    fn places_whose_writes_nobody_records_have_a_bound_of_their_own() {
        let (node, host) = (Origin::Node("n1".into()), Origin::Host("db".to_owned()));
        assert!(gap(node, Some(1_000_000)).is_some());
        assert_eq!(gap(host.clone(), Some(1_000_000)), None);
        assert!(gap(host, None).is_some(), "an older history");
    }
}
