//! What the agents wrote, kept for whoever reads it late. Where it is fetched from elsewhere, a book also says up to when that was done:
//! whoever needs all that was written before a moment waits for that, and the fetching hurries.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use chainbreak_model::names::{AgentName, NodeName};
use futures::{
    FutureExt,
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt},
};
use tokio::sync::watch;

use crate::{
    cluster::AgentDied,
    entries::{has_header, is_fatal, is_stack},
};

/// How many entries tell why an agent died.
const LAST: usize = 10;
/// So many bytes of an agent's log are kept. No agent of the catalogue's cases writes 1 MiB.
const KEPT: usize = 16 << 20;

/// What is read in an agent's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogItem {
    /// An entry.
    Entry(String),
    /// Entries may be missing.
    Broken {
        /// What was written before that is there.
        since: Instant,
        /// The reason.
        why: String,
    },
    /// From here on it is read again.
    Resumed {
        /// Whether everything that was written meanwhile is there, too.
        complete: bool,
    },
}

impl LogItem {
    /// The entry, if it is one.
    pub fn entry(self) -> Option<String> {
        match self {
            Self::Entry(text) => Some(text),
            Self::Broken { .. } | Self::Resumed { .. } => None,
        }
    }
}

/// An agent's log so far and from now on.
pub type AgentLog = BoxStream<'static, Result<LogItem, AgentDied>>;

/// One agent's log.
#[derive(Debug, Default)]
struct Book {
    items: Vec<LogItem>,
    /// What all entries have, in bytes.
    bytes: usize,
    /// No more is kept.
    is_full: bool,
    /// The newest entries, also when no more are kept, without stacks: they would leave no room for what was said before them.
    last: VecDeque<String>,
    /// What comes is lines of a stack.
    in_stack: bool,
    /// Why there will be no more.
    end: Option<String>,
    /// What was written before that is there. `None` where entries come as they are written.
    read: Option<Instant>,
    /// Up to when somebody wants it to be read.
    wanted: Option<Instant>,
}

type Books = BTreeMap<(AgentName, NodeName), watch::Sender<Book>>;

/// All agents' logs. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Logbook {
    books: Arc<Mutex<Books>>,
}

/// Where one agent writes.
#[derive(Debug)]
pub struct Writer(watch::Sender<Book>);

impl Writer {
    /// Adds an entry.
    pub fn write(&self, entry: String) {
        self.add(LogItem::Entry(entry));
    }

    /// What was written from then on may be missing, for this reason.
    pub fn broken(&self, since: Instant, why: String) {
        self.add(LogItem::Broken { since, why });
    }

    /// It is read again, `complete` with what was written meanwhile.
    pub fn resumed(&self, complete: bool) {
        self.add(LogItem::Resumed { complete });
    }

    /// What was written before that is there. A log of which this is never said has everything as soon as it is written.
    pub fn read_until(&self, until: Instant) {
        self.0
            .send_modify(|book| book.read = book.read.max(Some(until)));
    }

    /// Returns when somebody wants it to be read further than that.
    pub async fn wanted(&self, read: Instant) {
        let mut book = self.0.subscribe();
        let further = |book: &Book| book.wanted.is_some_and(|wanted| wanted > read);
        // Whoever writes keeps the book: it is not lost.
        drop(book.wait_for(further).await);
    }

    fn add(&self, item: LogItem) {
        self.0.send_modify(|book| book.add(item));
    }

    /// The agent will not live again, for this reason.
    pub fn end(&self, reason: String) {
        self.0.send_modify(|book| book.end = Some(reason));
    }
}

impl Logbook {
    /// Where one agent writes.
    pub fn writer(&self, agent: AgentName, node: &NodeName) -> Writer {
        Writer(self.book(agent, node))
    }

