//! Who runs a worker.

#![expect(clippy::unwrap_used, reason = "this is a part of tests, which may")]

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
};

use tempfile::TempDir;

/// Who runs a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// Whoever runs the tests.
    Myself,
    /// Somebody without rights: `nobody`, when the tests are run by root.
    Ordinary,
}

/// Copies a program, and writes a script that runs the copy without rights. A child does it: what a process of tests has open for
/// writing is open, too, in whatever another test starts meanwhile, and a program that anybody writes to cannot be run.
const AS_NOBODY: &str = r#"
    cp "$1" "$2"
    printf '#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups %s "$@"\n' "$2" > "$3"
    chmod 755 "$2" "$3"
"#;

impl User {
    /// The worker's program as that user can start it. Cargo's folders may be closed to others: then it is
    /// a copy, behind a script that gives up the rights.
    pub(crate) fn program(self, program: &str) -> (PathBuf, Option<TempDir>) {
        if self == Self::Myself || !nix::unistd::geteuid().is_root() {
            return (program.into(), None);
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let (copy, script) = (
            folder.path().join("worker"),
            folder.path().join("as-nobody"),
        );
        let made = Command::new("sh")
            .args(["-ec", AS_NOBODY, "sh", program])
            .args([&copy, &script])
            .status();
        assert!(made.unwrap().success());
        (script, Some(folder))
    }
}
