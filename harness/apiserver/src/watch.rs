//! Watches: every change of a resource after a revision, in order, none twice, as the client's selector
//! sees them. A watcher that falls behind the history is told so and must list again.
//!
//! A watch may begin with the present state (`sendInitialEvents`, which client-go does from 0.35 on):
//! additions, then a bookmark that marks their end, without which such a client waits forever.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::{
    error::ApiError,
    object::{Object, encode, meta},
    options::Begin,
    respond::{Representation, View},
    selector::Selector,
    server::Server,
    state::State,
    store::Change,
};

/// How long a watch lasts when the client does not say; Kubernetes takes 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// A quiet watcher learns the present revision this often.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// The annotation of the bookmark behind the present state.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What is watched.
#[derive(Debug, Clone)]
pub(crate) struct WatchOptions {
    pub(crate) representation: Representation,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    pub(crate) begin: Begin,
    pub(crate) timeout: Option<Duration>,
    pub(crate) bookmarks: bool,
}

/// One open watch.
struct Watch {
    server: Arc<Server>,
    options: WatchOptions,
    cursor: u64,
    tip: watch::Receiver<u64>,
    ready: VecDeque<Bytes>,
    ends: Instant,
    next_bookmark: Instant,
    /// The head of the table was sent.
    headed: bool,
    done: bool,
}

/// The lines of a watch, each chunk one or more of them.
pub(crate) fn open(server: Arc<Server>, options: WatchOptions) -> impl Stream<Item = Bytes> + Send {
    let now = Instant::now();
    let (tip, cursor, present) = server.with(|state| {
        let storage = &options.representation.kind.storage;
        let tip = state.store.subscribe(storage);
        let cursor = match options.begin {
            Begin::After(revision) => revision,
            _ => state.store.revision(),
        };
        (tip, cursor, present(state, &options))
    });
    let mut watch = Watch {
        server,
        cursor,
        tip,
        ends: now + options.timeout.unwrap_or(DEFAULT_TIMEOUT),
        next_bookmark: now + BOOKMARK_EVERY,
        ready: VecDeque::new(),
        headed: false,
        done: false,
        options,
    };
    for object in present {
        watch.push("ADDED", &object);
    }
    if watch.options.begin == Begin::StateThenBookmark {
        watch.bookmark(&json!({INITIAL_EVENTS_END: "true"}));
    }
    stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|chunk| (chunk, watch))
    })
}

/// What a watch tells first: the objects it selects that are there, when it begins with them.
fn present(state: &State, options: &WatchOptions) -> Vec<Arc<Object>> {
    if !matches!(options.begin, Begin::State | Begin::StateThenBookmark) {
        return Vec::new();
    }
    let storage = &options.representation.kind.storage;
    let all = state.store.list(storage, options.namespace.as_deref());
    all.map(|(_, object)| object)
        .filter(|object| options.selector.matches(object.value()))
        .map(Arc::clone)
        .collect()
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.take() {
                return Some(chunk);
            }
            if self.done {
                return None;
            }
            self.tip.borrow_and_update();
            if let Err(error) = self.read() {
                self.done = true;
                return Some(line("ERROR", &encode(&error.status())));
            }
            if !self.ready.is_empty() {
                continue;
            }
            let wake = self.ends.min(self.next_bookmark);
            match tokio::time::timeout_at(wake, self.tip.changed()).await {
                Ok(Ok(())) => {}
                // The store is gone with the server.
                Ok(Err(_)) => return None,
                Err(_) => self.time_is_up(),
            }
        }
    }

    fn time_is_up(&mut self) {
        let now = Instant::now();
        self.done = now >= self.ends;
        self.next_bookmark = now + BOOKMARK_EVERY;
        if self.options.bookmarks {
            self.bookmark(&Value::Null);
        }
    }

    /// Tells the revision up to which everything was told.
    fn bookmark(&mut self, annotations: &Value) {
        let kind = &self.options.representation.kind;
        let (kind, version) = match self.options.representation.view {
            View::Whole => (kind.kind.clone(), kind.group_version()),
            View::Metadata => (
                "PartialObjectMetadata".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            View::Table => ("Table".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        let mut bookmark = json!({"kind": kind, "apiVersion": version, "metadata": {
            "resourceVersion": self.cursor.to_string(), "creationTimestamp": null}});
        if !annotations.is_null() {
            bookmark["metadata"]["annotations"] = annotations.clone();
        }
        self.ready.push_back(line("BOOKMARK", &encode(&bookmark)));
    }

    /// Reads what happened since, and moves on to the present.
    fn read(&mut self) -> Result<(), ApiError> {
        let server = Arc::clone(&self.server);
        let storage = Arc::clone(&self.options.representation.kind.storage);
        let cursor = self.cursor;
        let (changes, revision, now) = server.with(|state| {
            let changes = state.store.changes_after(&storage, cursor)?.cloned();
            Ok((
                changes.collect::<Vec<Change>>(),
                state.store.revision(),
                state.clock(),
            ))
        })?;
        self.options.representation.now = now;
        for change in &changes {
            if let Some((event, object)) = self.seen(change) {
                self.push(event, &object);
            }
        }
        self.cursor = self.cursor.max(revision);
        Ok(())
    }

    /// A change as the selector sees it: an object that leaves the selection is deleted, one that
    /// enters it is added.
    fn seen(&self, change: &Change) -> Option<(&'static str, Arc<Object>)> {
        let value = change.object.value();
        if self
            .options
            .namespace
            .as_ref()
            .is_some_and(|ns| ns != meta(value, "namespace"))
        {
            return None;
        }
        let selects = |object: &Arc<Object>| self.options.selector.matches(object.value());
        let before = change.before.as_ref().filter(|object| selects(object));
        let after = !change.removed && selects(&change.object);
        match (before, after) {
            (None, true) => Some(("ADDED", Arc::clone(&change.object))),
            (Some(_), true) => Some(("MODIFIED", Arc::clone(&change.object))),
            (Some(_), false) if change.removed => Some(("DELETED", Arc::clone(&change.object))),
            (Some(before), false) => Some(("DELETED", at_revision(before, change.revision))),
            (None, false) => None,
        }
    }

    fn push(&mut self, event: &'static str, object: &Arc<Object>) {
        let mut shown = self.options.representation.object(object);
        if self.options.representation.view == View::Table && self.headed {
            shown = without_columns(&shown);
        }
        self.headed = true;
        self.ready.push_back(line(event, &shown));
    }

    fn take(&mut self) -> Option<Bytes> {
        match self.ready.len() {
            0 | 1 => self.ready.pop_front(),
            _ => {
                let mut chunk = BytesMut::new();
                self.ready
                    .drain(..)
                    .for_each(|line| chunk.extend_from_slice(&line));
                Some(chunk.freeze())
            }
        }
    }
}

fn at_revision(object: &Object, revision: u64) -> Arc<Object> {
    let mut value = object.value().clone();
    value["metadata"]["resourceVersion"] = revision.to_string().into();
    Arc::new(Object::new(value))
}

fn without_columns(table: &Bytes) -> Bytes {
    let Ok(mut table) = serde_json::from_slice::<Value>(table) else {
        return table.clone();
    };
    table["columnDefinitions"] = json!([]);
    encode(&table)
}

fn line(event: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(event.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.freeze()
}
