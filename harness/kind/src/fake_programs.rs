//! Programs of a folder that are found before this machine's, for tests of scripts.

use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// Puts one there.
pub(crate) fn put(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, script).expect("it can be written");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it can be run");
}

/// The `PATH` with which they are found.
pub(crate) fn path(folder: &Path) -> String {
    let others = env::var("PATH").expect("a PATH");
    format!("{}:{others}", folder.display())
}
