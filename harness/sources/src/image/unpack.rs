//! Layers become a root file system. A layer is gone through three times: what describes entries is measured before anything reads it
//! into memory; then entries are judged, and what the layer hides of those below it is taken away; then they are written. So a
//! hostile layer is refused before its first file is there, and what it hides is never its own.
//!
//! Everything belongs to who unpacks, and setuid and setgid bits are dropped. Links are kept as they are, wherever they lead: nothing
//! here follows one out of the root.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Permissions},
    io::{self, Read, Seek},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Component, Path, PathBuf},
};

use tar::{Archive, Entry, EntryType, PaxExtensions};
use tokio_util::sync::CancellationToken;

use super::{
    limits::{Excess, Left},
    root::Root,
};

/// What the name of a whiteout begins with: it hides what has the rest of it.
const WHITEOUT: &str = ".wh.";
/// Hides all that lower layers have in its folder. Other names that begin like it are aufs's own affair.
const OPAQUE: &str = ".wh..wh..opq";
/// The most that a long name or extended attributes of an entry take.
const EXTENSION: u64 = 1 << 20;
/// So many bytes are written before anybody looks whether they are still wanted.
const PART: u64 = 1 << 24;

/// Why a layer is not unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayerError {
    /// Somebody means harm.
    #[error("entry {entry:?} {why}: what does so is hostile, or broken, and is not unpacked")]
    Hostile { entry: PathBuf, why: &'static str },
    /// A bomb.
    #[error("{0}: that is no image of an agent")]
    TooMuch(Excess),
    /// Its compression.
    #[error("it cannot be decompressed ({0}): it is not what it says")]
    Folded(io::Error),
    /// Its archive.
    #[error("it is no whole tar archive ({0})")]
    Archive(io::Error),
    /// The archive of it.
    #[error("could not keep its archive: {0}")]
    Write(io::Error),
    /// One of its entries.
    #[error("could not unpack entry {entry:?}: {source}")]
    Entry { entry: PathBuf, source: io::Error },
    /// Nobody wants it any more.
    #[error("nobody waits for it any more")]
    Stopped,
}

impl LayerError {
    fn hostile(entry: &Path, why: &'static str) -> Self {
        let entry = entry.to_owned();
        Self::Hostile { entry, why }
    }

    fn entry(entry: &Path) -> impl FnOnce(io::Error) -> Self {
        let entry = entry.to_owned();
        move |source| Self::Entry { entry, source }
    }
}

/// What unpacks the layers of one image, the lowest first.
#[derive(Debug)]
pub(crate) struct Unpacker {
    pub(crate) root: Root,
    pub(crate) left: Left,
    pub(crate) stop: CancellationToken,
}

/// What an entry says, judged.
struct Named {
    /// As the archive has it.
    written: PathBuf,
    /// Its folder in the root.
    folder: PathBuf,
    name: OsString,
}

impl Unpacker {
    /// Unpacks one more layer. Not to be gone on with after an error.
    pub(crate) fn layer(&mut self, mut archive: impl Read + Seek) -> Result<(), LayerError> {
        measure(&mut archive)?;
        each(&mut archive, |entry| self.judge(entry))?;
        each(&mut archive, |entry| self.write(entry))
    }

    /// Refuses what no layer should have, and takes away what lower layers have and this one hides.
    fn judge(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), LayerError> {
        if self.stop.is_cancelled() {
            return Err(LayerError::Stopped);
        }
        self.left.take_entry().map_err(LayerError::TooMuch)?;
        let Some(named) = named(entry)? else {
            return Ok(());
        };
        let Named {
            written,
            folder,
            name,
        } = &named;
        let hostile = |why| Err(LayerError::hostile(written, why));
        match entry.header().entry_type() {
            EntryType::Char | EntryType::Block => return hostile("is a device"),
            EntryType::Fifo => return hostile("is a pipe"),
            EntryType::Link => drop(target(entry, written)?),
            EntryType::Regular
            | EntryType::Continuous
            | EntryType::Directory
            | EntryType::Symlink => {}
            _ => return hostile("is of no kind that an image has"),
        }
        let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT.as_bytes()) else {
            return Ok(());
        };
        if matches!(hidden, b"" | b"." | b"..") {
            return hostile("hides its own folder");
        }
        let folder = match self.root.folder(folder) {
            Err(error) if is_nowhere(&error) => return Ok(()),
            folder => folder.map_err(LayerError::entry(written))?,
        };
        let hidden = match name {
            name if name == OPAQUE => folder.names().map_err(LayerError::entry(written))?,
            _ => vec![OsStr::from_bytes(hidden).to_owned()],
        };
        let mut removed = hidden.iter().map(|name| folder.remove(name));
        let removed = removed.try_for_each(|it| it);
        removed.map_err(LayerError::entry(written))
    }

    fn write(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<(), LayerError> {
        if self.stop.is_cancelled() {
            return Err(LayerError::Stopped);
        }
        let named = named(entry)?;
        let Some(named) = named.filter(|it| !it.name.as_bytes().starts_with(WHITEOUT.as_bytes()))
        else {
            return Ok(());
        };
        let put = self.put(&named, entry);
        put.map_err(LayerError::entry(&named.written))
    }

    /// Puts an entry in its place, whatever was there.
    fn put(&self, named: &Named, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
        let folder = self.root.make(&named.folder)?;
        let name = &named.name;
        let mode = entry.header().mode()?;
        let kind = entry.header().entry_type();
        // Old archives know a folder by its name alone.
        if kind == EntryType::Directory || entry.path_bytes().ends_with(b"/") {
            if !folder.has_folder(name) {
                folder.remove(name)?;
                self.root.make_in(&folder, name)?;
            }
            // Who unpacks has to be able to go on, and to remove it.
            return folder.set_mode(name, mode & 0o1777 | 0o700);
        }
        if kind == EntryType::Link {
            let target = entry.link_name()?.unwrap_or_default();
            let (target_folder, target) = split(&target).ok_or(io::ErrorKind::InvalidInput)?;
            let from = self.root.folder(&target_folder)?;
            return folder.hard_link(name, &from, &target);
        }
        folder.remove(name)?;
        if kind == EntryType::Symlink {
            let target = entry.link_name()?.unwrap_or_default();
            return folder.symlink(name, &target);
        }
        let mut file = folder.create(name)?;
        self.copy(entry, &mut file)?;
        file.set_permissions(Permissions::from_mode(mode & 0o777 | 0o600))
    }

    /// All that an entry says it has, or it is an error.
    fn copy(&self, entry: &mut Entry<'_, impl Read>, file: &mut File) -> io::Result<()> {
        let mut missing = entry.size();
        while missing > 0 {
            if self.stop.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let copied = io::copy(&mut Read::by_ref(entry).take(PART), file)?;
            if copied == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            missing = missing.saturating_sub(copied);
        }
        Ok(())
    }
}

