//! What people attach of a node: files and folders, those in compressed archives among them.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::Result;
use chainbreak_model::input;
use chainbreak_netfilter::dumps::Dumps;
use chainbreak_report::text::count;

use crate::{archive, cases::invalid};

/// The most that is read of all files, in bytes: 100,000 rules are some 20 MB.
const MOST: u64 = 256 << 20;
/// The most files of a folder, its folders' included.
const MOST_FILES: usize = 50_000;
/// So many that are left out are named: a support bundle has thousands of them.
const NAMED: usize = 20;
/// How deep folders are looked into.
const DEPTH: usize = 12;

/// What is made of a file's text: whether anything in it is known.
pub(crate) type Take<'a> = dyn FnMut(&Path, &str) -> Result<bool> + 'a;

/// Hands over the text of every file that is named or lies in a folder; how many had something that is known. Of the others it is said that
/// they are left out: the first by their names, what support bundles have beside them by its number.
pub(crate) fn texts(paths: &[PathBuf], take: &mut Take<'_>) -> Result<usize> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, 0, &mut files)?;
    }
    files.sort();
    let mut reading = Reading {
        take,
        left: MOST,
        known: 0,
        left_out: 0,
    };
    for file in &files {
        match reading.read(file) {
            Ok(read) => reading.texts(read)?,
            Err(why) if paths.contains(file) => return Err(why),
            Err(why) => crate::note(&format!("{why:#}, left out")),
        }
        if reading.left == 0 {
            crate::note(&format!(
                "{} and what comes after it: more than {} MB, left out",
                file.display(),
                MOST >> 20
            ));
            break;
        }
    }
    if reading.left_out > NAMED {
        let more = count(reading.left_out - NAMED, "other file");
        crate::note(&format!("{more}: left out likewise"));
    }
    Ok(reading.known)
}

/// The dumps in these files and folders.
pub(crate) fn dumps(paths: &[PathBuf]) -> Result<Dumps> {
    let mut dumps = Dumps::default();
    let known = texts(paths, &mut |name, text| {
        let found = dumps.add(text).map_err(|error| {
            invalid(format!(
                "{}, {error}: a dump that is whole ends each table with COMMIT (iptables) or }} (nft)",
                name.display()
            ))
        })?;
        Ok(!found.is_empty())
    })?;
    if known == 0 {
        return Err(nothing_in(paths, "no dump"));
    }
    Ok(dumps)
}

/// That these files and folders have nothing to read.
pub(crate) fn nothing_in(paths: &[PathBuf], what: &str) -> anyhow::Error {
    let places = paths.iter().map(|path| path.display().to_string());
    let places: Vec<String> = places.collect();
    invalid(format!(
        "{what} is in {}: `chainbreak collect` prints the script that makes them, or put there what \
         `iptables-save -c`, `nft list ruleset`, `conntrack -L`, `ip route show table all`, `ip rule`, `ip addr` and \
         `sysctl -a` print on the node, a file each",
        places.join(" or ")
    ))
}

fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let unreadable = |error: std::io::Error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => ": there is no such folder or file",
            _ => "",
        };
        invalid(format!("{}{hint} ({error})", path.display()))
    };
    let about = fs::metadata(path).map_err(unreadable)?;
    if about.is_file() {
        files.push(path.to_owned());
    } else if about.is_dir() && depth == DEPTH {
        crate::note(&format!("{}: too deep, left out", path.display()));
    } else if about.is_dir() {
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?.path();
            // `collect` leaves a folder and its archive beside each other.
            let is_twice = entry.extension().is_some_and(|it| it == "tgz")
                && entry.with_extension("").is_dir();
            if !is_twice {
                collect(&entry, depth + 1, files)?;
            }
        }
    }
    if files.len() > MOST_FILES {
        return Err(invalid(format!(
            "more than {MOST_FILES} files are in {}: name the files and folders that matter",
            path.display()
        )));
    }
    Ok(())
}

/// Files that are read one after the other.
struct Reading<'a, 'b> {
    take: &'a mut Take<'b>,
    /// So many bytes more.
    left: u64,
    /// How many had something that is known.
    known: usize,
    /// How many had not.
    left_out: usize,
}

impl Reading<'_, '_> {
    /// What is in a file, or in those of a compressed archive.
    fn read(&self, file: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let unreadable =
            |why: std::io::Error| invalid(format!("{} cannot be read: {why}", file.display()));
        if archive::is_one(file) {
            return archive::files(file, self.left).map_err(unreadable);
        }
        let bytes = input::read(file, self.left).map_err(unreadable)?;
        Ok(vec![(file.to_owned(), bytes)])
    }

    fn texts(&mut self, files: Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
        for (name, bytes) in files {
            self.left = self.left.saturating_sub(bytes.len() as u64);
            self.text(&name, bytes)?;
        }
        Ok(())
    }

    fn text(&mut self, file: &Path, bytes: Vec<u8>) -> Result<()> {
        let Ok(text) = String::from_utf8(bytes) else {
            self.leave_out(file, "no text, left out");
            return Ok(());
        };
        if file.file_name().is_some_and(|it| it == "left-out") {
            let name = file.display();
            text.lines()
                .for_each(|line| crate::note(&format!("{name}: {line}")));
        } else if (self.take)(file, &text)? {
            self.known += 1;
        } else {
            self.leave_out(file, "nothing that is known, left out");
        }
        Ok(())
    }

    fn leave_out(&mut self, file: &Path, why: &str) {
        self.left_out += 1;
        if self.left_out <= NAMED {
            crate::note(&format!("{}: {why}", file.display()));
        }
    }
}