    /// The log so far and from now on. It ends only with the death of an agent that will not live again,
    /// and with its last entries as evidence.
    pub fn read(&self, agent: AgentName, node: &NodeName) -> AgentLog {
        let book = self.book(agent, node).subscribe();
        stream::unfold((book, 0), async |(mut book, next)| {
            let more = |book: &Book| book.items.len() > next || book.end.is_some();
            // The logbook is gone with the world.
            let item = {
                let book = book.wait_for(more).await.ok()?;
                match (book.items.get(next), &book.end) {
                    (Some(item), _) => Ok(item.clone()),
                    // After the end there is nothing.
                    (None, Some(_)) if next > book.items.len() => return None,
                    (None, Some(reason)) => Err(AgentDied(book.obituary(reason))),
                    (None, None) => return None,
                }
            };
            Some((item, (book, next + 1)))
        })
        .boxed()
    }

    /// Returns when what was written before that can be read, at once where entries come as they are written.
    pub fn read_past(
        &self,
        agent: AgentName,
        node: &NodeName,
        until: Instant,
    ) -> BoxFuture<'static, ()> {
        let book = self.book(agent, node);
        book.send_modify(|book| book.wanted = book.wanted.max(Some(until)));
        let mut book = book.subscribe();
        let past =
            move |book: &Book| book.end.is_some() || book.read.is_none_or(|read| read >= until);
        // A logbook that is gone with the world has nothing more to read.
        async move { drop(book.wait_for(past).await) }.boxed()
    }

    /// The last entries of each agent's log of a node, below the agent's name.
    pub fn last_words(&self, node: &NodeName) -> String {
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let of_node = books.iter().filter(|((_, on), _)| on == node);
        let words = of_node.map(|((agent, _), book)| {
            let last = book.borrow().last();
            match &*last {
                "" => format!("{agent} on {node} said nothing\n"),
                last => format!("{agent} on {node} said last:\n{last}\n"),
            }
        });
        words.collect()
    }

    fn book(&self, agent: AgentName, node: &NodeName) -> watch::Sender<Book> {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        books.entry((agent, node.clone())).or_default().clone()
    }
}

impl Book {
    /// Adds an item, unless the log is full: then the reader learns that once, and nothing that would say otherwise.
    fn add(&mut self, item: LogItem) {
        if let LogItem::Entry(text) = &item {
            self.bytes += text.len();
            self.in_stack = is_stack(text) || self.in_stack && !has_header(text);
            if !self.in_stack {
                self.last.push_back(text.clone());
            }
            if self.last.len() > LAST {
                self.last.pop_front();
            }
        }
        if self.is_full {
            return;
        }
        self.is_full = self.bytes > KEPT;
        self.items.push(if self.is_full {
            let why = format!("{} MiB of it are kept, and it has more", KEPT >> 20);
            LogItem::Broken {
                since: Instant::now(),
                why,
            }
        } else {
            item
        });
    }

    fn last(&self) -> String {
        let entries: Vec<&str> = self.last.iter().map(String::as_str).collect();
        entries.join("\n")
    }

