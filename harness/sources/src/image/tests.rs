//! Layers made in memory, as good ones and as hostile ones are, and what becomes of them in a folder that stands in another one.

mod hostile;
mod layers;
mod property;

use std::{
    collections::BTreeMap,
    fs,
    io::Cursor,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::Path,
};

use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    limits::{Left, Limits},
    root::Root,
    unpack::{LayerError, Unpacker},
};

/// An entry of an archive, whatever it says.
#[derive(Debug, Clone)]
pub(super) struct Written {
    kind: EntryType,
    path: String,
    target: String,
    mode: u32,
    data: Vec<u8>,
}

pub(super) fn written(kind: EntryType, path: &str, target: &str, data: &[u8]) -> Written {
    Written {
        kind,
        path: path.to_owned(),
        target: target.to_owned(),
        mode: 0o755,
        data: data.to_owned(),
    }
}

pub(super) fn file(path: &str, data: &str) -> Written {
    written(EntryType::Regular, path, "", data.as_bytes())
}

pub(super) fn folder(path: &str) -> Written {
    written(EntryType::Directory, path, "", b"")
}

pub(super) fn symlink(path: &str, target: &str) -> Written {
    written(EntryType::Symlink, path, target, b"")
}

pub(super) fn hard_link(path: &str, target: &str) -> Written {
    written(EntryType::Link, path, target, b"")
}

/// An archive of these, in this order. Names are written as they are, which no library does that means well.
pub(super) fn archive(entries: &[Written]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        let mut header = Header::new_ustar();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_size(entry.data.len() as u64);
        let old = header.as_old_mut();
        old.name[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
        old.linkname[..entry.target.len()].copy_from_slice(entry.target.as_bytes());
        header.set_cksum();
        builder.append(&header, &*entry.data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A root, with things beside it that are none of its business.
pub(super) struct Ground(TempDir);

/// What tests allow: little.
pub(super) const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    entries: 100,
    ratio: 10,
    slack: 1 << 18,
    depth: 10,
};

impl Ground {
    pub(super) fn new() -> Self {
        let ground = Self(tempfile::tempdir().unwrap());
        fs::create_dir(ground.root()).unwrap();
        fs::create_dir(ground.0.path().join("beside")).unwrap();
        fs::write(ground.0.path().join("beside/secret"), "theirs").unwrap();
        ground
    }

    pub(super) fn root(&self) -> std::path::PathBuf {
        self.0.path().join("root")
    }

    pub(super) fn unpack(&self, layers: &[Vec<Written>]) -> Result<(), LayerError> {
        let archives: Vec<Vec<u8>> = layers.iter().map(|layer| archive(layer)).collect();
        self.unpack_archives(&archives)
    }

    pub(super) fn unpack_archives(&self, archives: &[Vec<u8>]) -> Result<(), LayerError> {
        let mut unpacker = Unpacker {
            root: Root::at(&self.root(), LIMITS.depth).unwrap(),
            left: Left::of(LIMITS),
            stop: CancellationToken::new(),
        };
        let mut layers = archives.iter().map(Cursor::new);
        layers.try_for_each(|layer| unpacker.layer(layer))
    }

    /// What is in the root.
    pub(super) fn tree(&self) -> BTreeMap<String, String> {
        tree(&self.root())
    }

    /// What is beside it.
    pub(super) fn outside(&self) -> BTreeMap<String, String> {
        let mut all = tree(self.0.path());
        all.retain(|path, _| !path.starts_with("root/"));
        all
    }
}

/// Every path below a folder, with what is there, no link followed.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            let what = if metadata.is_dir() {
                folders.push(path.clone());
                format!("folder {mode:o}")
            } else if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                let data = fs::read(&path).unwrap();
                format!("file {mode:o} {}", String::from_utf8_lossy(&data))
            };
            let name = path.strip_prefix(folder).unwrap();
            let name = String::from_utf8_lossy(name.as_os_str().as_bytes());
            found.insert(name.into_owned(), what);
        }
    }
    found
}
