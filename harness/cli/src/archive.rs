//! Archives: those of bundles, a compressed tar of ordinary files in one folder, and what people attach. There is a bound on what goes in and on
//! what comes out.

#[cfg(test)]
mod tests;

use std::{
    ffi::OsStr,
    fs,
    io::{self, Cursor, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use chainbreak_model::input;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use lzma_rust2::XzReader;
use tar::{Archive, Builder, EntryType, Header, PaxExtensions};

use crate::cases::invalid;

/// So long is a bundle at most: what trackers of issues take.
pub(crate) const MOST: u64 = 20_000_000;
/// What is in it has one folder.
const FOLDER: &str = "bundle";
/// So much is unpacked at most, and so many files: a run of ten thousand cases has less.
const UNPACKED: u64 = 4 << 30;
const FILES: usize = 100_000;
/// A name in an entry of its own is no longer, in bytes.
const LONGEST: u64 = 64 << 10;
/// A header has 512 bytes, most of them 0.
const HEADER: u64 = 256;
/// A tar's block.
const BLOCK: u64 = 512;
/// What a tar has at that place.
const TAR: (usize, &[u8]) = (257, b"ustar");
/// What a file begins with that gzip compressed, or xz, as `sos report` does.
const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = b"\xfd7zXZ\0";
/// What xz may take to unpack, in KiB: `xz -9`, which most do without, takes 64 MiB.
const XZ_MEMORY: u32 = 256 << 10;

/// A bundle that is being written.
pub(crate) struct Pack {
    tar: Builder<GzEncoder<Vec<u8>>>,
    /// When all that is in it was made, by its word: two bundles of a run are the same.
    made: u64,
    /// No more than it takes, compressed: each file for itself.
    size: u64,
}

impl Pack {
    /// Of a run that began then, in seconds since 1970.
    pub(crate) fn begin(made: u64) -> Self {
        Self {
            tar: Builder::new(GzEncoder::new(Vec::new(), Compression::default())),
            made,
            size: 0,
        }
    }

    /// Adds a file; false where that would leave less room than what still has to go in.
    pub(crate) fn add(&mut self, path: &Path, contents: &[u8], room: u64) -> anyhow::Result<bool> {
        let size = self.size + compressed(contents)?;
        if size + room > MOST {
            return Ok(false);
        }
        self.size = size;
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(self.made);
        header.set_size(contents.len() as u64);
        self.tar
            .append_data(&mut header, Path::new(FOLDER).join(path), contents)
            .with_context(|| format!("could not pack {}", path.display()))?;
        Ok(true)
    }

    /// All of it.
    pub(crate) fn end(self) -> anyhow::Result<Vec<u8>> {
        Ok(self.tar.into_inner()?.finish()?)
    }
}

/// What a file takes, with its header.
pub(crate) fn compressed(contents: &[u8]) -> io::Result<u64> {
    let mut file = GzEncoder::new(Counted(0), Compression::default());
    file.write_all(contents)?;
    Ok(file.finish()?.0 + HEADER)
}

struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a file is compressed by gzip, as bundles are, or by xz, or a tar.
pub(crate) fn is_one(path: &Path) -> bool {
    let begin = input::open(path, u64::MAX).and_then(|mut file| begin(&mut file));
    begin.is_ok_and(|begin| {
        let is_compressed = [GZIP, XZ].iter().any(|magic| begin.starts_with(magic));
        is_compressed || is_tar(&begin)
    })
}

/// What would be the header of a tar, or as much as there is.
fn begin(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    source.take(BLOCK).read_to_end(&mut begin)?;
    Ok(begin)
}

fn is_tar(begin: &[u8]) -> bool {
    begin.get(TAR.0..TAR.0 + TAR.1.len()) == Some(TAR.1)
}

/// What is in a file that may be compressed.
fn plain(path: &Path) -> io::Result<Box<dyn Read>> {
    let mut file = input::open(path, UNPACKED)?;
    let begin = begin(&mut file)?;
    let (by_gzip, by_xz) = (begin.starts_with(GZIP), begin.starts_with(XZ));
    let whole = Cursor::new(begin).chain(file);
    Ok(if by_gzip {
        Box::new(MultiGzDecoder::new(whole))
    } else if by_xz {
        Box::new(XzReader::new_mem_limit(whole, true, XZ_MEMORY))
    } else {
        Box::new(whole)
    })
}

/// Unpacks somebody else's into a folder that is empty.
pub(crate) fn unpack(file: &Path, folder: &Path) -> anyhow::Result<()> {
    let is_none =
        |why: &dyn std::fmt::Display| invalid(format!("{} is no bundle: {why}", file.display()));
    let source = input::open(file, MOST * 2).map_err(|why| is_none(&why))?;
    let mut archive = Archive::new(MultiGzDecoder::new(source).take(UNPACKED));
    // As they are written: no entry says in another one what it is called.
    let entries = archive.entries().map_err(|why| is_none(&why))?.raw(true);
    let mut files = 0;
    for entry in entries {
        let mut entry = entry.map_err(|why| is_none(&why))?;
        let path = entry.path().map_err(|why| is_none(&why))?.into_owned();
        let target = inside(&path, entry.header().entry_type()).map_err(|why| is_none(&why))?;
        files += 1;
        if files > FILES {
            return Err(is_none(&format!("it has more than {FILES} files")));
        }
        let target = folder.join(target);
        write(&mut entry, &target).map_err(|why| is_none(&format!("{}: {why}", path.display())))?;
    }
    Ok(())
}

/// The files in somebody else's archive with their names there, those of them that are wanted; of a file that was compressed by itself
/// there is that one, and its name is empty. All of them have together at most so many bytes. Links and whatever else is no file are left out.
pub(crate) fn files(
    file: &Path,
    most: u64,
    is_wanted: &mut dyn FnMut(&Path) -> bool,
) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut source = plain(file)?.take(UNPACKED);
    let begin = begin(&mut source)?;
    let is_tar = is_tar(&begin);
    let mut source = begin.as_slice().chain(source);
    let mut left = most;
    let mut files = Vec::new();
    if !is_tar {
        if is_wanted(Path::new("")) {
            files.push((PathBuf::new(), bounded(&mut source, &mut left, most)?));
        }
        return Ok(files);
    }
    // As they are written: a name that stands in an entry of its own is read by us, no more of it than names have.
    let mut name = None;
    for (entry, number) in Archive::new(source).entries()?.raw(true).zip(1..) {
        let mut entry = entry?;
        let mut room = LONGEST;
        if number > FILES {
            return Err(io::Error::other(format!("it has more than {FILES} files")));
        }
        match entry.header().entry_type() {
            EntryType::GNULongName => {
                let text = bounded(&mut entry, &mut room, LONGEST)?;
                name = Some(path_of(
                    text.split(|byte| *byte == 0).next().unwrap_or_default(),
                ));
            }
            EntryType::XHeader => {
                let text = bounded(&mut entry, &mut room, LONGEST)?;
                let mut said = PaxExtensions::new(&text).filter_map(Result::ok);
                let said = said.find(|it| it.key_bytes() == b"path");
                name = said.map(|it| path_of(it.value_bytes()));
            }
            EntryType::Regular => {
                let path = match name.take() {
                    Some(name) => name,
                    None => entry.path()?.into_owned(),
                };
                if is_wanted(&path) {
                    files.push((path, bounded(&mut entry, &mut left, most)?));
                }
            }
            _ => name = None,
        }
    }
    Ok(files)
}

/// All of it, where that is no more than is left.
fn bounded(source: &mut dyn Read, left: &mut u64, most: u64) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    let length = source.take(*left + 1).read_to_end(&mut contents)? as u64;
    let rest = left.checked_sub(length);
    *left =
        rest.ok_or_else(|| io::Error::other(format!("it unpacks to more than {most} bytes")))?;
    Ok(contents)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Where an entry goes, below the folder.
fn inside(path: &Path, kind: EntryType) -> Result<PathBuf, String> {
    let shown = path.display();
    if kind != EntryType::Regular {
        return Err(format!("{shown} is no ordinary file"));
    }
    let below = path.strip_prefix(FOLDER).ok();
    let below = below.filter(|below| input::is_plain(below));
    let below = below.ok_or_else(|| format!("{shown} is not in its folder {FOLDER}"))?;
    Ok(below.to_owned())
}

fn write(entry: &mut impl Read, target: &Path) -> io::Result<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    io::copy(entry, &mut fs::File::create_new(target)?).map(drop)
}
