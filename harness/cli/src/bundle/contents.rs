//! What goes into a bundle, without secrets, one case at a time.

use std::{
    collections::BTreeSet,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use chainbreak_model::{case::Case, input, verdict::CaseVerdict};
use chainbreak_report::{FORMAT, Header, LONGEST, Line, Recorded, Recorder, Run, text::count};
use indexmap::IndexSet;
use serde::{Serialize, de::DeserializeOwned};

use super::redact::{Json, Redactor};
use crate::{
    archive::{MOST, Pack, compressed},
    cases::invalid,
    reports,
};

/// So long may a scenario's file be.
const SCENARIO: u64 = 1 << 20;
/// More characters of a case's name are not in that of its folder: tar has no room for them.
const FOLDER: usize = 120;
/// What the last files take, beside `run.jsonl` as it is without what was kept.
const LAST: u64 = 256 << 10;

/// A bundle of some cases of a run that is in that folder, and what is told of it.
pub(super) fn of(
    run: &Run,
    folder: &Path,
    chosen: &BTreeSet<String>,
) -> anyhow::Result<(Vec<u8>, String)> {
    let mut contents = Contents {
        run,
        folder,
        pack: Pack::begin(u64::try_from(run.header.started.as_second()).unwrap_or(0)),
        left_out: Vec::new(),
        redactor: Redactor::default(),
    };
    let header = Header {
        format: FORMAT,
        ..run.header.clone()
    };
    let mut lines = Vec::new();
    let mut recorder = Recorder::begin(&mut lines, &header)?;
    for line in contents.lines(chosen)? {
        recorder.append(&line)?;
    }
    reads_back(&lines, chosen)?;
    contents.needed("run.jsonl".as_ref(), &lines)?;
    contents.end()
}

/// Whoever gets it has nothing but it.
fn reads_back(lines: &[u8], chosen: &BTreeSet<String>) -> anyhow::Result<()> {
    let read = Run::read(lines, Path::new("."))?;
    let same = chosen.iter().all(|id| read.cases.contains_key(id));
    anyhow::ensure!(
        same,
        "the bundle does not read back as the run that it is of"
    );
    Ok(())
}

struct Contents<'a> {
    run: &'a Run,
    folder: &'a Path,
    pack: Pack,
    left_out: Vec<String>,
    redactor: Redactor,
}

