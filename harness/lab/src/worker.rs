//! One case, one worker process, one world.
//!
//! ```text
//! parent (chainbreak run)            holds the worker's standard input: the lifeline
//! └ stage 1                          new PID namespace, and a user namespace unless root; a cgroup; waits
//!   └ PID 1 of the world             its files, then a user namespace with mounts, network, IPC, UTS; reaps; dies with stage 1
//!     └ the worker                   everything else: API server, agents, engine
//! ```
//!
//! Whichever of the four is killed, at whatever moment, the kernel takes the rest along: the parent's
//! death ends the lifeline, stage 1's death is PID 1's, and PID 1's death is everybody's. The world's
//! namespaces and mounts have no name outside, so that they end with its last process.

pub(crate) mod delegation;
pub(crate) mod filesystem;
mod filter;
mod fork;
pub(crate) mod group;
mod lifeline;
mod own_root;
pub(crate) mod rights;
mod spawn;
mod terminal;

use std::{ffi::OsStr, fs::File, io, path::PathBuf};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    sched::{CloneFlags, unshare},
    sys::{
        prctl::{set_dumpable, set_pdeathsig},
        resource::{Resource, getrlimit, setrlimit},
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::{Pid, dup2_stdin, dup2_stdout},
};
use serde::Serialize;

pub use lifeline::Lifeline;
pub use rights::close_inherited;
pub(crate) use spawn::ask;
pub use spawn::{Worker, spawn_other, spawn_worker};

use self::{
    group::Group,
    own_root::{Maker, beside, isolate_processes},
};
use crate::{agents::identity, error::LabError, survey};

/// The verb with which the binary is started as a worker.
pub const VERB: &str = "worker";

/// The variable of a worker's environment by which its processes are known outside: no two workers have it in common.
pub(crate) const TOKEN: &str = "CHAINBREAK_WORLD";

/// Where commands are looked for in a world: the place's own front first (a node's iptables).
pub(crate) const PATH: &str =
    "/run/chainbreak/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a world is beside a world.
#[derive(Debug, Clone, Default)]
pub struct WorldOptions {
    /// Absolute paths of the machine that it shows wherever they lie.
    pub show: Vec<PathBuf>,
    /// Programs in it may load eBPF programs, if root makes it.
    pub ebpf: bool,
}

/// Says [`WorldOptions::ebpf`] on the command line of a worker.
const EBPF: &str = "--allow-ebpf";

impl WorldOptions {
    /// As a worker's command line says them after its verb.
    pub fn from_arguments<S: AsRef<OsStr>>(arguments: &[S]) -> Self {
        let paths = arguments.iter().map(AsRef::as_ref);
        let (ebpf, show) = paths.partition::<Vec<&OsStr>, _>(|argument| *argument == EBPF);
        Self {
            show: show.into_iter().map(PathBuf::from).collect(),
            ebpf: !ebpf.is_empty(),
        }
    }

    fn arguments(&self) -> Vec<&OsStr> {
        let ebpf = self.ebpf.then_some(OsStr::new(EBPF)).into_iter();
        ebpf.chain(self.show.iter().map(|path| path.as_os_str()))
            .collect()
    }
}

