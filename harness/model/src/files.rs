//! Which files of a folder are scenarios.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use crate::{input, nearest::nearest, yaml};

/// A folder could not be looked through.
#[derive(Debug, thiserror::Error)]
#[error("could not read {}", .folder.display())]
pub struct FolderError {
    /// Which one.
    pub folder: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// The scenario files below a folder, in order: every YAML file but those that are Kubernetes manifests.
pub fn scenario_files(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let unreadable = |source| FolderError {
        folder: folder.to_owned(),
        source,
    };
    let entries = fs::read_dir(folder).map_err(unreadable)?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths = paths
        .collect::<io::Result<Vec<PathBuf>>>()
        .map_err(unreadable)?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            files.extend(scenario_files(&path)?);
        } else if is_yaml(&path) && !is_manifest(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Whether a file is YAML by its name.
pub fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "yaml" || e == "yml")
}

/// The name of a file beside one that is not there, if somebody may have meant it.
pub fn nearest_file(absent: &Path) -> Option<String> {
    let folder = match absent.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let wanted = absent.file_name()?.to_str()?;
    nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned)
}

/// Whether a line begins with `apiVersion:`, which no scenario has. What cannot be read is no manifest:
/// reading it as a scenario says why.
fn is_manifest(file: &Path) -> bool {
    let Ok(file) = input::open(file, yaml::BYTES) else {
        return false;
    };
    BufReader::new(file)
        .lines()
        .map_while(Result::ok)
        .any(|line| line.starts_with("apiVersion:"))
}
