//! What a run writes goes through one thread: a slow disk holds up neither the supervision of cases nor a signal. What
//! waits to be written is bounded, and whoever has more waits for room.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use anyhow::Context;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// So many jobs may wait to be written,
const WAITING: usize = 1024;
/// and so many bytes: whoever has more then waits for room.
const WAITING_BYTES: usize = 8 * 1024 * 1024;

/// Something to be written.
#[derive(Debug)]
pub(crate) enum Job {
    /// A line of `run.jsonl`, with its end.
    Run(Vec<u8>),
    /// A case begins: its events go into that file.
    Open(usize, PathBuf),
    /// An event of a case, as a line with its end.
    Event(usize, Vec<u8>),
    /// A case has no more events. The answer says that its file has them all.
    Close(usize, oneshot::Sender<()>),
    /// A file of its own.
    Whole(PathBuf, String),
    /// For whoever reads standard output.
    Tell(String),
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Self::Run(line) | Self::Event(_, line) => line.len(),
            Self::Whole(_, text) | Self::Tell(text) => text.len(),
            Self::Open(..) | Self::Close(..) => 0,
        }
    }
}

/// The bytes that wait to be written.
#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    fewer: Notify,
}

impl Waiting {
    async fn below(&self, most: usize) {
        loop {
            // Asked for before looking: what is said in between is heard.
            let fewer = self.fewer.notified();
            if self.bytes.load(Ordering::SeqCst) < most {
                return;
            }
            fewer.await;
        }
    }

    fn written(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.fewer.notify_waiters();
    }
}

/// Room for a job.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    place: mpsc::Permit<'a, Job>,
    waiting: &'a Waiting,
}

impl Room<'_> {
    /// Takes it.
    pub(crate) fn send(self, job: Job) {
        self.waiting.bytes.fetch_add(job.bytes(), Ordering::SeqCst);
        self.place.send(job);
    }
}

/// The end of the thread where things are to be written.
#[derive(Debug)]
pub(crate) struct Disk {
    jobs: mpsc::Sender<Job>,
    waiting: Arc<Waiting>,
    failed: watch::Receiver<Option<String>>,
    thread: JoinHandle<()>,
}

impl Disk {
    /// Begins, with a new `run.jsonl`.
    pub(crate) fn begin(run: PathBuf) -> anyhow::Result<Self> {
        let file =
            File::create(&run).with_context(|| format!("could not make {}", run.display()))?;
        let (jobs, queue) = mpsc::channel(WAITING);
        let waiting = Arc::<Waiting>::default();
        let (failing, failed) = watch::channel(None);
        let files = Files {
            run: Open::of(run, file),
            cases: BTreeMap::new(),
        };
        let written = Arc::clone(&waiting);
        let thread = thread::spawn(move || write_all(files, queue, &written, &failing));
        Ok(Self {
            jobs,
            waiting,
            failed,
            thread,
        })
    }

    /// Waits until there is room for something, and takes it.
    pub(crate) async fn room(&self) -> Room<'_> {
        self.waiting.below(WAITING_BYTES).await;
        let place = self.jobs.reserve().await;
        Room {
            place: place.expect("the thread reads to the end, also when it cannot write"),
            waiting: &self.waiting,
        }
    }

    /// Writes that when there is room.
    pub(crate) async fn write(&self, job: Job) {
        self.room().await.send(job);
    }

    /// What could not be written, as soon as that is known.
    pub(crate) fn failed(&self) -> watch::Receiver<Option<String>> {
        self.failed.clone()
    }

    /// Waits until everything is written. What could not be, otherwise.
    pub(crate) fn end(self) -> Option<String> {
        drop(self.jobs);
        match self.thread.join() {
            Ok(()) => self.failed.borrow().clone(),
            Err(_panic) => Some("the thread that writes the run died".to_owned()),
        }
    }
}

/// Writes until the other end is gone. After the first failure no file is written any more; standard output fails by itself.
fn write_all(
    mut files: Files,
    mut jobs: mpsc::Receiver<Job>,
    waiting: &Waiting,
    failing: &watch::Sender<Option<String>>,
) {
    let fail = |error: anyhow::Error| {
        failing.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert_with(|| crate::in_full(&error));
            first
        });
    };
    let (mut told, mut filed) = (true, true);
    while let Some(job) = jobs.blocking_recv() {
        let bytes = job.bytes();
        let works = if matches!(job, Job::Tell(_)) {
            &mut told
        } else {
            &mut filed
        };
        if *works && let Err(error) = files.write(job) {
            *works = false;
            fail(error);
        }
        // A reader, and a run that is killed, have everything that happened until shortly before.
        if filed
            && jobs.is_empty()
            && let Err(error) = files.flush()
        {
            filed = false;
            fail(error);
        }
        waiting.written(bytes);
    }
}

#[derive(Debug)]
struct Files {
    run: Open,
    cases: BTreeMap<usize, Open>,
}

impl Files {
    fn write(&mut self, job: Job) -> anyhow::Result<()> {
        match job {
            Job::Run(line) => self.run.write(&line),
            Job::Open(case, path) => {
                let made = path.parent().map_or(Ok(()), fs::create_dir_all);
                let file = made.and_then(|()| File::create(&path));
                let file = file.with_context(|| format!("could not make {}", path.display()))?;
                self.cases.insert(case, Open::of(path, file));
                Ok(())
            }
            Job::Event(case, line) => match self.cases.get_mut(&case) {
                Some(file) => file.write(&line),
                None => Ok(()),
            },
            Job::Close(case, closed) => {
                if let Some(mut file) = self.cases.remove(&case) {
                    file.flush()?;
                }
                // Who is not interested does not hear it.
                closed.send(()).or(Ok(()))
            }
            Job::Whole(path, text) => whole(&path, &text),
            Job::Tell(text) => crate::tell(&text).context("could not write standard output"),
        }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.run.flush()?;
        self.cases.values_mut().try_for_each(Open::flush)
    }
}

fn whole(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("could not make {}", folder.display()))?;
    }
    Ok(chainbreak_report::write_atomically(path, text.as_bytes())?)
}

/// A file that is being written.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Open {
    fn of(path: PathBuf, file: File) -> Self {
        Self {
            path,
            file: BufWriter::new(file),
        }
    }

    fn write(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let written = self.file.write_all(line);
        self.said(written)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let flushed = self.file.flush();
        self.said(flushed)
    }

    fn said(&self, done: io::Result<()>) -> anyhow::Result<()> {
        done.with_context(|| format!("could not write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, time::Duration};

    use nix::{sys::stat::Mode, unistd::mkfifo};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_waits_for_a_disk_that_hangs_is_bounded_and_nothing_of_it_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let open = File::options().read(true).write(true).open(&path);
        let mut other_end = open.unwrap();
        let disk = Disk::begin(path).unwrap();
        let line = vec![b'x'; 1024 * 1024];
        let mut taken = 0;
        while timeout(
            Duration::from_millis(200),
            disk.write(Job::Run(line.clone())),
        )
        .await
        .is_ok()
        {
            taken += 1;
        }
        let most = WAITING_BYTES / line.len() + 1;
        assert!((2..=most).contains(&taken), "{taken} of {most}");
        let reader = thread::spawn(move || {
            let mut read = vec![0; taken * 1024 * 1024];
            other_end.read_exact(&mut read).unwrap();
            // Before this end is gone there must be nothing more to write.
            (read.len(), other_end)
        });
        assert_eq!(disk.end(), None);
        assert_eq!(reader.join().unwrap().0, taken * line.len());
    }
}
