//! Files that somebody else wrote. Each is opened once and must be a regular file, of which no more is read than it says to
//! hold: a FIFO would hang, a device never end, and what `/proc` shows holds nothing by its own word.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Take},
    os::unix::fs::OpenOptionsExt,
    path::{Component, Path},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
};

/// To open a FIFO must not wait for its writer, nor a terminal become ours.
const FLAGS: OFlag = OFlag::O_NONBLOCK
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// Opens a file of at most so many bytes. It may be a link.
pub fn open(path: &Path, most: u64) -> io::Result<Take<File>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(FLAGS.bits());
    bounded(options.open(path)?, most)
}

/// All of a file of at most so many bytes. It may be a link.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, most)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file of at most so many bytes below a folder. No part of its path is a link.
pub fn open_below(folder: &Path, path: &Path, most: u64) -> io::Result<Take<File>> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new().flags(FLAGS).resolve(resolve);
    let opened = openat2(File::open(folder)?, path, how).map_err(|why| match why {
        Errno::ELOOP => io::Error::other("it is a link, or behind one"),
        Errno::EXDEV => io::Error::other("it is outside its folder"),
        why => io::Error::from(why),
    });
    bounded(File::from(opened?), most)
}

/// Whether a path is relative and leads nowhere but down.
pub fn is_plain(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a path from a folder leads out of it, by its own words or by a link.
pub fn leads_out(folder: &Path, path: &Path) -> bool {
    let is_down = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let folder = match folder {
        here if here == Path::new("") => Path::new("."),
        folder => folder,
    };
    let below = match (folder.canonicalize(), folder.join(path).canonicalize()) {
        (Ok(folder), Ok(path)) => path.starts_with(folder),
        // Nothing is there to be read.
        _ => true,
    };
    !(below && path.components().all(is_down))
}

fn bounded(file: File, most: u64) -> io::Result<Take<File>> {
    let held = file.metadata()?;
    if !held.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let bytes = held.len();
    if bytes > most {
        let words = format!("it has {bytes} bytes, and at most {most} are read");
        return Err(io::Error::other(words));
    }
    Ok(file.take(bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn why(opened: io::Result<Take<File>>) -> String {
        opened.unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_regular_file_or_too_large_is_not_read() {
        let folder = Path::new("/");
        assert_eq!(
            why(open(Path::new("/dev/zero"), 9)),
            "it is no regular file"
        );
        assert_eq!(why(open(folder, 9)), "it is no regular file");
        let device = Path::new("dev/zero");
        assert_eq!(why(open_below(folder, device, 9)), "it is no regular file");
        let program = std::env::current_exe().unwrap();
        let refused = why(open(&program, 9));
        assert!(
            refused.ends_with("bytes, and at most 9 are read"),
            "{refused}"
        );
        assert_eq!(read(Path::new("/proc/version"), 9).unwrap(), b"");
    }

    #[test]
    fn a_fifo_is_refused_at_once() {
        let folder = std::env::temp_dir().join(format!("chainbreak-fifo-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let fifo = folder.join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let refused = why(open(&fifo, 9));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(refused, "it is no regular file");
    }

    #[test]
    fn below_a_folder_no_part_of_a_path_is_a_link() {
        let folder = std::env::temp_dir().join(format!("chainbreak-below-{}", std::process::id()));
        fs::create_dir_all(folder.join("real")).unwrap();
        fs::write(folder.join("real/file"), "text").unwrap();
        symlink("real", folder.join("link")).unwrap();
        symlink("real/file", folder.join("linked")).unwrap();
        let below = |path: &str| open_below(&folder, Path::new(path), 9);
        let mut text = String::new();
        below("real/file")
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        let refused = ["link/file", "linked", "../etc/passwd"].map(|path| why(below(path)));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(text, "text");
        let link = "it is a link, or behind one";
        assert_eq!(refused, [link, link, "it is outside its folder"]);
    }

    #[test]
    fn a_plain_path_leads_down() {
        let plain = ["a", "a/b.log"].map(|path| is_plain(Path::new(path)));
        assert_eq!(plain, [true; 2]);
        let others = ["", "/a", "../a", "a/../b", "."].map(|path| is_plain(Path::new(path)));
        assert_eq!(others, [false; 5]);
    }
}
