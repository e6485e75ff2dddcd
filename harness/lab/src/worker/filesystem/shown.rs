//! What a world shows of the machine at its very place, though something else gets mounted over that.

use std::{
    fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::symlink,
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open},
    sys::stat::Mode,
};

use super::{bind_read_only, failed, make_dir};
use crate::error::{LabError, tolerate};

/// A file or directory, held by its inode until it is put back.
pub(super) struct Held {
    what: OwnedFd,
    directory: bool,
    /// Where it is.
    real: PathBuf,
    /// How it is called; leads to `real`.
    given: PathBuf,
}

impl Held {
    /// `None` for what is not there or not to be reached: whoever uses the path says what is wrong. Also
    /// for `/`, which is shown anyway.
    pub(super) fn hold(path: &Path) -> Option<Self> {
        let real = fs::canonicalize(path).ok()?;
        real.parent()?;
        let what = open(&real, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
        Some(Self {
            what,
            directory: real.is_dir(),
            real,
            given: path.to_owned(),
        })
    }

    /// Shows it at its path, read-only. To be called while its mount is still in the namespace.
    pub(super) fn put(&self) -> Result<(), LabError> {
        self.make_place()?;
        let held = format!("/proc/self/fd/{}", self.what.as_raw_fd());
        bind_read_only(Path::new(&held), &self.real)?;
        if fs::canonicalize(&self.given).ok().as_ref() != Some(&self.real) {
            tolerate("make the folder of a link", make_parent(&self.given));
            tolerate("link what is shown", symlink(&self.real, &self.given));
        }
        Ok(())
    }

    fn make_place(&self) -> Result<(), LabError> {
        if self.real.exists() {
            return Ok(());
        }
        if self.directory {
            return make_dir(&self.real);
        }
        make_parent(&self.real)?;
        fs::File::create(&self.real)
            .map(drop)
            .map_err(failed("make", &self.real))
    }
}

fn make_parent(path: &Path) -> Result<(), LabError> {
    path.parent().map_or(Ok(()), make_dir)
}
