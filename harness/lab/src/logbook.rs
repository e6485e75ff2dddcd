//! What the agents wrote, kept for whoever reads it late.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chainbreak_model::names::{AgentName, NodeName};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;

/// One agent's log.
#[derive(Debug)]
struct Book {
    entries: Mutex<Vec<String>>,
    grown: watch::Sender<usize>,
}

impl Book {
    fn entries(&self) -> MutexGuard<'_, Vec<String>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Books = BTreeMap<(AgentName, NodeName), Arc<Book>>;

/// All agents' logs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logbook {
    books: Arc<Mutex<Books>>,
}

impl Logbook {
    /// Where one agent writes.
    pub(crate) fn writer(&self, agent: AgentName, node: &NodeName) -> impl Fn(String) + use<> {
        let book = self.book(agent, node);
        move |entry| {
            let count = {
                let mut entries = book.entries();
                entries.push(entry);
                entries.len()
            };
            book.grown.send_replace(count);
        }
    }

    /// The log so far and from now on. It never ends.
    pub(crate) fn read(&self, agent: AgentName, node: &NodeName) -> BoxStream<'static, String> {
        let book = self.book(agent, node);
        let grown = book.grown.subscribe();
        stream::unfold((book, grown, 0), async |(book, mut grown, next)| {
            // The book is held here, and with it the sender.
            drop(grown.wait_for(|&count| count > next).await);
            let entry = book.entries().get(next).cloned()?;
            Some((entry, (book, grown, next + 1)))
        })
        .boxed()
    }

    fn book(&self, agent: AgentName, node: &NodeName) -> Arc<Book> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let book = books.entry((agent, node.clone())).or_insert_with(|| {
            let (grown, _) = watch::channel(0);
            Arc::new(Book {
                entries: Mutex::default(),
                grown,
            })
        });
        Arc::clone(book)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_late_reader_gets_everything_in_order_and_then_what_comes() {
        let logbook = Logbook::default();
        let node = NodeName::from("n1");
        let write = logbook.writer(AgentName::Felix, &node);
        write("one".to_owned());
        write("two".to_owned());
        let mut log = logbook.read(AgentName::Felix, &node);
        assert_eq!(log.next().await.as_deref(), Some("one"));
        assert_eq!(log.next().await.as_deref(), Some("two"));
        let (next, ()) = tokio::join!(log.next(), async { write("three".to_owned()) });
        assert_eq!(next.as_deref(), Some("three"));
        let mut other = logbook.read(AgentName::KubeProxy, &node);
        let nothing = futures::FutureExt::now_or_never(other.next());
        assert!(nothing.is_none(), "another agent's log is another log");
    }
}
