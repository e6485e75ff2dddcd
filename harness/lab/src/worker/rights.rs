//! What a world's processes are denied, in calls that the compiler cannot check.
//!
//! The kernel lets a process look into another one (`/proc/PID/fd`, `mem`, `root`) only when it has every capability that the
//! other has. The worker has one that nothing in a place has: what it says to its parent is its own.

#![expect(
    unsafe_code,
    reason = "close_range and the bounding set have no safe form; neither touches memory"
)]

use std::io;

use crate::error::LabError;

/// To look into other processes; the worker's own, and its probes'.
const CAP_SYS_PTRACE: libc::c_ulong = 19;
/// Raw devices, modules, the clock and device nodes are the machine's; the kernel's memory, too, which eBPF programs could read.
const MACHINE: [libc::c_ulong; 5] = [
    16, // CAP_SYS_MODULE
    17, // CAP_SYS_RAWIO
    25, // CAP_SYS_TIME
    27, // CAP_MKNOD
    38, // CAP_PERFMON
];

/// Closes whatever the caller of this program left open beside the standard streams: a world must not have it.
pub fn close_inherited() -> Result<(), LabError> {
    let all = libc::c_uint::MAX;
    // SAFETY: to be called before anything is opened, so that no descriptor has an owner.
    match unsafe { libc::close_range(3, all, 0) } {
        0 => Ok(()),
        _ => Err(LabError::isolate("close what was left open")(
            io::Error::last_os_error(),
        )),
    }
}

/// What the calling thread starts from now on never has the rights over the machine.
pub(super) fn lose_machine() -> Result<(), LabError> {
    MACHINE.into_iter().try_for_each(lose)
}

/// What the calling thread starts from now on, threads and processes, cannot look into the worker.
pub(crate) fn lose_sight_of_worker() -> Result<(), LabError> {
    lose(CAP_SYS_PTRACE)
}

/// Takes a capability out of the bounding set: each program that is started from then on lacks it, root's too.
fn lose(capability: libc::c_ulong) -> Result<(), LabError> {
    // SAFETY: it changes the calling thread's credentials and takes no pointer.
    let lost = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    match lost {
        0 => Ok(()),
        _ => Err(LabError::isolate("give up capabilities")(
            io::Error::last_os_error(),
        )),
    }
}
