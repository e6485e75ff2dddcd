//! eBPF objects of the machine's kernel: those that are there after a run with `--allow-ebpf` and were not before it.
//!
//! What a world loads ends with its processes, mounts and cgroup; the kernel takes some of it down later. Programs of others may come
//! meanwhile, and nothing of the kernel tells whose one is: objects are named, and never removed.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use libc::c_int;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use tempfile::Builder;
use tokio::time::{Instant, interval};

use crate::{
    error::LabError,
    machine::boot,
    worker::delegation::calls::{info, next_id},
};

/// Where runs write down what there was before them.
const FOLDER: &str = "/var/lib/chainbreak/ebpf";
/// Distance of two looks at what ends.
const LOOK: Duration = Duration::from_millis(100);
/// So many names are told.
const TOLD: usize = 8;
/// The type of a map that holds programs, of linux/bpf.h.
const PROGRAM_ARRAY: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Program,
    Map,
    Link,
}

/// Kind, `BPF_*_GET_NEXT_ID`, `BPF_*_GET_FD_BY_ID`, and where the name is in what the kernel says of one (linux/bpf.h).
const KINDS: [(Kind, c_int, c_int, Option<usize>); 3] = [
    (Kind::Program, 11, 13, Some(64)),
    (Kind::Map, 12, 14, Some(24)),
    (Kind::Link, 31, 30, None),
];

/// The objects of a moment, by kind and number. The kernel gives no number twice but after four billion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Loaded(BTreeMap<Kind, BTreeSet<u32>>);

/// What there was before a run, in a file that is locked as long as the run lives.
#[derive(Debug)]
pub struct Before {
    loaded: Loaded,
    path: PathBuf,
    _locked: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    boot: String,
    loaded: Loaded,
}

impl Before {
    /// Looks, and writes it down for whoever comes after a run that was killed. For root.
    pub fn look() -> Result<Self, LabError> {
        Self::look_in(Path::new(FOLDER))
    }

    fn look_in(folder: &Path) -> Result<Self, LabError> {
        let loaded = Loaded::look()?;
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let made = Builder::new()
            .prefix("run-")
            .suffix(".json")
            .tempfile_in(folder);
        let kept = made.and_then(|file| file.keep().map_err(|it| it.error));
        let (mut file, path) = kept.map_err(failed("make a file in", folder))?;
        file.lock().map_err(failed("lock", &path))?;
        let journal = Journal {
            boot: boot(),
            loaded,
        };
        let line = serde_json::to_vec(&journal).expect("a journal is JSON");
        file.write_all(&line).map_err(failed("write", &path))?;
        Ok(Self {
            loaded: journal.loaded,
            path,
            _locked: file,
        })
    }

    /// What came since and is there, or nothing.
    pub fn came(&self) -> Result<Option<String>, LabError> {
        Ok(Loaded::look()?.since(&self.loaded).told())
    }

    /// Waits until all that came is gone, at most so long; says what is not.
    pub async fn left(self, within: Duration) -> Result<Option<String>, LabError> {
        let end = Instant::now() + within;
        let mut looks = interval(LOOK);
        let left = loop {
            looks.tick().await;
            let left = Loaded::look()?.since(&self.loaded);
            if left.0.is_empty() || Instant::now() >= end {
                break left;
            }
        };
        removed(&self.path)?;
        Ok(left.told())
    }
}

/// Of each run that was killed: what came after its begin and is there, or nothing. It is not told again.
pub fn left_by_killed() -> Result<Vec<String>, LabError> {
    if !geteuid().is_root() {
        return Ok(Vec::new());
    }
    left_in(Path::new(FOLDER))
}

fn left_in(folder: &Path) -> Result<Vec<String>, LabError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", folder)(error)),
    };
    let mut told = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed("read", folder))?.path();
        let Ok(file) = File::open(&path) else {
            continue;
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        // A file that is cut off was being written: nothing had been loaded yet.
        let journal: Option<Journal> = serde_json::from_reader(&file).ok();
        if let Some(journal) = journal.filter(|it| it.boot == boot()) {
            told.extend(Loaded::look()?.since(&journal.loaded).told());
        }
        removed(&path)?;
    }
    Ok(told)
}

/// One that is not there was found between its making and its locking.
fn removed(path: &Path) -> Result<(), LabError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

impl Loaded {
    fn look() -> Result<Self, LabError> {
        let mut loaded = BTreeMap::new();
        for (kind, next, _, _) in KINDS {
            let mut ids = BTreeSet::new();
            let mut last = 0;
            while let Some(id) = next_id(next, last).map_err(LabError::isolate("list eBPF"))? {
                ids.insert(id);
                last = id;
            }
            loaded.insert(kind, ids);
        }
        Ok(Self(loaded))
    }

    /// Those that the other has not.
    fn since(&self, before: &Self) -> Self {
        let mut since = BTreeMap::new();
        for (kind, ids) in &self.0 {
            let known = before.0.get(kind);
            let new = ids
                .iter()
                .filter(|id| known.is_none_or(|it| !it.contains(id)));
            let new: BTreeSet<u32> = new.copied().collect();
            if !new.is_empty() {
                since.insert(*kind, new);
            }
        }
        Self(since)
    }

    /// How many of each kind, and what they are called; nothing where there are none.
    fn told(&self) -> Option<String> {
        let named = |(kind, _, open, name): (Kind, c_int, c_int, Option<usize>)| {
            let ids = self.0.get(&kind)?;
            let mut names = BTreeSet::new();
            for id in ids {
                // One that has just gone has no name any more.
                names.extend(
                    name.and_then(|at| info(open, *id).ok().map(|it| called(kind, at, &it))),
                );
            }
            Some(counted(kind, ids.len(), &names))
        };
        let kinds: Vec<String> = KINDS.into_iter().filter_map(named).collect();
        (!kinds.is_empty()).then(|| kinds.join(", "))
    }
}

/// The name in what the kernel says; what kind of map it is where the kernel itself may hold it.
fn called(kind: Kind, at: usize, info: &[u8]) -> String {
    let name = info[at..at + 16].split(|byte| *byte == 0).next();
    let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
    let name = if name.is_empty() {
        "no name".to_owned()
    } else {
        name
    };
    if kind == Kind::Map && info.starts_with(&PROGRAM_ARRAY.to_ne_bytes()) {
        return format!("{name}, an array of programs");
    }
    name
}

fn counted(kind: Kind, count: usize, names: &BTreeSet<String>) -> String {
    let kind = match kind {
        Kind::Program => "program",
        Kind::Map => "map",
        Kind::Link => "link",
    };
    let plural = if count == 1 { "" } else { "s" };
    if names.is_empty() {
        return format!("{count} {kind}{plural}");
    }
    let mut told: Vec<&str> = names.iter().map(String::as_str).take(TOLD).collect();
    if names.len() > TOLD {
        told.push("…");
    }
    format!("{count} {kind}{plural} ({})", told.join("; "))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let path = path.to_owned();
    move |source| LabError::Machine { what, path, source }
}
