//! What people attach of a node: files and folders, those in compressed archives among them.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::Result;
use chainbreak_model::input;
use chainbreak_netfilter::dumps::Dumps;

use crate::{archive, cases::invalid};

/// The most that is read of all files, in bytes: 100,000 rules are some 20 MB.
const MOST: u64 = 256 << 20;
/// The most files of a folder, its folders' included.
const MOST_FILES: usize = 1000;
/// How deep folders are looked into.
const DEPTH: usize = 12;

/// What is made of a file's text: whether anything in it is known.
pub(crate) type Take<'a> = dyn FnMut(&Path, &str) -> Result<bool> + 'a;

/// Hands over the text of every file that is named or lies in a folder; how many had something that is known. Of the others it is said that
/// they are left out.
pub(crate) fn texts(paths: &[PathBuf], take: &mut Take<'_>) -> Result<usize> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, 0, &mut files)?;
    }
    files.sort();
    let (mut left, mut known) = (MOST, 0);
    for file in &files {
        known += read(file, take, &mut left)?;
    }
    Ok(known)
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

/// Reads a file, or those in a compressed archive; how many had something that is known.
fn read(file: &Path, take: &mut Take<'_>, left: &mut u64) -> Result<usize> {
    let unreadable =
        |why: std::io::Error| invalid(format!("{} cannot be read: {why}", file.display()));
    let files = if archive::is_one(file) {
        archive::files(file, *left).map_err(unreadable)?
    } else {
        vec![(
            file.to_owned(),
            input::read(file, *left).map_err(unreadable)?,
        )]
    };
    let mut known = 0;
    for (name, bytes) in files {
        *left = left.saturating_sub(bytes.len() as u64);
        known += usize::from(is_known(&name, bytes, take)?);
    }
    Ok(known)
}

fn is_known(file: &Path, bytes: Vec<u8>, take: &mut Take<'_>) -> Result<bool> {
    let name = file.display();
    let Ok(text) = String::from_utf8(bytes) else {
        crate::note(&format!("{name}: no text, left out"));
        return Ok(false);
    };
    if file.file_name().is_some_and(|it| it == "left-out") {
        text.lines()
            .for_each(|line| crate::note(&format!("{name}: {line}")));
        return Ok(false);
    }
    let known = take(file, &text)?;
    if !known {
        crate::note(&format!("{name}: nothing that is known, left out"));
    }
    Ok(known)
}