    /// On the first line what it died of, where it said so.
    fn obituary(&self, reason: &str) -> String {
        let fatal = self.last.iter().find(|entry| is_fatal(entry));
        match (self.last(), fatal) {
            (last, _) if last.is_empty() => format!("{reason}, and it said nothing"),
            (last, None) => format!("{reason}; it said last:\n{last}"),
            (last, Some(fatal)) => format!("{reason}: {fatal}\nit said last:\n{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_late_reader_gets_everything_in_order_and_then_what_comes() {
        let logbook = Logbook::default();
        let node = NodeName::from("n1");
        let writer = logbook.writer(AgentName::Felix, &node);
        writer.write("one".to_owned());
        writer.write("two".to_owned());
        let mut log = logbook.read(AgentName::Felix, &node);
        let entry = |text: &str| LogItem::Entry(text.to_owned());
        assert_eq!(log.next().await.unwrap().unwrap(), entry("one"));
        assert_eq!(log.next().await.unwrap().unwrap(), entry("two"));
        let (next, ()) = tokio::join!(log.next(), async { writer.write("three".to_owned()) });
        assert_eq!(next.unwrap().unwrap(), entry("three"));
        let mut other = logbook.read(AgentName::KubeProxy, &node);
        let nothing = other.next().now_or_never();
        assert!(nothing.is_none(), "another agent's log is another log");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_log_that_is_fetched_has_what_was_written_before_a_moment_when_it_says_so() {
        let (logbook, node) = (Logbook::default(), NodeName::from("n1"));
        let begun = Instant::now();
        let [moment, later] = [1, 2].map(|s| begun + std::time::Duration::from_secs(s));
        let past = |until| logbook.read_past(AgentName::KubeProxy, &node, until);
        let writer = logbook.writer(AgentName::KubeProxy, &node);
        assert!(past(moment).now_or_never().is_some(), "it is written here");
        writer.read_until(begun);
        let mut waiting = past(moment);
        assert!((&mut waiting).now_or_never().is_none());
        assert!(writer.wanted(begun).now_or_never().is_some());
        assert!(writer.wanted(moment).now_or_never().is_none());
        writer.read_until(later);
        writer.read_until(begun);
        assert!(waiting.now_or_never().is_some());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn of_a_flood_a_part_is_kept_then_that_there_was_more_and_at_the_end_the_last_entries() {
        let (logbook, node) = (Logbook::default(), NodeName::from("n1"));
        let writer = logbook.writer(AgentName::KubeProxy, &node);
        let log = logbook.read(AgentName::KubeProxy, &node);
        let long = "x".repeat(KEPT / 4);
        (0..9).for_each(|_| writer.write(long.clone()));
        writer.resumed(true);
        writer.write("the last".to_owned());
        writer.end("exit status 1".to_owned());
        let read: Vec<_> = log.collect().await;
        assert_eq!(read.len(), 4 + 1 + 1);
        let full = read[4].as_ref().unwrap();
        assert!(matches!(full, LogItem::Broken { why, .. } if why.contains("16 MiB")));
        let died = read[5].as_ref().unwrap_err().to_string();
        assert!(died.ends_with("x\nthe last"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_death_of_an_agent_is_the_last_that_is_read_and_has_its_last_entries() {
        let logbook = Logbook::default();
        let node = NodeName::from("n1");
        let writer = logbook.writer(AgentName::KubeProxy, &node);
        (0..12).for_each(|number| writer.write(number.to_string()));
        let log = logbook.read(AgentName::KubeProxy, &node);
        writer.end("exit status 1".to_owned());
        let read: Vec<_> = log.collect().await;
        let died = read[12].as_ref().unwrap_err().to_string();
        assert_eq!(read.len(), 13);
        assert_eq!(
            died,
            "exit status 1; it said last:\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11"
        );
        let words = logbook.last_words(&node);
        assert!(
            words.starts_with("kube-proxy on n1 said last:\n2\n3\n"),
            "{words}"
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_agent_that_panicked_died_of_what_it_said_and_not_of_its_stack() {
        let (logbook, node) = (Logbook::default(), NodeName::from("n1"));
        let writer = logbook.writer(AgentName::Felix, &node);
        let own = "2026-11-22 09:00:00.000 [PANIC][1/2] felix/int_dataplane.go 1: no programs";
        for said in ["2026-11-22 08:59:59.000 [INFO][1/2] a", own] {
            writer.write(said.to_owned());
        }
        writer.write("panic: (*logrus.Entry) 0xc0001".to_owned());
        writer.write(String::new());
        writer.write("goroutine 1 [running]:".to_owned());
        (0..20).for_each(|number| writer.write(format!("\t/go/src/a.go:{number}")));
        writer.end("exit status 2".to_owned());
        let read: Vec<_> = logbook.read(AgentName::Felix, &node).collect().await;
        let died = read.last().unwrap().as_ref().unwrap_err().to_string();
        let said = format!("exit status 2: {own}\nit said last:\n2026-11-22 08:59:59");
        assert!(died.starts_with(&said), "{died}");
        assert!(died.trim_end().ends_with("0xc0001"), "{died}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_agent_that_died_without_a_word_did_so() {
        let logbook = Logbook::default();
        let node = NodeName::from("n1");
        logbook
            .writer(AgentName::Felix, &node)
            .end("exit status 2".to_owned());
        let mut log = logbook.read(AgentName::Felix, &node);
        let died = log.next().await.unwrap().unwrap_err().to_string();
        assert_eq!(died, "exit status 2, and it said nothing");
        assert!(log.next().await.is_none());
    }
}
