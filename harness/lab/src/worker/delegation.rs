//! eBPF for a world's nodes, where its person allows it: no right outside, but BPF tokens (Linux 6.9 and later) of file systems to which
//! [stage 1](stage_one), which alone has the rights, delegates what programs of a network need. They are loaded and attached in the
//! world: to its links, and to the cgroup of its node. What reads the kernel's memory, as tracing does, is not.
//!
//! Each node has a `/sys/fs/bpf` of its own, and its cgroup at `/sys/fs/cgroup`. A [`broker`] has its token. A worker that wants a file
//! system asks stage 1 to make the one that it has opened in the world's user namespace. All of it ends with the world.

mod attributes;
mod broker;
pub(crate) mod calls;
mod helpers;
mod notify;
mod stage_one;

use std::{
    ffi::CString,
    fs::{self, File},
    io,
    path::Path,
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use self::stage_one::Kind;
pub(super) use self::stage_one::{offer, serve};
use super::filter;
use crate::error::tolerate;

/// What is delegated: `BPF_MAP_CREATE`, `BPF_PROG_LOAD`, `BPF_BTF_LOAD` of linux/bpf.h.
const COMMANDS: [u32; 3] = [0, 5, 18];
/// Where a node has its own.
pub(crate) const BPF: &str = "/sys/fs/bpf";
/// The cgroup of a node, and where Felix wants it (felix/bpf/utils, `CgroupV2Path`).
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/run/calico/cgroup"];
/// Where the world's cgroup is for a moment.
const WHOLE: &str = "/run/chainbreak/cgroup";

/// For the calling thread, which has the mounts, `/run` and `/sys` of the node of this name: its eBPF file system, and its cgroup.
/// Nothing where no programs may be loaded.
pub(crate) fn mount_for(node: &str) -> io::Result<()> {
    if !stage_one::is_there() {
        return Ok(());
    }
    make(Kind::Bpf, BPF)?;
    fs::create_dir_all(WHOLE)?;
    tolerate("show a node its cgroup", group(node));
    broker::lend(calls::token(&File::open(BPF)?)?)
}

/// For the calling thread, whose place is no node: nothing loads programs there.
pub(crate) fn none_here() -> io::Result<()> {
    if stage_one::is_there() {
        filter::refuse_programs()?;
    }
    Ok(())
}

fn group(node: &str) -> io::Result<()> {
    make(Kind::Cgroups, WHOLE)?;
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
fn make(kind: Kind, at: &str) -> io::Result<()> {
    let opened = calls::open(kind.name())?;
    stage_one::make(kind, &opened)?;
    calls::mount(&opened, &CString::new(at)?)
}

/// Moves a process that the calling thread has started into the cgroup of its node.
pub(crate) fn adopt(process: Option<u32>) {
    if let Some(process) = process
        && stage_one::is_there()
    {
        let procs = Path::new(GROUPS[0]).join("cgroup.procs");
        tolerate("move a process", fs::write(procs, process.to_string()));
    }
}

/// Tries it, in a world that nobody needs afterwards.
pub(crate) fn attempt() -> Result<(), String> {
    if !stage_one::is_there() {
        return Err("only root may let a world load eBPF programs".to_owned());
    }
    let tried = mount_for("survey").and_then(|()| calls::load());
    tried.map_err(|error| {
        format!("no program can be loaded by a BPF token, which takes Linux 6.9: {error}")
    })
}