/// Refuses descriptions of entries that nobody needs that large, and what makes the readers of an archive disagree on where an entry
/// ends.
fn measure(archive: &mut (impl Read + Seek)) -> Result<(), LayerError> {
    archive.rewind().map_err(LayerError::Archive)?;
    let mut archive = Archive::new(archive);
    let entries = archive.entries_with_seek().map_err(LayerError::Archive)?;
    for entry in entries.raw(true) {
        let mut entry = entry.map_err(LayerError::Archive)?;
        let kind = entry.header().entry_type();
        let path = entry.path().map_err(LayerError::Archive)?.into_owned();
        let describes = kind.is_gnu_longname()
            || kind.is_gnu_longlink()
            || kind.is_pax_local_extensions()
            || kind.is_pax_global_extensions();
        if kind.is_gnu_sparse() {
            return Err(LayerError::hostile(&path, "has holes"));
        }
        if describes && entry.size() > EXTENSION {
            return Err(LayerError::hostile(
                &path,
                "describes another one at length",
            ));
        }
        if kind.is_pax_local_extensions() {
            let mut text = Vec::new();
            entry.read_to_end(&mut text).map_err(LayerError::Archive)?;
            let mut said = PaxExtensions::new(&text).flatten();
            if said.any(|it| it.key_bytes() == b"size") {
                return Err(LayerError::hostile(
                    &path,
                    "gives another one a second size",
                ));
            }
        }
    }
    Ok(())
}

/// Goes through an archive from its begin.
fn each<R: Read + Seek>(
    archive: &mut R,
    mut with: impl FnMut(&mut Entry<'_, &mut R>) -> Result<(), LayerError>,
) -> Result<(), LayerError> {
    archive.rewind().map_err(LayerError::Archive)?;
    let mut archive = Archive::new(archive);
    for entry in archive.entries_with_seek().map_err(LayerError::Archive)? {
        with(&mut entry.map_err(LayerError::Archive)?)?;
    }
    Ok(())
}

/// Where an entry belongs; `None` for the root itself and what describes no file.
fn named(entry: &Entry<'_, impl Read>) -> Result<Option<Named>, LayerError> {
    if entry.header().entry_type().is_pax_global_extensions() {
        return Ok(None);
    }
    let written = entry.path().map_err(LayerError::Archive)?.into_owned();
    inside(&written).map_err(|why| LayerError::hostile(&written, why))?;
    Ok(split(&written).map(|(folder, name)| Named {
        written,
        folder,
        name,
    }))
}

/// What a hard link leads to.
fn target(entry: &Entry<'_, impl Read>, written: &Path) -> Result<PathBuf, LayerError> {
    let target = entry.link_name().map_err(LayerError::Archive)?;
    let target = target.unwrap_or_default().into_owned();
    inside(&target).map_err(|_out| LayerError::hostile(written, "is a link to a file outside"))?;
    Ok(target)
}

/// Whether a path stays where it begins.
fn inside(path: &Path) -> Result<(), &'static str> {
    for part in path.components() {
        match part {
            Component::ParentDir => return Err("leads outside, by `..`"),
            Component::RootDir | Component::Prefix(_) => {
                return Err("begins at the root of the machine");
            }
            Component::CurDir | Component::Normal(_) => {}
        }
    }
    Ok(())
}

/// The folder and the name of a path, without the dots in it; `None` for the root.
fn split(path: &Path) -> Option<(PathBuf, OsString)> {
    let parts = path.components();
    let plain: PathBuf = parts.filter(|it| *it != Component::CurDir).collect();
    let name = plain.file_name()?.to_owned();
    Some((plain.parent()?.to_owned(), name))
}

fn is_nowhere(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}
