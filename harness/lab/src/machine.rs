//! Kernel settings of the machine itself, which all worlds share: changed for one case and set back after it.
//!
//! What was there before is written to a journal before anything is changed, what the kernel made of it after that, and
//! the journal is removed when everything is back. It is locked as long as its writer lives, so that two runs never
//! change the machine at once; one that nobody has locked is of a run that was killed, and the next run or
//! `chainbreak clean` sets back what it names. A value that somebody else changed meanwhile is theirs and stays.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::unistd::{AccessFlags, access, geteuid};
use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// A setting that can be written in the machine's own namespaces alone.
const TRIED: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// Which boot this is: no setting outlives one.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Whether this process may change the machine's settings; if not, why.
pub fn may_change() -> Result<(), String> {
    if !geteuid().is_root() {
        return Err("only root may change the machine's settings".to_owned());
    }
    access(TRIED, AccessFlags::W_OK).map_err(|why| format!("{TRIED} cannot be written here: {why}"))
}

/// [`Machine::undo_left`] of this machine, for those who may.
pub fn undo_left() -> Result<Vec<String>, LabError> {
    if may_change().is_err() {
        return Ok(Vec::new());
    }
    Machine::default().undo_left()
}

/// The machine's settings, and the journal of their changes.
#[derive(Debug, Clone)]
pub struct Machine {
    settings: PathBuf,
    journal: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            settings: PathBuf::from("/proc/sys"),
            journal: PathBuf::from("/var/lib/chainbreak/machine.json"),
        }
    }
}

/// What is written down before the machine is changed, and again after it: a line each, of which the last counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Journal {
    boot: String,
    settings: BTreeMap<String, Setting>,
}

/// A setting that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setting {
    before: String,
    /// What was read after it was set: the kernel rounds some values. `None` while it is being set; then all that is
    /// there is ours.
    set: Option<String>,
}

/// The machine with settings changed, until they are [set back](Changed::set_back).
#[derive(Debug)]
#[must_use = "what is dropped is set back, and nobody hears whether it could be"]
pub struct Changed {
    machine: Machine,
    /// The journal, locked; `None` when everything is back.
    file: Option<File>,
    settings: BTreeMap<String, Setting>,
}

impl Machine {
    /// Changes these settings. Fails, and leaves everything as it was, while another run has changed some.
    pub fn change(&self, wanted: &BTreeMap<String, String>) -> Result<Changed, LabError> {
        let Some(file) = self.open()? else {
            let what = "another run has changed settings of this machine: one does at a time";
            return Err(LabError::Unable {
                what: what.to_owned(),
            });
        };
        let mut changed = Changed {
            machine: self.clone(),
            file: Some(file),
            settings: BTreeMap::new(),
        };
        changed.make(wanted)?;
        Ok(changed)
    }

    /// Sets back what runs that were killed have changed, and says each setting. What a run that lives has changed
    /// stays.
    pub fn undo_left(&self) -> Result<Vec<String>, LabError> {
        if !self.journal.exists() {
            return Ok(Vec::new());
        }
        match self.open()? {
            Some(file) => self.end(file),
            None => Ok(Vec::new()),
        }
    }

    /// The journal, locked; `None` while another run has it.
    fn open(&self) -> Result<Option<File>, LabError> {
        let folder = self.journal.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        loop {
            let opened = options.open(&self.journal);
            let file = opened.map_err(failed("open", &self.journal))?;
            if !self.lock(&file)? {
                return Ok(None);
            }
            // Its last owner removes it: what was opened before that is nobody's journal.
            let is_there = |there: fs::Metadata| {
                file.metadata()
                    .is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
            };
            if fs::metadata(&self.journal).is_ok_and(is_there) {
                return Ok(Some(file));
            }
        }
    }

