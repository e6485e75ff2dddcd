//! Who runs a worker.

#![expect(clippy::unwrap_used, reason = "this is a part of tests, which may")]

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
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

/// Copies a program and those that it is told of, and writes a script that runs the copy without rights. A child does it: what a process
/// of tests has open for writing is open, too, in whatever another test starts meanwhile, and a program that anybody writes to cannot be run.
const AS_NOBODY: &str = r#"
    program=$1 folder=$2
    shift 2
    cp "$program" "$folder/worker"
    {
        echo '#!/bin/sh'
        for other; do
            name=${other%%=*}
            cp "${other#*=}" "$folder/$name"
            echo "export $name=$folder/$name"
        done
        echo "exec setpriv --reuid 65534 --regid 65534 --clear-groups $folder/worker \"\$@\""
    } > "$folder/as-nobody"
    chmod 755 "$folder"/*
"#;

impl User {
    /// The worker's program as that user can start it. Cargo's folders may be closed to others: then it is a copy, behind a script that
    /// gives up the rights. `told` are the variables that name other programs to the worker: copies, too, then.
    pub(crate) fn program(
        self,
        program: &str,
        told: &[(&str, &Path)],
    ) -> (PathBuf, Option<TempDir>) {
        if self == Self::Myself || !nix::unistd::geteuid().is_root() {
            return (program.into(), None);
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let others = told
            .iter()
            .map(|(name, path)| format!("{name}={}", path.display()));
        let made = Command::new("sh")
            .args(["-ec", AS_NOBODY, "sh", program])
            .arg(folder.path())
            .args(others)
            .status();
        assert!(made.unwrap().success());
        (folder.path().join("as-nobody"), Some(folder))
    }
}
