//! Which files of a folder are scenarios.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use crate::{input, yaml};

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
        let yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        if path.is_dir() && !path.is_symlink() {
            files.extend(scenario_files(&path)?);
        } else if yaml && !is_manifest(&path) {
            files.push(path);
        }
    }
    Ok(files)
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
