//! The dumps in a folder: every file of it that is one, those in compressed archives among them.

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
const DEPTH: usize = 4;

pub(super) fn read(paths: &[PathBuf]) -> Result<Dumps> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, 0, &mut files)?;
    }
    files.sort();
    let (mut dumps, mut left, mut known) = (Dumps::default(), MOST, 0);
    for file in &files {
        known += take(file, &mut dumps, &mut left)?;
    }
    if known == 0 {
        let places: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(invalid(format!(
            "no dump is in {}: `chainbreak collect` prints the script that makes them, or put there what \
             `iptables-save -c`, `nft list ruleset`, `conntrack -L`, `ip route show table all`, `ip rule`, `ip addr` and \
             `sysctl -a` print on the node, a file each",
            places.join(" or ")
        )));
    }
    Ok(dumps)
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
    } else if about.is_dir() && depth < DEPTH {
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
            "more than {MOST_FILES} files are in {}: name those that are dumps, each with --dump",
            path.display()
        )));
    }
    Ok(())
}

/// Reads a file, or those in a compressed archive; how many are dumps.
fn take(file: &Path, dumps: &mut Dumps, left: &mut u64) -> Result<usize> {
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
        known += usize::from(add(&name, bytes, dumps)?);
    }
    Ok(known)
}

/// Takes in what a file has; false when it is no dump.
fn add(file: &Path, bytes: Vec<u8>, dumps: &mut Dumps) -> Result<bool> {
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
    let found = dumps.add(&text).map_err(|error| {
        invalid(format!("{name}, {error}: a dump that is whole ends each table with COMMIT (iptables) or }} (nft)"))
    })?;
    if found.is_empty() {
        crate::note(&format!("{name}: not a dump that is known, left out"));
    }
    Ok(!found.is_empty())
}
