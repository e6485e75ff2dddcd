//! What this machine's runs have made, written down before it is made: whatever ends a run, `chainbreak clean`
//! finds it. An entry is a file, locked by the run that uses the cluster: the lock ends with the process.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{error::KindError, name::ClusterName};

/// Where entries are.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    folder: PathBuf,
}

/// An entry's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entry {
    format: u16,
    /// The process that used the cluster last.
    pid: u32,
}

/// A cluster that this process uses. Nobody else does as long as this lives.
#[derive(Debug)]
pub(crate) struct Used {
    file: PathBuf,
    /// Its lock is what counts.
    _locked: File,
    /// Whether the journal had the cluster before.
    pub(crate) was_ours: bool,
}

impl Used {
    /// The cluster is gone.
    pub(crate) fn forget(self) -> Result<(), KindError> {
        let Self { file, .. } = self;
        std::fs::remove_file(&file).map_err(KindError::file("remove", &file))
    }
}

impl Journal {
    /// This user's, in `$XDG_STATE_HOME/chainbreak/kind`.
    pub(crate) fn of_user() -> Self {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let state = state.filter(|path| path.is_absolute());
        let home = || std::env::home_dir().unwrap_or_else(|| "/".into());
        let state = state.unwrap_or_else(|| home().join(".local/state"));
        Self::at(state.join("chainbreak/kind"))
    }

    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Notes that this process uses the cluster, from before it is there.
    pub(crate) fn begin(&self, name: &ClusterName) -> Result<Used, KindError> {
        let folder = &self.folder;
        std::fs::create_dir_all(folder).map_err(KindError::file("make", folder))?;
        let file = self.file(name);
        let was_ours = file.exists();
        let mut options = OpenOptions::new();
        let opened = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&file);
        let mut opened = opened.map_err(KindError::file("open", &file))?;
        if !lock(&opened, &file)? {
            let entry = read(&mut opened);
            return Err(KindError::InUse {
                name: name.clone(),
                pid: entry.map_or(0, |entry| entry.pid),
            });
        }
        let entry = Entry {
            format: 1,
            pid: std::process::id(),
        };
        let text = serde_json::to_string(&entry).expect("an entry has string keys");
        let written = opened
            .set_len(0)
            .and_then(|()| opened.rewind())
            .and_then(|()| opened.write_all(text.as_bytes()))
            .and_then(|()| opened.sync_all());
        written.map_err(KindError::file("write", &file))?;
        Ok(Used {
            file,
            _locked: opened,
            was_ours,
        })
    }

    /// Clusters that no process uses, by name.
    pub(crate) fn unused(&self) -> Result<Vec<ClusterName>, KindError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(KindError::file("read", &self.folder))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(KindError::file("read", &self.folder))?.path();
            let name = path.file_stem().and_then(|stem| stem.to_str());
            let Some(name) = name.and_then(ClusterName::read) else {
                continue;
            };
            let file = File::open(&path).map_err(KindError::file("open", &path))?;
            if lock(&file, &path)? {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Of the clusters that no process uses, all but the `kept` that were used last; the one longest ago first.
    pub(crate) fn beyond(&self, kept: usize) -> Result<Vec<ClusterName>, KindError> {
        let mut unused = Vec::new();
        for name in self.unused()? {
            let file = self.file(&name);
            let used = file.metadata().and_then(|it| it.modified());
            unused.push((used.map_err(KindError::file("look at", &file))?, name));
        }
        unused.sort();
        let beyond = unused.len().saturating_sub(kept);
        Ok(unused
            .into_iter()
            .take(beyond)
            .map(|(_, name)| name)
            .collect())
    }

    /// Whether a process uses the cluster.
    pub(crate) fn is_used(&self, name: &ClusterName) -> Result<bool, KindError> {
        let path = self.file(name);
        match File::open(&path) {
            Ok(file) => lock(&file, &path).map(|free| !free),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(KindError::file("open", &path)(error)),
        }
    }

    fn file(&self, name: &ClusterName) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

/// Whether nobody else has it.
fn lock(file: &File, path: &Path) -> Result<bool, KindError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(KindError::file("lock", path)(error)),
    }
}

fn read(file: &mut File) -> Option<Entry> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    /// Waits until nobody has the lock of a cluster: a program that another test is starting has it until it has become that program.
    fn free(journal: &Journal, name: &ClusterName) {
        let file = File::open(journal.file(name)).unwrap();
        let (told, heard) = mpsc::channel();
        thread::spawn(move || told.send(file.lock().and_then(|()| file.unlock())));
        let free = heard.recv_timeout(Duration::from_secs(10));
        free.expect("nobody has the lock for long").unwrap();
    }

    #[test]
    fn of_unused_clusters_those_used_last_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::at(folder.path().to_owned());
        let names = ["0c", "0a", "0b"].map(ClusterName::of_hash);
        for (name, seconds) in names.iter().zip(1..) {
            drop(journal.begin(name).unwrap());
            free(&journal, name);
            let when = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
            let entry = File::open(journal.file(name)).unwrap();
            entry.set_modified(when).unwrap();
        }
        assert_eq!(journal.beyond(3).unwrap(), []);
        assert_eq!(journal.beyond(1).unwrap(), names[..2]);
        let _used = journal.begin(&names[0]).unwrap();
        assert_eq!(journal.beyond(0).unwrap(), names[1..], "that one is in use");
    }

    #[test]
    fn a_cluster_has_one_user_and_is_unused_when_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::at(folder.path().join("deep/er"));
        let name = ClusterName::of_hash("0f");
        assert_eq!(journal.unused().unwrap(), []);
        let used = journal.begin(&name).unwrap();
        assert!(!used.was_ours);
        assert_eq!(journal.unused().unwrap(), [], "it is in use");
        let refused = journal.begin(&name).unwrap_err().to_string();
        let words = format!("chainbreak-0f is in use by process {}", std::process::id());
        assert!(refused.contains(&words), "{refused}");
        drop(used);
        free(&journal, &name);
        assert_eq!(journal.unused().unwrap(), std::slice::from_ref(&name));
        let used = journal.begin(&name).unwrap();
        assert!(used.was_ours);
        used.forget().unwrap();
        assert_eq!(journal.unused().unwrap(), []);
    }
}
