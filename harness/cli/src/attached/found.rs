//! The files that are named or lie in a folder.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::cases::invalid;

/// The most files of a folder, its folders' included.
const MOST_FILES: usize = 50_000;
/// How deep folders are looked into.
const DEPTH: usize = 12;
/// How the names of archives end.
const ARCHIVES: [&str; 5] = [".tgz", ".tar.gz", ".txz", ".tar.xz", ".tar"];

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// The same from the folder on in which that lies what was named.
    pub(super) inside: PathBuf,
    /// Whether it was named itself.
    pub(super) is_named: bool,
}

/// What is left out, and why.
pub(super) type LeaveOut<'a> = dyn FnMut(&Path, &str) + 'a;

/// All of them, in order; what links lead to besides is there once.
pub(super) fn files(paths: &[PathBuf], leave_out: &mut LeaveOut<'_>) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for base in paths {
        let mut files = Vec::new();
        collect(base, 0, &mut files, leave_out)?;
        let around = base.parent().unwrap_or(Path::new(""));
        found.extend(files.into_iter().map(|path| Found {
            inside: path.strip_prefix(around).unwrap_or(&path).to_owned(),
            is_named: path == *base,
            path,
        }));
    }
    // Those that are no links first.
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
    found.sort_by_cached_key(|it| (is_link(&it.path), it.clone()));
    let mut once = BTreeMap::new();
    for file in found {
        let is = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        once.entry(is).or_insert(file);
    }
    let mut files: Vec<Found> = once.into_values().collect();
    files.sort();
    Ok(files)
}

fn collect(
    path: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
    leave_out: &mut LeaveOut<'_>,
) -> Result<()> {
    let unreadable = |error: std::io::Error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => ": there is no such folder or file",
            _ => "",
        };
        invalid(format!("{}{hint} ({error})", path.display()))
    };
    let about = match fs::metadata(path) {
        // A link in a folder that leads nowhere is nobody's mistake.
        Err(error) if depth > 0 => {
            leave_out(path, &format!("{error}, left out"));
            return Ok(());
        }
        about => about.map_err(unreadable)?,
    };
    let is_link = || fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
    if about.is_file() {
        files.push(path.to_owned());
    } else if about.is_dir() && depth == DEPTH {
        leave_out(path, "too deep, left out");
    } else if about.is_dir() && depth > 0 && is_link() {
        leave_out(path, "a link to a folder, left out");
    } else if about.is_dir() {
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?.path();
            if is_unpacked(&entry) {
                leave_out(&entry, "beside its folder, left out");
            } else {
                collect(&entry, depth + 1, files, leave_out)?;
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

/// Whether a file is an archive beside the folder that it was made of, as `collect` leaves them.
fn is_unpacked(file: &Path) -> bool {
    let name = file.file_name().and_then(|it| it.to_str());
    let name = name.unwrap_or_default();
    let mut folders = ARCHIVES.iter().filter_map(|end| name.strip_suffix(end));
    folders.any(|folder| !folder.is_empty() && file.with_file_name(folder).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_leads_to_is_there_once_and_by_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("nodes/n1")).unwrap();
        fs::write(at("nodes/n1/a.log"), "x").unwrap();
        for (to, link) in [
            ("nodes/n1/a.log", "a.log"),
            ("nowhere", "b.log"),
            ("nodes/n1", "a"),
        ] {
            std::os::unix::fs::symlink(to, at(link)).unwrap();
        }
        let paths = |of: PathBuf| {
            let found = files(&[of], &mut |_, _| {}).unwrap().into_iter();
            found.map(|it| (it.path, it.is_named)).collect::<Vec<_>>()
        };
        assert_eq!(
            paths(folder.path().to_owned()),
            [(at("nodes/n1/a.log"), false)]
        );
        assert_eq!(paths(at("a.log")), [(at("a.log"), true)]);
    }

    #[test]
    fn an_archive_beside_its_folder_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("n1")).unwrap();
        for name in ["n1.tgz", "n1.tar.gz", "n1.tar.xz", "n2.tgz", ".tgz"] {
            fs::write(at(name), "x").unwrap();
        }
        let found = files(&[folder.path().to_owned()], &mut |_, _| {}).unwrap();
        let inside: Vec<&Path> = found.iter().map(|it| it.inside.as_path()).collect();
        let base = Path::new(folder.path().file_name().unwrap());
        assert_eq!(inside, [base.join(".tgz"), base.join("n2.tgz")]);
    }
}
