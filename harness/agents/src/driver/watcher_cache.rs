//! How Felix lists and watches a kind (libcalico-go, `watchersyncer/watchercache.go`, the same from v3.25 on but where it says so): it
//! tries again sooner than client-go's reflectors do, and says each time what failed.

use std::{fmt::Debug, time::Duration};

use futures::{StreamExt, stream::LocalBoxStream};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    runtime::watcher::Event,
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use super::feed::{Change, Known};
use crate::felix::{Attempt, Unreached};

/// Two lists, or two watches, begin so far from each other at least (`MinResyncInterval`).
const BETWEEN: Duration = Duration::from_millis(500);
/// A list that failed is tried again after that (`ListRetryInterval`).
const AFTER_FAILED_LIST: Duration = Duration::from_secs(1);
/// So many failed watches of one revision lead to a list (`MaxErrorsPerRevision`, from v3.30 on).
const MOST_ERRORS: u32 = 5;

/// What there is to watch.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    /// The resource's plural name.
    pub(super) plural: &'static str,
    /// A field selector; empty for all.
    pub(super) fields: String,
    /// Whether a watch that cannot be begun is tried again without a list (from v3.30 on).
    pub(super) watches_again: bool,
}

/// What Felix hears of a kind.
#[derive(Debug)]
pub(super) enum Heard<K> {
    Change(Change<K>),
    Unreached(Unreached),
}

/// Watches a kind until dropped.
pub(super) fn watcher_cache<K>(api: Api<K>, watched: Watched) -> LocalBoxStream<'static, Heard<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let cache = Cache {
        api,
        progress: Progress::new(watched.watches_again),
        watched,
        known: Known::default(),
        watch: None,
        blocked_until: Instant::now(),
    };
    futures::stream::unfold(cache, |mut cache| async move {
        let heard = cache.go_on().await;
        Some((futures::stream::iter(heard), cache))
    })
    .flatten()
    .boxed_local()
}

type Watch<K> = LocalBoxStream<'static, kube::Result<WatchEvent<K>>>;

struct Cache<K> {
    api: Api<K>,
    watched: Watched,
    progress: Progress,
    known: Known,
    watch: Option<Watch<K>>,
    blocked_until: Instant,
}

impl<K> Cache<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Up to the next thing that may be heard.
    async fn go_on(&mut self) -> Vec<Heard<K>> {
        if let Some(watch) = &mut self.watch {
            // A connection that breaks ends a watch without a word, as in client-go.
            let Some(Ok(event)) = watch.next().await else {
                self.watch = None;
                return Vec::new();
            };
            return self.take(event);
        }
        sleep_until(self.blocked_until).await;
        self.blocked_until = Instant::now() + BETWEEN;
        match self.progress.revision.clone() {
            None => self.list().await,
            Some(revision) => self.begin_watch(&revision).await,
        }
    }

    async fn list(&mut self) -> Vec<Heard<K>> {
        let selected = ListParams::default().fields(&self.watched.fields);
        let list = match self.api.list(&selected).await {
            Ok(list) => list,
            Err(error) => {
                self.blocked_until = Instant::now() + AFTER_FAILED_LIST;
                return vec![self.unreached(Attempt::List, &error)];
            }
        };
        // What was listed is watched at once.
        self.blocked_until = Instant::now();
        self.progress.listed(list.metadata.resource_version);
        let there = list.items.into_iter().map(Event::InitApply);
        let events = [Event::Init].into_iter().chain(there);
        let events = events.chain([Event::InitDone]);
        let changes = events.flat_map(|event| self.known.take(event));
        changes.map(Heard::Change).collect()
    }

    async fn begin_watch(&mut self, revision: &str) -> Vec<Heard<K>> {
        let selected = WatchParams::default().fields(&self.watched.fields);
        match self.api.watch(&selected, revision).await {
            Ok(watch) => {
                self.watch = Some(watch.boxed_local());
                Vec::new()
            }
            Err(error) if is_expired(&error) => {
                self.progress.revision = None;
                Vec::new()
            }
            Err(error) => {
                let attempt = self.progress.failed_watch(is_refused(&error));
                vec![self.unreached(attempt, &error)]
            }
        }
    }

    fn take(&mut self, event: WatchEvent<K>) -> Vec<Heard<K>> {
        let event = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.progress.saw(object.resource_version());
                Event::Apply(object)
            }
            WatchEvent::Deleted(object) => {
                self.progress.saw(object.resource_version());
                Event::Delete(object)
            }
            WatchEvent::Bookmark(bookmark) => {
                self.progress.saw(Some(bookmark.metadata.resource_version));
                return Vec::new();
            }
            // Expired, mostly: what is there is listed again.
            WatchEvent::Error(_) => {
                self.watch = None;
                self.progress.revision = None;
                return Vec::new();
            }
        };
        let changes = self.known.take(event).into_iter();
        changes.map(Heard::Change).collect()
    }

    fn unreached(&self, attempt: Attempt, error: &kube::Error) -> Heard<K> {
        Heard::Unreached(Unreached {
            plural: self.watched.plural,
            attempt,
            error: innermost(error),
        })
    }
}

