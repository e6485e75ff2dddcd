//! What a run writes goes through one thread: a slow disk holds up neither the supervision of cases nor a signal. What
//! waits to be written is bounded, and whoever has more waits for room.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use anyhow::Context;
use tokio::sync::{mpsc, oneshot, watch};

/// So much may wait to be written.
const WAITING: usize = 1024;

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

/// The end of the thread where things are to be written.
#[derive(Debug)]
pub(crate) struct Disk {
    jobs: mpsc::Sender<Job>,
    failed: watch::Receiver<Option<String>>,
    thread: JoinHandle<()>,
}

impl Disk {
    /// Begins, with a new `run.jsonl`.
    pub(crate) fn begin(run: PathBuf) -> anyhow::Result<Self> {
        let file =
            File::create(&run).with_context(|| format!("could not make {}", run.display()))?;
        let (jobs, waiting) = mpsc::channel(WAITING);
        let (failing, failed) = watch::channel(None);
        let files = Files {
            run: Open::of(run, file),
            cases: BTreeMap::new(),
        };
        let thread = thread::spawn(move || write_all(files, waiting, &failing));
        Ok(Self {
            jobs,
            failed,
            thread,
        })
    }

    /// Waits until there is room for something, and takes it.
    pub(crate) async fn room(&self) -> mpsc::Permit<'_, Job> {
        let room = self.jobs.reserve().await;
        room.expect("the thread reads to the end, also when it cannot write")
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

/// Writes until the other end is gone. After the first failure nothing more is written.
fn write_all(
    mut files: Files,
    mut jobs: mpsc::Receiver<Job>,
    failing: &watch::Sender<Option<String>>,
) {
    while let Some(job) = jobs.blocking_recv() {
        if failing.borrow().is_some() {
            continue;
        }
        let written = files.write(job);
        // A reader, and a run that is killed, have everything that happened until shortly before.
        let flushed = match written {
            Ok(()) if jobs.is_empty() => files.flush(),
            written => written,
        };
        if let Err(error) = flushed {
            failing.send_replace(Some(format!("{error:#}")));
        }
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
            Job::Tell(text) => crate::tell(&text),
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
