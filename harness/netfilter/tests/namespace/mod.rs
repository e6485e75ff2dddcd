//! A network namespace of a test's own.

use std::{os::unix::fs::MetadataExt, process::Command};

use tempfile::NamedTempFile;

/// `unshare`, which runs a program in a fresh network namespace: as root, or as an ordinary user in a user namespace. The
/// lock file is one that an ordinary user may write; nobody else is in the namespace.
pub(crate) fn unshare() -> (Command, NamedTempFile) {
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let lock = NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new("unshare");
    command
        .arg(if root { "-n" } else { "-Urn" })
        .env("XTABLES_LOCKFILE", lock.path());
    (command, lock)
}
