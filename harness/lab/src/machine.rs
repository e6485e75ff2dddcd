//! Kernel settings of the machine itself, which all worlds share: changed for one case and set back after it.
//!
//! What was there before is written to a journal before anything is changed, and the journal is emptied when
//! everything is back. It is locked as long as its writer lives, so that two runs never change the machine at
//! once; one that nobody has locked is of a run that was killed, and whoever finds it sets back what it names.
//! A value that somebody else changed meanwhile is theirs and stays.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
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

/// What is written down before the machine is changed.
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
    set: String,
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
        let mut file = self.open()?;
        if !self.lock(&file)? {
            let what = "another run has changed settings of this machine: one does at a time";
            return Err(LabError::Unable {
                what: what.to_owned(),
            });
        }
        // Whoever wrote it was killed.
        self.undo(&mut file)?;
        let mut settings = BTreeMap::new();
        for (name, set) in wanted {
            let (before, set) = (self.read(name)?, words(set));
            settings.insert(name.clone(), Setting { before, set });
        }
        let journal = Journal {
            boot: boot(),
            settings,
        };
        self.write_down(&mut file, &journal)?;
        let changed = Changed {
            machine: self.clone(),
            file: Some(file),
            settings: journal.settings,
        };
        for (name, Setting { set, .. }) in &changed.settings {
            self.write(name, set)?;
        }
        Ok(changed)
    }

    /// Sets back what runs that were killed have changed, and says each setting. What a run that lives has changed
    /// stays.
    pub fn undo_left(&self) -> Result<Vec<String>, LabError> {
        if !self.journal.exists() {
            return Ok(Vec::new());
        }
        let mut file = self.open()?;
        if self.lock(&file)? {
            self.undo(&mut file)
        } else {
            Ok(Vec::new())
        }
    }

    fn open(&self) -> Result<File, LabError> {
        let folder = self.journal.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options
            .open(&self.journal)
            .map_err(failed("open", &self.journal))
    }

    /// Whether it is ours now.
    fn lock(&self, file: &File) -> Result<bool, LabError> {
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(source)) => Err(failed("lock", &self.journal)(source)),
        }
    }

    fn write_down(&self, file: &mut File, journal: &Journal) -> Result<(), LabError> {
        let text = serde_json::to_vec(journal).expect("a journal is JSON");
        let written = file.rewind().and_then(|()| file.write_all(&text));
        let kept = written.and_then(|()| file.sync_all());
        kept.map_err(failed("write", &self.journal))
    }

    /// Sets back what the journal names, each that can be, and empties it when all of that is back.
    fn undo(&self, file: &mut File) -> Result<Vec<String>, LabError> {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        read.map_err(failed("read", &self.journal))?;
        // One that is cut off was being written: nothing was changed yet.
        let journal: Option<Journal> = serde_json::from_str(&text).ok();
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

    /// What was done; nothing for a setting that never was changed.
    fn set_back(&self, name: &str, setting: &Setting) -> Result<Option<String>, LabError> {
        let Setting { before, set } = setting;
        let now = self.read(name)?;
        if now == *before {
            return Ok(None);
        }
        if now != *set {
            return Ok(Some(format!(
                "left {name} at {now}: somebody has changed it from {set}"
            )));
        }
        self.write(name, before)?;
        Ok(Some(format!("set {name} back from {set} to {before}")))
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
    /// What was changed: `net.netfilter.nf_conntrack_max from 262144 to 524288`.
    pub fn told(&self) -> String {
        let settings = self.settings.iter();
        let told = settings
            .map(|(name, Setting { before, set })| format!("{name} from {before} to {set}"));
        told.collect::<Vec<_>>().join(", ")
    }

    /// Sets everything back, and says each setting.
    pub fn set_back(mut self) -> Result<Vec<String>, LabError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<Vec<String>, LabError> {
        let file = self.file.take();
        file.map_or(Ok(Vec::new()), |mut file| self.machine.undo(&mut file))
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            tracing::error!(%error, "the machine is not as it was: `chainbreak clean` tries again");
        }
    }
}

fn boot() -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: &str = "net.netfilter.nf_conntrack_max";

    /// A machine that is a folder.
    fn machine(folder: &Path) -> Machine {
        let machine = Machine {
            settings: folder.join("sys"),
            journal: folder.join("state/machine.json"),
        };
        fs::create_dir_all(folder.join("sys/net/netfilter")).unwrap();
        fs::write(machine.path(MAX), "262144\n").unwrap();
        machine
    }

    fn larger() -> BTreeMap<String, String> {
        [(MAX.to_owned(), "524288".to_owned())].into()
    }

    #[test]
    fn a_setting_is_changed_and_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        let changed = machine.change(&larger()).unwrap();
        assert_eq!(machine.read(MAX).unwrap(), "524288");
        assert_eq!(changed.told(), format!("{MAX} from 262144 to 524288"));
        let said = changed.set_back().unwrap();
        assert_eq!(said, [format!("set {MAX} back from 524288 to 262144")]);
        assert_eq!(machine.read(MAX).unwrap(), "262144");
        drop(machine.change(&larger()).unwrap());
        assert_eq!(
            machine.read(MAX).unwrap(),
            "262144",
            "also when it is dropped"
        );
        assert_eq!(machine.undo_left().unwrap(), [""; 0]);
    }

    #[test]
    fn what_a_killed_run_has_changed_is_set_back_by_whoever_comes_next() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        let mut killed = machine.change(&larger()).unwrap();
        assert_eq!(machine.undo_left().unwrap(), [""; 0], "it lives");
        assert!(machine.change(&larger()).is_err(), "it lives");
        // As the kernel closes what a killed process had open.
        drop(killed.file.take());
        assert_eq!(machine.read(MAX).unwrap(), "524288");
        let said = machine.undo_left().unwrap();
        assert_eq!(said, [format!("set {MAX} back from 524288 to 262144")]);
        assert_eq!(machine.read(MAX).unwrap(), "262144");
    }

    #[test]
    fn a_value_of_somebody_else_and_one_of_another_boot_stay() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        let changed = machine.change(&larger()).unwrap();
        fs::write(machine.path(MAX), "300000\n").unwrap();
        let said = changed.set_back().unwrap();
        assert_eq!(
            said,
            [format!(
                "left {MAX} at 300000: somebody has changed it from 524288"
            )]
        );
        let mut killed = machine.change(&larger()).unwrap();
        drop(killed.file.take());
        let text = fs::read_to_string(&machine.journal).unwrap();
        fs::write(&machine.journal, text.replace(&boot(), "another")).unwrap();
        assert_eq!(machine.undo_left().unwrap(), [""; 0]);
        assert_eq!(machine.read(MAX).unwrap(), "524288");
    }

    #[test]
    fn of_several_settings_none_stays_changed_when_one_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        // Root may open it for writing, and cannot write.
        std::os::unix::fs::symlink("/proc/version", machine.path("net.read_only")).unwrap();
        let mut wanted = larger();
        wanted.insert("net.read_only".to_owned(), "1".to_owned());
        let refused = machine.change(&wanted).unwrap_err().to_string();
        assert!(refused.starts_with("could not write 1 to "), "{refused}");
        assert_eq!(machine.read(MAX).unwrap(), "262144");
    }
}
