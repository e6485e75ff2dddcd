//! What is known of containers by who asks the API for it: what one has said, and where a command in it runs.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    mem::take,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chainbreak_apiserver::{ContainerId, Kubelets, Line, Prepare, Said};
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Child,
    sync::broadcast::{
        self,
        error::RecvError::{Closed, Lagged},
    },
};

use crate::place::PlaceThread;

/// So many bytes of what a container has said in a life are kept: the last.
const KEPT: usize = 256 * 1024;
/// A line that has more is told in pieces, as the CRI does.
const LONGEST: usize = 16 * 1024;
/// So many lines may come before a follower who is slow misses some.
const AHEAD: usize = 1024;

/// The containers of a world's pods.
#[derive(Debug, Default)]
pub(crate) struct Containers(Mutex<BTreeMap<ContainerId, Arc<Container>>>);

/// One of them, over all its lives.
#[derive(Debug)]
pub(crate) struct Container {
    place: Arc<PlaceThread>,
    /// Of its own process, and of commands in it.
    pub(super) variables: BTreeMap<String, String>,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    life: Life,
    before: Option<Life>,
    /// Goes with the life: who follows it then hears the end.
    news: broadcast::Sender<Line>,
}

/// What was said in a life.
#[derive(Debug, Default)]
struct Life {
    lines: VecDeque<Line>,
    bytes: usize,
}

impl Containers {
    /// A container is about to live, once more if it is known: in that place, with that environment.
    pub(super) fn begin(
        &self,
        id: ContainerId,
        place: &Arc<PlaceThread>,
        variables: BTreeMap<String, String>,
    ) -> Arc<Container> {
        let mut all = self.all();
        let container = all.get(&id).filter(|it| Arc::ptr_eq(&it.place, place));
        if let Some(container) = container {
            container.book().begin();
            return Arc::clone(container);
        }
        let container = Arc::new(Container {
            place: Arc::clone(place),
            variables,
            book: Mutex::new(Book::new()),
        });
        all.insert(id, Arc::clone(&container));
        container
    }

    /// A pod is gone.
    pub(super) fn forget(&self, namespace: &str, pod: &str) {
        self.all()
            .retain(|id, _| (id.namespace.as_str(), id.pod.as_str()) != (namespace, pod));
    }

    fn find(&self, id: &ContainerId) -> Option<Arc<Container>> {
        self.all().get(id).cloned()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<ContainerId, Arc<Container>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kubelets for Containers {
    fn said(&self, of: &ContainerId, previous: bool) -> Option<Said> {
        let container = self.find(of)?;
        let book = container.book();
        let life = if previous {
            book.before.as_ref()?
        } else {
            &book.life
        };
        Some(Said {
            lines: life.lines.iter().cloned().collect(),
            more: if previous {
                stream::empty().boxed()
            } else {
                followed(book.news.subscribe())
            },
        })
    }

    fn start(
        &self,
        of: &ContainerId,
        argv: Vec<String>,
        prepare: Prepare,
    ) -> BoxFuture<'static, io::Result<Child>> {
        let container = self.find(of);
        async move {
            let container = container.ok_or(io::ErrorKind::NotFound)?;
            let variables = container.variables.clone();
            let child = container.place.spawn(&argv, move |command| {
                command.envs(variables);
                prepare(command);
            });
            child.await
        }
        .boxed()
    }
}

fn followed(news: broadcast::Receiver<Line>) -> BoxStream<'static, Line> {
    stream::unfold(news, |mut news| async {
        loop {
            match news.recv().await {
                Ok(line) => return Some((line, news)),
                Err(Lagged(_)) => {}
                Err(Closed) => return None,
            }
        }
    })
    .boxed()
}

impl Container {
    /// It has said a line.
    pub(super) fn says(&self, text: &str) {
        let line = Line {
            at: Timestamp::now(),
            text: text.into(),
        };
        let mut book = self.book();
        // It may be that nobody follows.
        drop(book.news.send(line.clone()));
        book.life.add(line);
    }

    /// Its life is over.
    pub(super) fn ends(&self) {
        self.book().news = broadcast::Sender::new(AHEAD);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn new() -> Self {
        Self {
            life: Life::default(),
            before: None,
            news: broadcast::Sender::new(AHEAD),
        }
    }

    fn begin(&mut self) {
        self.before = Some(take(&mut self.life));
        self.news = broadcast::Sender::new(AHEAD);
    }
}

impl Life {
    fn add(&mut self, line: Line) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.bytes > KEPT
            && let Some(first) = self.lines.pop_front()
        {
            self.bytes -= first.text.len();
        }
    }
}

/// Hears what a container says on a stream, to its end; `also` hears it as it comes.
pub(super) async fn hear(
    mut from: impl AsyncRead + Unpin,
    container: &Container,
    mut also: impl FnMut(&[u8]),
) {
    let mut line = Vec::new();
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        also(&buffer[..count]);
        for piece in buffer[..count].split_inclusive(|&byte| byte == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() >= LONGEST {
                tell(container, &mut line);
            }
        }
    }
    if !line.is_empty() {
        tell(container, &mut line);
    }
}

fn tell(container: &Container, line: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(line);
    container.says(text.strip_suffix('\n').unwrap_or(&text));
    line.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(lines: &[&str]) -> Life {
        let mut life = Life::default();
        for text in lines {
            life.add(Line {
                at: Timestamp::UNIX_EPOCH,
                text: (*text).into(),
            });
        }
        life
    }

    #[test]
    fn of_a_flood_the_last_lines_are_kept() {
        let long = "x".repeat(KEPT / 2);
        let life = life(&["first", &long, &long, "last"]);
        let kept: Vec<usize> = life.lines.iter().map(|line| line.text.len()).collect();
        assert_eq!(kept, [KEPT / 2, 4]);
        assert_eq!(life.bytes, KEPT / 2 + 4);
    }
}
