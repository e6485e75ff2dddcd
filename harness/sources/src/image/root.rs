//! The folder that a root file system grows in. Every path is looked up by the kernel as a program in that root would see it, so no
//! link and no `..` leads out of it; and what stands at the end of a path is never followed.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::Mode,
};

/// The kernel gives up on `..` in a link while anybody renames a folder anywhere (openat2(2)).
const TRIES: usize = 1000;

/// The root.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
    /// How deep folders may lie in it.
    depth: usize,
}

impl Root {
    /// That folder, which is there.
    pub(crate) fn at(path: &Path, depth: usize) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self {
            folder: open(path, flags, Mode::empty())?,
            depth,
        })
    }

    /// A folder in it that is there.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<Folder> {
        self.open(path, OFlag::O_PATH | OFlag::O_DIRECTORY)
            .map(Folder)
    }

    /// A folder in it, made where it is not there.
    pub(crate) fn make(&self, path: &Path) -> io::Result<Folder> {
        match self.folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut reached = PathBuf::from(".");
        let mut folder = self.folder(&reached)?;
        for name in path {
            reached.push(name);
            folder = match self.folder(&reached) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.make_in(&folder, name)?;
                    self.folder(&reached)?
                }
                found => found?,
            };
        }
        Ok(folder)
    }

    /// A fresh folder in a folder of it.
    pub(crate) fn make_in(&self, folder: &Folder, name: &OsStr) -> io::Result<()> {
        // A tree that is too deep cannot be removed any more.
        let depth = folder.real()?.components().count() - real(&self.folder)?.components().count();
        if depth >= self.depth {
            let why = format!("more than {} folders deep", self.depth);
            return Err(io::Error::other(why));
        }
        fs::create_dir(folder.at(name))
    }

    /// A file in it, at the end of all links, with its path in the root. Not a pipe or the like, which would be waited for.
    pub(crate) fn file(&self, path: &Path) -> io::Result<(File, PathBuf)> {
        let found = File::from(self.open(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
        if !found.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let at = real(&found)?;
        let inside = at.strip_prefix(real(&self.folder)?);
        let inside = inside.map_err(io::Error::other)?.to_owned();
        Ok((found, inside))
    }

    fn open(&self, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let path = Path::new(".").join(path);
        let tries = (0..TRIES).map(|_| openat2(&self.folder, &path, how));
        let mut settled = tries.skip_while(|tried| matches!(tried, Err(Errno::EAGAIN)));
        Ok(settled.next().unwrap_or(Err(Errno::EAGAIN))?)
    }
}

/// A folder of the root, whatever becomes of the path that led to it.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// The path of what has that name in it: no link leads elsewhere on the way there. It holds for as long as this does.
    fn at(&self, name: &OsStr) -> PathBuf {
        held(&self.0).join(name)
    }

    /// What is in it.
    pub(crate) fn names(&self) -> io::Result<Vec<std::ffi::OsString>> {
        let entries = fs::read_dir(held(&self.0))?;
        entries
            .map(|entry| entry.map(|it| it.file_name()))
            .collect()
    }

    /// Takes away what has that name, if anything has, and all that is in it.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        let at = self.at(name);
        let removed = match fs::symlink_metadata(&at) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(at),
            Ok(_) => fs::remove_file(at),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether a folder has that name, and not a link to one.
    pub(crate) fn has_folder(&self, name: &OsStr) -> bool {
        fs::symlink_metadata(self.at(name)).is_ok_and(|found| found.is_dir())
    }

    /// A fresh file.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(self.at(name))
    }

    /// A link, whatever it leads to.
    pub(crate) fn symlink(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        symlink(target, self.at(name))
    }

    /// Another name, in place of what has it, for what is in a folder; of a link for the link.
    pub(crate) fn hard_link(&self, name: &OsStr, from: &Self, target: &OsStr) -> io::Result<()> {
        let (at, target) = (self.at(name), from.at(target));
        let id = |path: &Path| fs::symlink_metadata(path).map(|it| (it.dev(), it.ino()));
        let file = id(&target)?;
        if id(&at).is_ok_and(|there| there == file) {
            return Ok(());
        }
        self.remove(name)?;
        fs::hard_link(target, at)
    }

    /// Sets the mode of a folder in it.
    pub(crate) fn set_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(self.at(name))?;
        folder.set_permissions(Permissions::from_mode(mode))
    }

    fn real(&self) -> io::Result<PathBuf> {
        real(&self.0)
    }
}

/// A path to what is open, as proc(5) has it.
fn held(open: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_raw_fd()).into()
}

/// Where what is open lies, without a link.
fn real(open: &impl AsRawFd) -> io::Result<PathBuf> {
    fs::read_link(held(open))
}