    /// Whether it is ours now.
    fn lock(&self, file: &File) -> Result<bool, LabError> {
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(source)) => Err(failed("lock", &self.journal)(source)),
        }
    }

    fn write_down(
        &self,
        file: &mut File,
        settings: &BTreeMap<String, Setting>,
    ) -> Result<(), LabError> {
        let journal = Journal {
            boot: boot(),
            settings: settings.clone(),
        };
        let mut line = serde_json::to_vec(&journal).expect("a journal is JSON");
        line.push(b'\n');
        let written = file
            .seek(SeekFrom::End(0))
            .and_then(|_end| file.write_all(&line));
        let kept = written.and_then(|()| file.sync_all());
        kept.map_err(failed("write", &self.journal))
    }

    /// Sets back what the journal names, each that can be, and empties it when all of that is back.
    fn undo(&self, file: &mut File) -> Result<Vec<String>, LabError> {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        read.map_err(failed("read", &self.journal))?;
        // A line that is cut off was being written: the one before it counts, and before the first nothing was changed.
        let mut lines = text.lines().rev();
        let journal: Option<Journal> = lines.find_map(|line| serde_json::from_str(line).ok());
        let current = journal.filter(|journal| journal.boot == boot());
        let settings = current.map(|journal| journal.settings).unwrap_or_default();
        let done: Vec<_> = settings
            .iter()
            .map(|(name, it)| self.set_back(name, it))
            .collect();
        let said = done.into_iter().collect::<Result<Vec<_>, LabError>>()?;
        file.set_len(0).map_err(failed("empty", &self.journal))?;
        Ok(said.into_iter().flatten().collect())
    }

    /// [Undoes](Self::undo), and removes the journal.
    fn end(&self, mut file: File) -> Result<Vec<String>, LabError> {
        let said = self.undo(&mut file)?;
        fs::remove_file(&self.journal).map_err(failed("remove", &self.journal))?;
        Ok(said)
    }

    /// What was done; nothing for a setting that never was changed.
    fn set_back(&self, name: &str, setting: &Setting) -> Result<Option<String>, LabError> {
        let Setting { before, set } = setting;
        let now = self.read(name)?;
        if now == *before {
            return Ok(None);
        }
        if let Some(set) = set.as_ref().filter(|set| **set != now) {
            return Ok(Some(format!(
                "left {name} at {now}: somebody has changed it from {set}"
            )));
        }
        self.write(name, before)?;
        Ok(Some(format!("set {name} back from {now} to {before}")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.settings.join(name.replace('.', "/"))
    }

    fn read(&self, name: &str) -> Result<String, LabError> {
        let path = self.path(name);
        let text = fs::read_to_string(&path).map_err(failed("read", &path))?;
        Ok(words(&text))
    }

    fn write(&self, name: &str, value: &str) -> Result<(), LabError> {
        let path = self.path(name);
        fs::write(&path, value).map_err(|source| LabError::Sysctl {
            path,
            value: value.to_owned(),
            source,
        })
    }
}

impl Changed {
    /// Sets what is wanted, after what a killed run has left is undone.
    fn make(&mut self, wanted: &BTreeMap<String, String>) -> Result<(), LabError> {
        let Self {
            machine,
            file,
            settings,
        } = self;
        let file = file.as_mut().expect("nothing is undone yet");
        machine.undo(file)?;
        for name in wanted.keys() {
            let before = machine.read(name)?;
            settings.insert(name.clone(), Setting { before, set: None });
        }
        machine.write_down(file, settings)?;
        for (name, value) in wanted {
            machine.write(name, &words(value))?;
        }
        for (name, setting) in &mut *settings {
            setting.set = Some(machine.read(name)?);
        }
        machine.write_down(file, settings)
    }

    /// What was changed: `net.netfilter.nf_conntrack_max from 262144 to 524288`.
    pub fn told(&self) -> String {
        let told = self.settings.iter().map(|(name, setting)| {
            let Setting { before, set } = setting;
            let set = set.as_ref().unwrap_or(before);
            format!("{name} from {before} to {set}")
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// Sets everything back, and says each setting.
    pub fn set_back(mut self) -> Result<Vec<String>, LabError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<Vec<String>, LabError> {
        let file = self.file.take();
        file.map_or(Ok(Vec::new()), |file| self.machine.end(file))
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            tracing::error!(%error, "the machine is not as it was: `chainbreak clean` tries again");
        }
    }
}

/// Which boot this is.
pub(crate) fn boot() -> String {
    fs::read_to_string(BOOT)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The kernel puts tabs between values that were written with blanks.
fn words(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let path = path.to_owned();
    move |source| LabError::Machine { what, path, source }
}