/// Makes this process the worker of a new world. To be called before any thread or runtime exists.
///
/// Returns in the worker only. The two processes between it and the caller's parent end with the
/// worker's exit status (128 + n for signal n). An error is returned in the one process in which it
/// occurred, whose caller says it and ends with a status of its own.
pub fn enter(options: &WorldOptions) -> Result<Lifeline, LabError> {
    fork::assert_single_thread();
    close_inherited()?;
    keep_protocol()?;
    let maker = isolate_processes()?;
    let ebpf = options.ebpf && maker == Maker::Root;
    let group = Group::make();
    let (mut stage_one, mut first) = beside()?;
    if let Some(child) =
        fork::fork().map_err(LabError::isolate("start the world's first process"))?
    {
        drop(first);
        if let Some(group) = &group {
            group.take(child);
        }
        stage_one.tell()?;
        stage_one.give_ids(child)?;
        if ebpf {
            delegation::serve(&mut stage_one, group.is_some())?;
        }
        let status = ended(child, Reap::Only);
        if let Some(group) = group {
            group.end();
        }
        exit(status)
    }
    drop(stage_one);
    set_pdeathsig(Signal::SIGKILL).map_err(LabError::isolate("tie the world to its parent"))?;
    // If it was killed before that, there is nobody to wait for.
    first.wait()?;
    // No process of a world has a terminal, so none can type into it.
    terminal::leave().map_err(LabError::isolate("leave the terminal"))?;
    isolate_files()?;
    filesystem::enter(&options.show)?;
    first.become_own_root()?;
    fork::set_var("PATH", PATH);
    fork::set_var("LC_ALL", "C");
    rights::lose_machine()?;
    filter::install(ebpf)?;
    if let Some(child) = fork::fork().map_err(LabError::isolate("start the worker"))? {
        drop(first);
        forget_protocol()?;
        exit(ended(child, Reap::Everybody))
    }
    if maker == Maker::Root {
        // An ordinary user's `shell` looks into a world by the user's own rights, which end here.
        set_dumpable(false).map_err(LabError::isolate("close the worker to others"))?;
    }
    if ebpf {
        delegation::offer(first);
    }
    let lifeline = Lifeline::grasp()?;
    let order = lifeline.first.trim();
    if order == survey::ORDER {
        report(&survey::try_all())
    }
    if let Some(question) = order.strip_prefix(identity::ORDER) {
        rights::lose_sight_of_worker()?;
        report(&identity::answer(question))
    }
    Ok(lifeline)
}

/// Says what was found and ends: whoever asked has no use for the world.
fn report(found: &impl Serialize) -> ! {
    let said = serde_json::to_writer(io::stdout(), found);
    #[expect(clippy::exit, reason = "a worker that answered is done")]
    std::process::exit(i32::from(said.is_err()))
}

/// Standard input and output are what parent and worker say to each other. No program that is started gets them.
fn keep_protocol() -> Result<(), LabError> {
    let own = || FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC);
    let kept = fcntl(io::stdin(), own()).and_then(|_| fcntl(io::stdout(), own()));
    kept.map(drop)
        .map_err(LabError::isolate("keep the parent's words to itself"))
}

/// The world's first process has no part in it.
fn forget_protocol() -> Result<(), LabError> {
    let nothing = File::options().read(true).write(true).open("/dev/null");
    let nothing = nothing.map_err(LabError::isolate("open /dev/null"))?;
    let forgotten = dup2_stdin(&nothing).and_then(|()| dup2_stdout(&nothing));
    forgotten.map_err(LabError::isolate("let go of the parent's words"))
}

/// What the world's file system is put together in. The network is nobody's, and there for its /sys.
fn isolate_files() -> Result<(), LabError> {
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWCGROUP;
    unshare(flags).map_err(LabError::isolate("make mount and network namespaces"))?;
    // Seventy nodes with two agents each are some thousand sockets and pipes.
    let (_, most) =
        getrlimit(Resource::RLIMIT_NOFILE).map_err(LabError::isolate("read the file limit"))?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
        .map_err(LabError::isolate("raise the file limit"))
}

/// Whose death a stage takes note of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reap {
    /// The one child's.
    Only,
    /// Every orphan's too: the duty of a PID 1.
    Everybody,
}

/// Waits for the child, and returns the exit status that says how it ended.
fn ended(child: Pid, reap: Reap) -> i32 {
    let whom = match reap {
        Reap::Only => child,
        Reap::Everybody => Pid::from_raw(-1),
    };
    loop {
        match waitpid(whom, None) {
            Ok(WaitStatus::Exited(pid, status)) if pid == child => return status,
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => return 128 + signal as i32,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 1,
        }
    }
}

#[expect(clippy::exit, reason = "a stage is nothing but its child's status")]
fn exit(status: i32) -> ! {
    std::process::exit(status)
}
