//! What a world's processes are denied.
//!
//! The kernel lets a process look into another one (`/proc/PID/fd`, `mem`, `root`) only when it has every capability that the
//! other has. The worker has one that nothing in a place has: what it says to its parent is its own.

#![expect(
    unsafe_code,
    reason = "close_range has no safe form; it touches no memory"
)]

use std::io;

use caps::{CapSet, Capability, CapsHashSet};

use crate::error::LabError;

/// Raw devices, modules, the clock, device nodes and what the processors do are the machine's.
const MACHINE: [Capability; 5] = [
    Capability::CAP_SYS_MODULE,
    Capability::CAP_SYS_RAWIO,
    Capability::CAP_SYS_TIME,
    Capability::CAP_MKNOD,
    Capability::CAP_PERFMON,
];

/// Closes whatever the caller of this program left open beside the standard streams: a world must not have it.
pub fn close_inherited() -> Result<(), LabError> {
    let all = libc::c_uint::MAX;
    // By its number: musl has no function for it.
    // SAFETY: to be called before anything is opened, so that no descriptor has an owner.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, all, 0) } {
        0 => Ok(()),
        _ => Err(LabError::isolate("close what was left open")(
            io::Error::last_os_error(),
        )),
    }
}

/// What the calling thread starts from now on never has the rights over the machine.
pub(super) fn lose_machine() -> Result<(), LabError> {
    MACHINE
        .into_iter()
        .try_for_each(|right| lose(CapSet::Bounding, right))
}

/// The calling thread keeps what it takes to load programs of networks for others.
pub(super) fn keep_loading() -> Result<(), LabError> {
    let kept = CapsHashSet::from([
        Capability::CAP_BPF,
        Capability::CAP_NET_ADMIN,
        Capability::CAP_PERFMON,
        Capability::CAP_SYS_PTRACE,
    ]);
    let sets = [CapSet::Effective, CapSet::Permitted].into_iter();
    let mut set = sets.map(|set| caps::set(None, set, &kept).map_err(io::Error::other));
    set.try_for_each(|lost| lost.map_err(LabError::isolate("give up capabilities")))
}

/// What the calling thread starts from now on, threads and processes, cannot look into the worker: each program that is started
/// lacks the worker's right to look into others, root's too.
pub(crate) fn lose_sight_of_worker() -> Result<(), LabError> {
    lose(CapSet::Bounding, Capability::CAP_SYS_PTRACE)
}

fn lose(set: CapSet, right: Capability) -> Result<(), LabError> {
    let lost = caps::drop(None, set, right).map_err(io::Error::other);
    lost.map_err(LabError::isolate("give up capabilities"))
}
