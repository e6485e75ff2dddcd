//! eBPF for a world's nodes, where its person allows it: no right outside, but BPF tokens (Linux 6.9 and later) of file systems to which
//! stage 1, which alone has the rights, delegates what programs of a network need. They are loaded and attached in the world:
//! to its links, and to the cgroup of its node. What reads the kernel's memory, as tracing does, is not.
//!
//! A [`broker`] has the token. Each node has a `/sys/fs/bpf` of its own, and its cgroup at `/sys/fs/cgroup`. A worker that wants one asks stage 1 to make the
//! file system that it has opened in the world's user namespace. All of it ends with the world.

mod attributes;
mod broker;
pub(crate) mod calls;
mod notify;

use std::{
    ffi::{CStr, CString},
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{filter, own_root::Beside};
use crate::error::{LabError, tolerate};

/// Where a node has its own.
const BPF: &str = "/sys/fs/bpf";
/// The cgroup of a node, and where Felix wants it (felix/bpf/utils, `CgroupV2Path`).
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/run/calico/cgroup"];
/// Where the world's cgroup is for a moment.
const WHOLE: &str = "/run/chainbreak/cgroup";

/// What is delegated, as sets of numbers of linux/bpf.h. Commands: `BPF_MAP_CREATE`, `BPF_PROG_LOAD`, `BPF_BTF_LOAD`.
const COMMANDS: [u32; 3] = [0, 5, 18];
/// Programs: socket filters, of tc, XDP, and those of cgroups and sockets that are about packets and addresses.
const PROGRAMS: [u32; 14] = [1, 3, 4, 6, 8, 9, 13, 14, 16, 18, 21, 22, 25, 30];

/// A file system that stage 1 makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bpf,
    Cgroups,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Bpf, Self::Cgroups];

    fn name(self) -> &'static CStr {
        match self {
            Self::Bpf => c"bpf",
            Self::Cgroups => c"cgroup2",
        }
    }

    /// What it is called in a message.
    fn letter(self) -> u8 {
        self.name().to_bytes()[0]
    }
}

/// The way to stage 1, in a worker whose world may load programs.
static STAGE_ONE: OnceLock<Mutex<Beside>> = OnceLock::new();

/// In a worker: it may ask from now on.
pub(super) fn offer(stage_one: Beside) {
    drop(STAGE_ONE.set(Mutex::new(stage_one)));
}

/// In stage 1: makes the file systems that the worker asks for, until that ends. Without a cgroup of the world's own none is
/// shown.
pub(super) fn serve(worker: &mut Beside, has_group: bool) -> Result<(), LabError> {
    while let Some((letter, descriptor)) = worker.receive() {
        let opened = calls::received(descriptor);
        let kind = Kind::ALL.into_iter().find(|kind| kind.letter() == letter);
        let made = match kind {
            Some(Kind::Bpf) => delegate(&opened),
            Some(Kind::Cgroups) if has_group => calls::create(&opened),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        worker.say(made.is_ok())?;
    }
    Ok(())
}

fn delegate(opened: &OwnedFd) -> io::Result<()> {
    let options = [
        (c"delegate_cmds", set_of(&COMMANDS)),
        (c"delegate_maps", "any".to_owned()),
        (c"delegate_progs", set_of(&PROGRAMS)),
        (c"delegate_attachs", "any".to_owned()),
    ];
    for (option, value) in options {
        calls::set(opened, option, &CString::new(value)?)?;
    }
    calls::create(opened)
}

fn set_of(numbers: &[u32]) -> String {
    let set = numbers.iter().fold(0_u64, |set, number| set | 1 << number);
    format!("{set:#x}")
}

/// For the calling thread, which has the mounts, `/run` and `/sys` of the node of this name: its eBPF file system, and its cgroup.
/// Nothing where no programs may be loaded.
pub(crate) fn mount_for(node: &str) -> io::Result<()> {
    let Some(stage_one) = STAGE_ONE.get() else {
        return Ok(());
    };
    let mut stage_one = stage_one.lock().unwrap_or_else(PoisonError::into_inner);
    make(&mut stage_one, Kind::Bpf, BPF)?;
    fs::create_dir_all(WHOLE)?;
    tolerate("show a node its cgroup", group(&mut stage_one, node));
    drop(stage_one);
    broker::lend(calls::token(&File::open(BPF)?)?)
}

/// For the calling thread, whose place is no node: nothing loads programs there.
pub(crate) fn none_here() -> io::Result<()> {
    if STAGE_ONE.get().is_some() {
        filter::refuse_programs()?;
    }
    Ok(())
}

fn group(stage_one: &mut Beside, node: &str) -> io::Result<()> {
    make(stage_one, Kind::Cgroups, WHOLE)?;
    let own = Path::new(WHOLE).join(node);
    let none: Option<&str> = None;
    let shown = fs::create_dir_all(&own).and_then(|()| {
        GROUPS.iter().try_for_each(|at| {
            fs::create_dir_all(at)?;
            Ok(mount(Some(&own), *at, none, MsFlags::MS_BIND, none)?)
        })
    });
    umount2(WHOLE, MntFlags::MNT_DETACH)?;
    shown
}

/// Opens a file system in the world's user namespace, has stage 1 make it, and mounts it.
fn make(stage_one: &mut Beside, kind: Kind, at: &str) -> io::Result<()> {
    let opened = calls::open(kind.name())?;
    if !stage_one.ask(kind.letter(), &opened)? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    calls::mount(&opened, &CString::new(at)?)
}

/// Moves a process that the calling thread has started into the cgroup of its node.
pub(crate) fn adopt(process: Option<u32>) {
    if let (Some(process), Some(_)) = (process, STAGE_ONE.get()) {
        let procs = Path::new(GROUPS[0]).join("cgroup.procs");
        tolerate("move a process", fs::write(procs, process.to_string()));
    }
}

/// Tries it, in a world that nobody needs afterwards.
pub(crate) fn attempt() -> Result<(), String> {
    if STAGE_ONE.get().is_none() {
        return Err("only root may let a world load eBPF programs".to_owned());
    }
    let tried = mount_for("survey").and_then(|()| calls::load());
    tried.map_err(|error| {
        format!("no program can be loaded by a BPF token, which takes Linux 6.9: {error}")
    })
}