impl Contents<'_> {
    /// The lines of `run.jsonl`, whose files are packed meanwhile: events, then scenarios, then what was kept of cases, of those that failed
    /// first.
    fn lines(&mut self, chosen: &BTreeSet<String>) -> anyhow::Result<Vec<Line>> {
        let cases: Vec<(&String, &Recorded)> = self
            .run
            .cases
            .iter()
            .filter(|(id, _)| chosen.contains(*id))
            .collect();
        let mut lines = Vec::new();
        // What is a secret in one case is none's to read in the events of any.
        for (_, recorded) in &cases {
            let mut case: Case = self.redacted(&*recorded.case)?;
            if !input::is_plain(&case.file) {
                // Where it lay is nobody's business.
                case.file = Arc::new(case.file.file_name().map(PathBuf::from).unwrap_or_default());
            }
            lines.push(Line::Planned(Box::new(case)));
        }
        for (number, (id, recorded)) in cases.iter().enumerate() {
            lines.extend(self.case(number, id, recorded)?);
        }
        lines.extend(self.skipped(chosen));
        let room = LAST + compressed(&serde_json::to_vec(&lines)?)?;
        let files: BTreeSet<&Path> = cases.iter().map(|(_, it)| it.case.file.as_path()).collect();
        for (number, file) in (1..).zip(files) {
            self.scenario(number, file, room)?;
        }
        let (failed, others): (Vec<_>, Vec<_>) =
            cases.iter().enumerate().partition(|(_, (_, recorded))| {
                let verdict = recorded.verdict.as_ref();
                verdict.is_none_or(|it| it.case != CaseVerdict::AsExpected)
            });
        for (number, (id, recorded)) in failed.into_iter().chain(others) {
            for path in recorded.artifacts.iter().collect::<IndexSet<_>>() {
                let packed = self.kept(&place(number, id), path, room)?;
                lines.extend(packed.map(|path| Line::Artifact {
                    case: (*id).clone(),
                    path,
                }));
            }
        }
        lines.extend(self.run.finished.map(Line::Finished));
        lines.extend(self.run.ended.clone().map(Line::Ended));
        Ok(lines)
    }

    fn skipped(&self, chosen: &BTreeSet<String>) -> Vec<Line> {
        let all = chosen.len() == self.run.cases.len();
        let skipped = self.run.skipped.iter().filter(|_| all);
        skipped.cloned().map(Line::Skipped).collect()
    }

    /// The events of a case, which are packed, and its verdict.
    fn case(&mut self, number: usize, id: &str, recorded: &Recorded) -> anyhow::Result<Vec<Line>> {
        let case = id.to_owned();
        let mut lines = Vec::new();
        let events = recorded.history.events()?;
        if recorded.history.has_begun() {
            let mut text = Vec::new();
            for event in events.iter() {
                serde_json::to_writer(&mut text, &self.without_secrets(event)?)?;
                text.push(b'\n');
            }
            let path = format!("{}/events.jsonl", place(number, id));
            self.needed(path.as_ref(), &text)?;
            lines.push(Line::History {
                case: case.clone(),
                path,
            });
        }
        if let Some(verdict) = &recorded.verdict {
            let verdict = self.redacted(verdict)?;
            lines.push(Line::Judged { case, verdict });
        }
        Ok(lines)
    }

    fn without_secrets(&mut self, of: &impl Serialize) -> anyhow::Result<Json> {
        let mut value: Json = serde_json::from_str(&serde_json::to_string(of)?)?;
        self.redactor.value(&mut value);
        Ok(value)
    }

    fn redacted<T: Serialize + DeserializeOwned>(&mut self, of: &T) -> anyhow::Result<T> {
        let value = self.without_secrets(of)?;
        Ok(serde_json::from_str(&serde_json::to_string(&value)?)?)
    }

    /// Packs what a bundle cannot be without.
    fn needed(&mut self, path: &Path, contents: &[u8]) -> anyhow::Result<()> {
        if self.pack.add(path, contents, 0)? {
            return Ok(());
        }
        Err(invalid(format!(
            "the histories of these cases have more than {} MB, compressed: name some of the cases",
            MOST / 1_000_000
        )))
    }

    /// Packs a file that was kept, and says where; what is no text stays out, as nobody could say what is in it.
    fn kept(&mut self, place: &str, path: &str, room: u64) -> anyhow::Result<Option<String>> {
        let opened = input::open_below(self.folder, Path::new(path), LONGEST);
        let read = opened.and_then(|mut file| {
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| text)
        });
        let name = Path::new(path).file_name().unwrap_or_default();
        let inside = format!("{place}/{}", name.to_string_lossy());
        let packed = self.beside(&inside, path, read.map_err(|why| why.to_string()), room)?;
        Ok(packed.then_some(inside))
    }

    /// Packs a scenario's file, for readers: the run does without. Which it is stands in the run, which may be somebody else's: only what lies
    /// below the current folder is read. One that was changed since is not what was run.
    fn scenario(&mut self, number: usize, file: &Path, room: u64) -> anyhow::Result<()> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let path = format!("scenarios/{number}-{name}");
        self.beside(&path, &name, self.scenario_text(file), room)
            .map(drop)
    }

    /// Packs a text that a bundle can be without, while there is room for it; else says why that of this name is not there.
    fn beside(
        &mut self,
        path: &str,
        name: &str,
        text: Result<String, String>,
        room: u64,
    ) -> anyhow::Result<bool> {
        let why = match text {
            Ok(text) => {
                let text = self.redactor.text(&text);
                if self.pack.add(path.as_ref(), text.as_bytes(), room)? {
                    return Ok(true);
                }
                "no room for it".to_owned()
            }
            Err(why) => why,
        };
        self.left_out.push(format!("{name}: {why}"));
        Ok(false)
    }

    fn scenario_text(&self, file: &Path) -> Result<String, String> {
        if !input::is_plain(file) {
            return Err("it is not below the current folder".to_owned());
        }
        let opened = input::open_below(Path::new("."), file, SCENARIO);
        let mut opened = opened.map_err(|why| why.to_string())?;
        let changed = opened.get_ref().metadata().and_then(|it| it.modified());
        if changed.is_ok_and(|it| it > SystemTime::from(self.run.header.started)) {
            return Err("it was changed since".to_owned());
        }
        let mut text = String::new();
        opened
            .read_to_string(&mut text)
            .map_err(|why| why.to_string())?;
        if text.contains("Secret") {
            return Err(
                "it may have a Secret in it, which the run has without its values".to_owned(),
            );
        }
        Ok(text)
    }

    /// The archive, and what is told of it.
    fn end(mut self) -> anyhow::Result<(Vec<u8>, String)> {
        let left_out = self.left_out.iter().map(|it| format!("left out: {it}\n"));
        let mut told: String = left_out.collect();
        if self.redactor.secrets > 0 {
            let secrets = count(self.redactor.secrets, "secret");
            told = format!("{told}{secrets} taken out: look whether these were all\n");
        }
        let header = &self.run.header;
        let began = header.started.strftime("%Y-%m-%d %H:%M:%S UTC");
        let readme = format!(
            "A run of {} that began {began}.\n\nchainbreak run FILE plays its cases again, with their seeds, and says what came out \
             otherwise.\nUnpacked, it is the folder of a run: chainbreak report bundle; chainbreak explain FROM TO:PORT bundle.\n\n{told}",
            header.tool,
        );
        self.pack.add("README.txt".as_ref(), readme.as_bytes(), 0)?;
        Ok((self.pack.end()?, told))
    }
}

/// The folder of a case in the bundle.
fn place(number: usize, id: &str) -> String {
    let name = reports::folder_name(id);
    if name.len() <= FOLDER {
        return name;
    }
    let begin: String = name.chars().take(FOLDER).collect();
    format!("{number}-{begin}")
}
