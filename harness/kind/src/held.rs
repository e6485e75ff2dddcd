//! Holds commands of a container back, on a node of a real cluster, in the node's own namespaces: `chainbreak held`. What it is told and what
//! it tells are JSON lines; when its standard input ends, all commands go on.
//!
//! The kernel asks it about every file that it holds before that is executed (fanotify's permission events, `FAN_OPEN_EXEC_PERM`). By which
//! of its names a file is to be executed, as iptables' has many, is read from who executes it, who waits in `execve`. Who is held is told to
//! stop (SIGSTOP), and then allowed: it stops as the new program, before its first instruction. A longer answer would hold its parent up, too:
//! Go starts one process at a time, and waits for each with a whole processor of its own until that executes something (`forkExec`, Go 1.26).
//!
//! So nothing is put into the container, and nothing is left there, unless a signal ends this: then who was held stays stopped.

mod executed;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    process::{self, ExitCode},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use chainbreak_engine::gate::is_called;
use chainbreak_model::agent::DIRECTORIES;
use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
    sys::{
        fanotify::{
            EventFFlags, Fanotify, FanotifyEvent, FanotifyResponse, InitFlags, MarkFlags,
            MaskFlags, Response,
        },
        signal::{Signal, kill},
    },
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use self::executed::{Unknown, executed, process_of};
use crate::agent::input_ended;

/// The verb of the program.
pub(crate) const VERB: &str = "held";
/// The first line that it reads. It ends with its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Order {
    /// The container's id.
    pub(crate) container: String,
    /// Without its folder; `iptables-restore` is that of both front ends.
    pub(crate) program: String,
    /// So many microseconds later its commands begin.
    pub(crate) by_us: u64,
}

/// The one line that it writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// From now on.
    Holds,
    /// Why it holds nothing.
    Cannot(String),
}

/// The program.
///
/// # Errors
/// Whoever ordered it cannot be heard or told.
pub fn main() -> io::Result<ExitCode> {
    let mut order = String::new();
    io::stdin().lock().read_line(&mut order)?;
    let order: Order = serde_json::from_str(&order)?;
    let by = Duration::from_micros(order.by_us);
    let begun =
        root_of(&order.container).and_then(|root| Holding::begin(root.as_fd(), order.program, by));
    let said = match &begun {
        Ok(_) => Said::Holds,
        Err(error) => Said::Cannot(error.to_string()),
    };
    let mut line = serde_json::to_string(&said)?;
    line.push('\n');
    io::stdout().write_all(line.as_bytes())?;
    let Ok(holding) = begun else {
        return Ok(ExitCode::FAILURE);
    };
    let held = Arc::clone(&holding.held);
    thread::spawn(move || {
        input_ended();
        end(&held)
    });
    let error = holding.answer();
    complain(&error);
    holding.held.missed.store(true, Ordering::Relaxed);
    end(&holding.held)
}

/// Ends this when nobody is held any more: with an error, if not all were held that had to be.
#[expect(clippy::exit, reason = "whoever wanted the commands held is gone")]
fn end(held: &Held) -> ! {
    let _nobody = held.let_all_go();
    process::exit(i32::from(held.missed.load(Ordering::Relaxed)))
}

fn complain(error: &dyn std::fmt::Display) {
    // Nobody may hear it.
    drop(writeln!(io::stderr(), "{error}"));
}

/// The root of a container that runs.
fn root_of(container: &str) -> io::Result<OwnedFd> {
    let of = |root: &Path| fs::metadata(root).map(|it| (it.dev(), it.ino()));
    let own = of(Path::new("/"))?;
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        let cgroup = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        // What is about to enter it still has the node's.
        if cgroup.contains(container)
            && of(&process.join("root")).is_ok_and(|root| root != own)
            && let Ok(root) = File::open(process.join("root"))
        {
            return Ok(root.into());
        }
    }
    Err(io::Error::other(format!("no process is in {container}")))
}

/// Who is held: processes that are stopped, and stay so as long as they are among them.
#[derive(Debug, Default)]
struct Held {
    threads: Mutex<BTreeSet<i32>>,
    changed: Condvar,
    /// Whether it is not known of all commands whether they had to be held.
    missed: AtomicBool,
}

