//! Compressed archives: those of bundles, a tar of ordinary files in one folder, and what people attach. There is a bound on what goes in and on
//! what comes out.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use chainbreak_model::input;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
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
/// What a compressed file begins with.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

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

/// Whether a file is compressed by gzip, as bundles are.
pub(crate) fn is_one(path: &Path) -> bool {
    let mut begin = [0; 2];
    let read = input::open(path, u64::MAX).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == MAGIC
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

/// The files in somebody else's compressed archive with their names there, those of them that are wanted; of a file that was compressed by itself
/// there is that one, and its name is empty. All of them have together at most so many bytes. Links and whatever else is no file are left out.
pub(crate) fn files(
    file: &Path,
    most: u64,
    is_wanted: &mut dyn FnMut(&Path) -> bool,
) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut source = MultiGzDecoder::new(input::open(file, UNPACKED)?).take(UNPACKED);
    let mut begin = Vec::new();
    source.by_ref().take(BLOCK).read_to_end(&mut begin)?;
    let is_tar = begin.get(TAR.0..TAR.0 + TAR.1.len()) == Some(TAR.1);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut pack = Pack::begin(1);
        for (path, contents) in files {
            assert!(pack.add(Path::new(path), contents, 0).unwrap(), "{path}");
        }
        pack.end().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> Result<tempfile::TempDir, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it.tgz");
        fs::write(&file, bytes).unwrap();
        let inside = folder.path().join("in");
        fs::create_dir(&inside).unwrap();
        unpack(&file, &inside).map_err(|error| error.to_string())?;
        Ok(folder)
    }

    /// One entry, of any kind.
    fn hostile(path: &str, kind: EntryType) -> Vec<u8> {
        let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(1);
        header.set_cksum();
        tar.append(&header, &b"x"[..]).unwrap();
        tar.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn what_is_packed_comes_out_again_and_twice_is_the_same() {
        let files: [(&str, &[u8]); 2] = [("run.jsonl", b"{}\n"), ("a_case/events.jsonl", b"")];
        let bytes = packed(&files);
        assert_eq!(bytes, packed(&files));
        let folder = unpacked(&bytes).unwrap();
        for (path, contents) in files {
            let read = fs::read(folder.path().join("in").join(path)).unwrap();
            assert_eq!(read, contents, "{path}");
        }
    }

    #[test]
    fn what_has_no_room_stays_out() {
        let mut pack = Pack::begin(1);
        let mut state = 1_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_be_bytes()[0]
        })
        .take(usize::try_from(MOST).unwrap() + 1)
        .collect();
        assert!(!pack.add(Path::new("noise"), &noise, 0).unwrap());
        assert!(!pack.add(Path::new("small"), b"x", MOST).unwrap());
        assert!(pack.add(Path::new("small"), b"x", 0).unwrap());
        let folder = unpacked(&pack.end().unwrap()).unwrap();
        assert!(!folder.path().join("in/noise").exists());
    }

    #[test]
    fn entries_that_lead_out_of_their_folder_or_are_no_files_are_refused() {
        for (path, kind, why) in [
            ("/etc/passwd", EntryType::Regular, "is not in its folder"),
            ("bundle/../x", EntryType::Regular, "is not in its folder"),
            ("elsewhere/x", EntryType::Regular, "is not in its folder"),
            ("bundle/link", EntryType::Symlink, "is no ordinary file"),
            ("bundle/hard", EntryType::Link, "is no ordinary file"),
            ("bundle/long", EntryType::GNULongName, "is no ordinary file"),
            ("bundle/dev", EntryType::Char, "is no ordinary file"),
        ] {
            let refused = unpacked(&hostile(path, kind)).unwrap_err();
            assert!(refused.contains(why), "{path}: {refused}");
        }
        let twice = packed(&[("x", b"1"), ("x", b"2")]);
        assert!(unpacked(&twice).unwrap_err().contains("File exists"));
    }

    #[test]
    fn what_people_attach_is_read_in_memory_whether_it_is_an_archive_or_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.tgz");
        let read = |bytes: Vec<u8>, most| {
            fs::write(&file, bytes).unwrap();
            let mut is_wanted = |path: &Path| !path.ends_with("unread");
            files(&file, most, &mut is_wanted).map_err(|why| why.to_string())
        };
        let unread: &[u8] = &[b'x'; 5000];
        let packed = packed(&[
            ("rules", b"*nat\nCOMMIT\n"),
            ("unread", unread),
            ("deep/er", b"x"),
        ]);
        let names = ["bundle/rules", "bundle/deep/er"].map(PathBuf::from);
        let found = read(packed.clone(), 1 << 20).unwrap();
        assert_eq!(found[0], (names[0].clone(), b"*nat\nCOMMIT\n".to_vec()));
        assert_eq!(found[1], (names[1].clone(), b"x".to_vec()));
        assert_eq!(found.len(), 2);
        assert_eq!(read(packed.clone(), 600).unwrap(), found);
        assert!(read(packed, 10).unwrap_err().contains("more than 10 bytes"));
        let large = self::packed(&[("rules", unread)]);
        let why = read(large, 600).unwrap_err();
        assert!(why.contains("more than 600 bytes"), "{why}");
        let mut one = GzEncoder::new(Vec::new(), Compression::fast());
        one.write_all(b"*nat\nCOMMIT\n").unwrap();
        let found = read(one.finish().unwrap(), 1 << 20).unwrap();
        assert_eq!(found, [(PathBuf::new(), b"*nat\nCOMMIT\n".to_vec())]);
        assert!(
            read(hostile("bundle/link", EntryType::Symlink), 1 << 20)
                .unwrap()
                .is_empty()
        );
        assert!(read(b"\x1f\x8bnothing".to_vec(), 1 << 20).is_err());
    }

    #[test]
    fn a_long_name_is_read_from_its_own_entry_and_one_that_no_file_has_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.tgz");
        let read = |name: &str| {
            let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
            let mut header = Header::new_gnu();
            header.set_size(1);
            tar.append_data(&mut header, name, &b"x"[..]).unwrap();
            fs::write(&file, tar.into_inner().unwrap().finish().unwrap()).unwrap();
            files(&file, 1 << 20, &mut |_| true).map_err(|why| why.to_string())
        };
        let long = ["nodes", &"n".repeat(150), "ip-route.txt"].join("/");
        let found = read(&long).unwrap();
        assert_eq!(found, [(PathBuf::from(&long), b"x".to_vec())]);
        let longer = "n/".repeat(40_000);
        assert!(read(&longer).unwrap_err().contains("more than 65536 bytes"));
    }

    #[test]
    fn what_is_cut_or_no_archive_is_no_bundle() {
        let bytes = packed(&[("run.jsonl", &[b'x'; 4000])]);
        for part in [&bytes[..bytes.len() / 2], b"\x1f\x8bnothing", b""] {
            let why = unpacked(part).unwrap_err();
            assert!(why.contains("is no bundle"), "{why}");
        }
    }
}
