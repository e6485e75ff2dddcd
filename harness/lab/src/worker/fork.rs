//! The two calls of this crate that the compiler cannot check: `fork`, and changing the environment.
//! Both are sound only while the process has one thread, which [`super::enter`] promises.

#![expect(
    unsafe_code,
    reason = "fork and set_var have no safe form; both run before any second thread exists"
)]

use std::io;

use nix::unistd::{ForkResult, Pid};

/// The child's id in the parent, `None` in the child. To be called with one thread only.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the process has a single thread (checked by `assert_single_thread`), so no lock can be
    // held by a thread that the child lacks.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Sets a variable of the own environment. To be called with one thread only.
pub(super) fn set_var(name: &str, value: &str) {
    // SAFETY: as above, no other thread reads the environment.
    unsafe { std::env::set_var(name, value) }
}

/// Panics when a second thread exists: the caller's bug, and one that would hurt only sometimes.
pub(super) fn assert_single_thread() {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    assert!(
        threads.as_ref().is_ok_and(|&count| count == 1),
        "worker::enter must run before any thread is started: {threads:?}"
    );
}