impl Held {
    fn threads(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread, which waits to be allowed, stop as soon as it is.
    fn stop(&self, thread: i32) {
        let mut threads = self.threads();
        if kill(Pid::from_raw(thread), Signal::SIGSTOP).is_ok() {
            threads.insert(thread);
        }
    }

    /// Lets a thread go on when it is time, or sooner.
    fn go_on(&self, thread: i32, at: Option<Instant>) {
        let mut threads = self.threads();
        while let Some(left) = left(at)
            && threads.contains(&thread)
        {
            let waited = self.changed.wait_timeout(threads, left);
            threads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if threads.remove(&thread) {
            resume(thread);
        }
    }

    /// Nobody is held any more, and nobody will be as long as this is kept.
    fn let_all_go(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        let mut threads = self.threads();
        for thread in std::mem::take(&mut *threads) {
            resume(thread);
        }
        self.changed.notify_all();
        threads
    }
}

/// How long it is until then; of what is too far to be told, a day at a time.
fn left(at: Option<Instant>) -> Option<Duration> {
    let Some(at) = at else {
        return Some(Duration::from_secs(86_400));
    };
    let left = at.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

fn resume(thread: i32) {
    if let Err(error) = kill(Pid::from_raw(thread), Signal::SIGCONT) {
        tracing::debug!(%error, thread, "it was killed meanwhile");
    }
}

/// What holds.
struct Holding {
    kernel: Arc<Fanotify>,
    held: Arc<Held>,
    program: Arc<str>,
    by: Duration,
}

impl Holding {
    /// Has the kernel ask about every file of that name.
    fn begin(root: BorrowedFd<'_>, program: String, by: Duration) -> io::Result<Self> {
        let flags =
            InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_REPORT_TID;
        let files = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC;
        let kernel = Fanotify::init(flags, files).map_err(told)?;
        let before = MaskFlags::FAN_OPEN_EXEC_PERM;
        let mut found = false;
        for directory in DIRECTORIES {
            for name in names(&program) {
                if let Some(file) = open(root, &Path::new(directory).join(name))? {
                    let add = MarkFlags::FAN_MARK_ADD;
                    let marked = kernel.mark(add, before, &file, None::<&Path>);
                    marked.map_err(told)?;
                    found = true;
                }
            }
        }
        if !found {
            return Err(io::Error::other(format!("its container has no {program}")));
        }
        Ok(Self {
            kernel: Arc::new(kernel),
            held: Arc::default(),
            program: program.into(),
            by,
        })
    }

    /// Answers until that fails.
    fn answer(&self) -> io::Error {
        loop {
            let events = match self.kernel.read_events() {
                Ok(events) => events,
                Err(Errno::EINTR) => continue,
                Err(error) => return error.into(),
            };
            for event in events {
                self.answer_to(event);
            }
        }
    }

    /// Allows it, and holds it if it is one that is to be held.
    fn answer_to(&self, event: FanotifyEvent) {
        let at = Instant::now().checked_add(self.by);
        let (kernel, held) = (Arc::clone(&self.kernel), Arc::clone(&self.held));
        let (program, event) = (Arc::clone(&self.program), Arc::new(event));
        let asked = Arc::clone(&event);
        let answering = thread::Builder::new().spawn(move || {
            let thread = event.pid();
            let whose = match executed(thread, at) {
                Ok(name) if is_called(&program, &name) => process_of(thread).ok(),
                Ok(_) => None,
                Err(Unknown) => {
                    held.missed.store(true, Ordering::Relaxed);
                    None
                }
            };
            if let Some(process) = whose {
                held.stop(process);
            }
            allow(&kernel, &event);
            if let Some(process) = whose {
                held.go_on(process, at);
            }
        });
        if let Err(error) = answering {
            self.held.missed.store(true, Ordering::Relaxed);
            allow(&self.kernel, &asked);
            complain(&error);
        }
    }
}

/// A file below a root, whatever its links say; `None` where there is none.
fn open(root: BorrowedFd<'_>, path: &Path) -> io::Result<Option<OwnedFd>> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    loop {
        return match openat2(root, path, how) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            // Somebody renames or mounts meanwhile.
            Err(Errno::EAGAIN) => continue,
            Err(error) => Err(told(error)),
        };
    }
}

/// The names of a program: its own, and those of either front end of iptables.
fn names(program: &str) -> [String; 3] {
    let of = |front_end: &str| match program.split_once("tables") {
        Some((family, form)) => format!("{family}tables-{front_end}{form}"),
        None => format!("{program}-{front_end}"),
    };
    [program.to_owned(), of("legacy"), of("nft")]
}

fn allow(kernel: &Fanotify, event: &FanotifyEvent) {
    let Some(file) = event.fd() else { return };
    let response = FanotifyResponse::new(file, Response::FAN_ALLOW);
    if let Err(error) = kernel.write_response(response) {
        // Who asked was killed meanwhile.
        tracing::debug!(%error, "nobody waits for the answer");
    }
}

/// What a person can do about it.
fn told(error: Errno) -> io::Error {
    let why = match error {
        Errno::EINVAL | Errno::ENOSYS => {
            "the node's kernel does not ask before it executes a file: it takes CONFIG_FANOTIFY_ACCESS_PERMISSIONS and Linux 5.7"
        }
        Errno::EPERM => "it takes root in the machine's own user namespace",
        _ => return error.into(),
    };
    io::Error::other(format!("{why} ({error})"))
}

#[cfg(test)]
mod tests;
