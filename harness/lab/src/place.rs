//! A place (node, pod, off-cluster host) is a thread that lives in namespaces of its own and runs what
//! is sent to it. Sockets opened there belong to the place, and so do the processes and threads
//! started from there. When the thread and all these are gone, so is the place.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::Path,
    process::Stdio,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use nix::{
    sched::{CloneFlags, setns, unshare},
    unistd::{gettid, sethostname},
};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

use crate::{
    error::LabError,
    worker::{
        delegation,
        filesystem::{fresh_run, sys},
        rights::lose_sight_of_worker,
    },
};

/// Enough for a closure that starts a process or opens a socket; seventy nodes have many places.
const STACK: usize = 256 * 1024;

/// What a place has of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// The network and a name: pods and off-cluster hosts.
    Network,
    /// Also `/run` (hence its own xtables lock) and a matching `/sys`: nodes.
    NetworkAndFiles,
}

type Task = Box<dyn FnOnce() + Send>;

/// A place's thread. Dropping it ends the thread after the closures sent so far.
#[derive(Debug)]
pub struct PlaceThread {
    name: String,
    tid: i32,
    tasks: mpsc::Sender<Task>,
}

impl PlaceThread {
    /// Makes a place. Called from another place's thread, it begins with that one's files.
    pub fn start(name: &str, own: Own) -> Result<Self, LabError> {
        let failed = |what| {
            let place = name.to_owned();
            move |source| LabError::Place {
                place,
                what,
                source,
            }
        };
        let (tasks, queue) = mpsc::channel::<Task>();
        let (report, ready) = mpsc::channel();
        let hostname = name.rsplit('/').next().unwrap_or(name).to_owned();
        let thread: io::Result<JoinHandle<()>> = thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK)
            .spawn(move || {
                let made = isolate(&hostname, own).map(|()| gettid().as_raw());
                let lives = made.is_ok();
                // Whoever made the place waits for this.
                drop(report.send(made));
                if lives {
                    for task in queue {
                        task();
                    }
                }
            });
        thread.map_err(failed("start its thread"))?;
        let made = ready
            .recv()
            .map_err(|_gone| io::ErrorKind::BrokenPipe.into());
        let tid = made.map_err(failed("start its thread"))??;
        Ok(Self {
            name: name.to_owned(),
            tid,
            tasks,
        })
    }

    /// Runs a closure in the place. It should be quick: others wait behind it.
    ///
    /// # Panics
    /// When an earlier closure panicked: the place is gone then.
    pub async fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = oneshot::channel();
        // A caller that was dropped wants no answer.
        let task: Task = Box::new(move || drop(answer.send(f())));
        self.tasks.send(task).expect("the place's thread lives");
        answered.await.expect("the place's closures do not panic")
    }

    /// Starts a process in the place, all three standard streams piped unless said otherwise by
    /// `prepare`. It is killed when the child is dropped, and has a process group of its own.
    pub async fn spawn<S: AsRef<OsStr>>(
        &self,
        argv: &[S],
        prepare: impl FnOnce(&mut Command) + Send + 'static,
    ) -> io::Result<Child> {
        let mut command = command(argv)?;
        prepare(&mut command);
        let runtime = Handle::current();
        self.run(move || {
            let _runtime = runtime.enter();
            command
                .spawn()
                .inspect(|child| delegation::adopt(child.id()))
        })
        .await
    }

    /// Starts a process of the worker's own in the place's network and cgroup, otherwise as [`PlaceThread::spawn`] does: nothing
    /// in a place can look into it, or say what it did not say, but what is attached to the cgroup translates what it asks.
    pub async fn spawn_witness<S: AsRef<OsStr>>(&self, argv: &[S]) -> io::Result<Child> {
        let mut command = command(argv)?;
        let network = File::open(format!("/proc/self/task/{}/ns/net", self.tid))?;
        let runtime = Handle::current();
        let (answer, answered) = oneshot::channel();
        // A thread of its own, as it stays in the place's network; none of the place's, as those lack the rights.
        let visit = move || {
            let entered = setns(network, CloneFlags::CLONE_NEWNET);
            let _runtime = runtime.enter();
            let started = entered.map_err(Into::into).and_then(|()| command.spawn());
            drop(answer.send(started));
        };
        thread::Builder::new().stack_size(STACK).spawn(visit)?;
        let child = answered
            .await
            .map_err(|_gone| io::Error::from(io::ErrorKind::BrokenPipe))??;
        let process = child.id();
        self.run(move || delegation::adopt(process)).await;
        Ok(child)
    }

    /// The thread's id in the world: by it `ip` finds the network namespace.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The name, `node/n1`, `pod/test/web`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn command<S: AsRef<OsStr>>(argv: &[S]) -> io::Result<Command> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

fn isolate(hostname: &str, own: Own) -> Result<(), LabError> {
    let failed = |what| {
        let place = hostname.to_owned();
        move |source| LabError::Place {
            place,
            what,
            source,
        }
    };
    let mut flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS;
    if own == Own::NetworkAndFiles {
        flags |= CloneFlags::CLONE_NEWNS;
    }
    unshare(flags)
        .map_err(io::Error::from)
        .map_err(failed("make its namespaces"))?;
    sethostname(hostname)
        .map_err(io::Error::from)
        .map_err(failed("name it"))?;
    if own == Own::NetworkAndFiles {
        sys(Path::new("/sys"))?;
        fresh_run()?;
        fs::create_dir("/run/lock").map_err(failed("make its lock directory"))?;
        delegation::mount_for(hostname).map_err(failed("let it load eBPF programs"))?;
    } else {
        delegation::none_here().map_err(failed("let it load no eBPF programs"))?;
    }
    settings()?;
    lose_sight_of_worker()
}

/// What every network namespace of a world has in common, whatever the machine's defaults are.
fn settings() -> Result<(), LabError> {
    // Where a case has IPv6 it is switched on (`families.rs`): elsewhere each link would send neighbor discovery for nobody.
    for scope in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        if Path::new(&path).exists() {
            set(&path, "1")?;
        }
        // A new namespace copies the machine's choice, which distributions differ in.
        set(&format!("/proc/sys/net/ipv4/conf/{scope}/rp_filter"), "0")?;
    }
    Ok(())
}

/// Writes a kernel setting of the calling thread's network namespace.
pub(crate) fn set(path: &str, value: &str) -> Result<(), LabError> {
    fs::write(path, value).map_err(|source| LabError::Sysctl {
        path: path.into(),
        value: value.to_owned(),
        source,
    })
}