/// From where on to watch, and what has failed there.
#[derive(Debug)]
struct Progress {
    watches_again: bool,
    /// `None` where a list is due.
    revision: Option<String>,
    errors: u32,
}

impl Progress {
    fn new(watches_again: bool) -> Self {
        Self {
            watches_again,
            revision: None,
            errors: 0,
        }
    }

    fn listed(&mut self, revision: Option<String>) {
        self.revision = revision;
        self.errors = 0;
    }

    fn saw(&mut self, revision: Option<String>) {
        if revision.is_some() {
            self.listed(revision);
        }
    }

    /// A watch could not be begun. Until v3.29 that leads to a list; from v3.30 on the fifth time does, and a connection that was refused
    /// never (within ten minutes).
    fn failed_watch(&mut self, refused: bool) -> Attempt {
        if self.watches_again && refused {
            return Attempt::RefusedWatch;
        }
        self.errors += 1;
        if !self.watches_again || self.errors >= MOST_ERRORS {
            self.revision = None;
        }
        Attempt::Watch {
            failed: self.errors,
        }
    }
}

fn is_expired(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}

fn is_refused(error: &kube::Error) -> bool {
    chain(error).any(|error| {
        let error = error.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    })
}

/// What an error is about in the end: `Connection refused (os error 111)`.
fn innermost(error: &kube::Error) -> String {
    chain(error)
        .last()
        .map_or_else(String::new, ToString::to_string)
}

fn chain(error: &kube::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| {
        error.source()
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::{Client, Config};

    use super::*;

    #[tokio::test]
    async fn a_list_that_fails_is_said_and_tried_again_after_a_second() {
        // Whoever has asked for a port that is free by now is the only one to be refused there.
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let config = Config::new(format!("http://{free}").parse().unwrap());
        let watched = Watched {
            plural: "nodes",
            fields: String::new(),
            watches_again: true,
        };
        let api = Api::<Node>::all(Client::try_from(config).unwrap());
        let mut heard = watcher_cache(api, watched);
        let mut times = Vec::new();
        for _ in 0..2 {
            let Some(Heard::Unreached(it)) = heard.next().await else {
                panic!("nobody listens")
            };
            assert_eq!((it.plural, it.attempt), ("nodes", Attempt::List));
            assert!(it.error.contains("refused"), "{}", it.error);
            times.push(Instant::now());
        }
        let between = times[1] - times[0];
        assert!(between >= AFTER_FAILED_LIST, "{between:?}");
    }

    fn progress(watches_again: bool) -> Progress {
        let mut progress = Progress::new(watches_again);
        progress.listed(Some("7".to_owned()));
        progress
    }

    #[test]
    fn a_watch_that_cannot_be_begun_leads_to_a_list_until_v3_29() {
        for refused in [false, true] {
            let mut progress = progress(false);
            assert_eq!(progress.failed_watch(refused), Attempt::Watch { failed: 1 });
            assert_eq!(progress.revision, None);
        }
    }

    #[test]
    fn from_v3_30_on_a_refused_watch_is_tried_for_ever_and_another_five_times() {
        let mut progress = progress(true);
        for _ in 0..9 {
            assert_eq!(progress.failed_watch(true), Attempt::RefusedWatch);
        }
        for failed in 1..5 {
            assert_eq!(progress.failed_watch(false), Attempt::Watch { failed });
            assert_eq!(progress.revision.as_deref(), Some("7"));
        }
        progress.failed_watch(false);
        assert_eq!(progress.revision, None);
    }

    #[test]
    fn progress_makes_failures_forgotten() {
        let mut progress = progress(true);
        progress.failed_watch(false);
        progress.saw(Some("8".to_owned()));
        assert_eq!(progress.failed_watch(false), Attempt::Watch { failed: 1 });
        assert_eq!(progress.revision.as_deref(), Some("8"));
    }
}
