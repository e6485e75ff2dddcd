//! `chainbreak bundle`: what somebody else needs to see a run and to play it again, in one file; and playing it.
//!
//! Its history has every case whole, with all objects and versions: no file of the scenario's is needed. Unpacked, it is the folder of a
//! run as any other.

mod redact;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use anyhow::Context;
use chainbreak_model::{case::Case, input, verdict::CaseVerdict};
use chainbreak_report::{
    FORMAT, Header, LONGEST, Line, Recorded, Recorder, Run,
    parity::{Side, compare, render},
    summary,
    text::count,
    write_atomically,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tempfile::TempDir;

use self::redact::Redactor;
use crate::{
    archive::{self, MOST, Pack},
    args::{self, Players, named::patterns, selection::Selection},
    cases::{invalid, known},
    reports,
};

/// So long may a scenario's file be.
const SCENARIO: u64 = 1 << 20;
/// What tells a reader about it.
const README: &str = "README.txt";

/// `chainbreak bundle`.
pub(crate) fn bundle(args: &args::Bundle) -> anyhow::Result<ExitCode> {
    let (run, file) = reports::read(&args.run)?;
    let ids: Vec<String> = run.cases.keys().cloned().collect();
    let named = patterns(args.cases.clone());
    known(&named, &ids, "the run has no such case")?;
    let is_named =
        |id: &String| named.is_empty() || named.iter().any(|(_, regex)| regex.is_match(id));
    let chosen: BTreeSet<String> = ids.into_iter().filter(is_named).collect();
    if chosen.is_empty() {
        return Err(invalid(format!(
            "{} has no case that was run",
            args.run.display()
        )));
    }
    let file = Contents::of(&run, reports::folder(&file), &chosen)?;
    let default = || {
        PathBuf::from(
            run.header
                .started
                .strftime("chainbreak-%Y%m%d-%H%M%S.tgz")
                .to_string(),
        )
    };
    let out = args.out.clone().unwrap_or_else(default);
    let (bytes, told) = file.packed()?;
    write_atomically(&out, &bytes)?;
    let size = bytes.len() as f64 / 1e6;
    crate::say(&format!(
        "{}: {}, {size:.1} MB\n{told}again: chainbreak run {}\n",
        out.display(),
        count(chosen.len(), "case"),
        out.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What goes into a bundle, without secrets.
struct Contents {
    header: Header,
    /// `run.jsonl`, and the events of its cases: what it cannot be without.
    needed: Vec<(PathBuf, Vec<u8>)>,
    /// Scenarios, and what was kept of cases, of those that failed first.
    besides: Vec<(PathBuf, Vec<u8>)>,
    left_out: Vec<String>,
    redactor: Redactor,
}

impl Contents {
    fn of(run: &Run, folder: &Path, chosen: &BTreeSet<String>) -> anyhow::Result<Self> {
        let header = Header {
            format: FORMAT,
            ..run.header.clone()
        };
        let mut contents = Self {
            header: header.clone(),
            needed: Vec::new(),
            besides: Vec::new(),
            left_out: Vec::new(),
            redactor: Redactor::default(),
        };
        let mut lines = Vec::new();
        let mut recorder = Recorder::begin(&mut lines, &header)?;
        let cases = run.cases.iter().filter(|(id, _)| chosen.contains(*id));
        let (mut of_failed, mut of_others) = (Vec::new(), Vec::new());
        for (id, recorded) in cases.clone() {
            for line in contents.case(id, recorded)? {
                recorder.append(&line)?;
            }
            let failed = recorded
                .verdict
                .as_ref()
                .is_none_or(|it| it.case != CaseVerdict::AsExpected);
            let kept = if failed {
                &mut of_failed
            } else {
                &mut of_others
            };
            for path in recorded.artifacts.iter().collect::<BTreeSet<_>>() {
                kept.extend(contents.kept(folder, path));
            }
        }
        let all = chosen.len() == run.cases.len();
        for skipped in run.skipped.iter().filter(|_| all) {
            recorder.append(&Line::Skipped(skipped.clone()))?;
        }
        let ends = [
            run.finished.map(Line::Finished),
            run.ended.clone().map(Line::Ended),
        ];
        for line in ends.into_iter().flatten() {
            recorder.append(&line)?;
        }
        contents.needed.insert(0, ("run.jsonl".into(), lines));
        let files: BTreeMap<&Path, &Case> = cases
            .map(|(_, it)| (it.case.file.as_path(), &*it.case))
            .collect();
        for file in files.into_keys() {
            contents.scenario(file);
        }
        contents
            .besides
            .extend(of_failed.into_iter().chain(of_others));
        Ok(contents)
    }

    /// The lines of a case in `run.jsonl`; its events are a file.
    fn case(&mut self, id: &str, recorded: &Recorded) -> anyhow::Result<Vec<Line>> {
        let mut case: Case = self.redacted(&*recorded.case)?;
        if case.file.is_absolute() {
            // Whose home it lay in is nobody's business.
            case.file =
                std::sync::Arc::new(case.file.file_name().map(PathBuf::from).unwrap_or_default());
        }
        let mut lines = vec![Line::Planned(Box::new(case))];
        let events = recorded.history.events()?;
        if !events.is_empty() {
            let mut text = Vec::new();
            for event in events.iter() {
                let mut value = serde_json::to_value(event)?;
                self.redactor.value(&mut value);
                serde_json::to_writer(&mut text, &value)?;
                text.push(b'\n');
            }
            let path = reports::events_path(id);
            self.needed.push((PathBuf::from(&path), text));
            lines.push(Line::History {
                case: id.to_owned(),
                path,
            });
        }
        if let Some(verdict) = &recorded.verdict {
            let verdict = self.redacted(verdict)?;
            lines.push(Line::Judged {
                case: id.to_owned(),
                verdict,
            });
        }
        let artifacts = recorded.artifacts.iter().cloned();
        lines.extend(artifacts.map(|path| Line::Artifact {
            case: id.to_owned(),
            path,
        }));
        Ok(lines)
    }

    fn redacted<T: Serialize + DeserializeOwned>(&mut self, of: &T) -> anyhow::Result<T> {
        let mut value: Value = serde_json::to_value(of)?;
        self.redactor.value(&mut value);
        Ok(serde_json::from_value(value)?)
    }

    /// A file that was kept; what is no text stays out, as nobody could say what is in it.
    fn kept(&mut self, folder: &Path, path: &str) -> Option<(PathBuf, Vec<u8>)> {
        let opened = input::open_below(folder, Path::new(path), LONGEST);
        let read = opened.and_then(|mut file| {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut file, &mut text).map(|_| text)
        });
        match read {
            Ok(text) => Some((path.into(), self.redactor.text(&text).into_bytes())),
            Err(why) => {
                self.left_out.push(format!("{path}: {why}"));
                None
            }
        }
    }

    /// A scenario's file, for readers: the run does without. One that was changed since is not what was run.
    fn scenario(&mut self, file: &Path) {
        let began = SystemTime::from(self.header.started);
        let changed = std::fs::metadata(file).and_then(|it| it.modified());
        let text = match (changed, input::read(file, SCENARIO).map(String::from_utf8)) {
            (Ok(changed), _) if changed > began => Err("it was changed since".to_owned()),
            (_, Ok(Ok(text))) => Ok(text),
            (_, Ok(Err(why))) => Err(why.to_string()),
            (_, Err(why)) => Err(why.to_string()),
        };
        match text {
            Ok(text) => {
                let number = self.besides.len() + 1;
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let path = PathBuf::from(format!("scenarios/{number}-{name}"));
                self.besides
                    .push((path, self.redactor.text(&text).into_bytes()));
            }
            Err(why) => self.left_out.push(format!("{}: {why}", file.display())),
        }
    }

    /// The archive, and what is told of it.
    fn packed(mut self) -> anyhow::Result<(Vec<u8>, String)> {
        let made = u64::try_from(self.header.started.as_second()).unwrap_or(0);
        let mut pack = Pack::begin(made);
        for (path, contents) in &self.needed {
            if !pack.add(path, contents)? {
                return Err(invalid(format!(
                    "the histories of these cases have more than {} MB, compressed: name some of the cases",
                    MOST / 1_000_000
                )));
            }
        }
        for (path, contents) in &self.besides {
            if !pack.add(path, contents)? {
                self.left_out
                    .push(format!("{}: no room for it", path.display()));
            }
        }
        let mut told = self.left_out;
        for line in &mut told {
            line.insert_str(0, "left out: ");
        }
        if self.redactor.secrets > 0 {
            let secrets = count(self.redactor.secrets, "secret");
            told.push(format!("{secrets} taken out: look whether these were all"));
        }
        let told: String = told.iter().flat_map(|line| [line, "\n"]).collect();
        let readme = format!(
            "A run of {} that began {}.\n\nchainbreak run FILE plays its cases again, with their seeds, and says what came out otherwise.\n\
             Unpacked, it is the folder of a run: chainbreak report bundle; chainbreak explain FROM TO:PORT bundle.\n\n{told}",
            self.header.tool,
            self.header.started.strftime("%Y-%m-%d %H:%M:%S UTC"),
        );
        pack.add(Path::new(README), readme.as_bytes())?;
        Ok((pack.end()?, told))
    }
}

/// A bundle that was opened, as long as this is there.
pub(crate) struct Opened {
    run: Run,
    file: PathBuf,
    _folder: TempDir,
}

impl Opened {
    /// What a person named, if it is a bundle. Beside it only cases are named: all else it says itself.
    pub(crate) fn named(selection: &Selection) -> anyhow::Result<Option<Self>> {
        let paths = selection.named.paths();
        let Some(file) = paths.iter().find(|path| archive::is_one(path)) else {
            return Ok(None);
        };
        let shown = file.display();
        if paths.len() > 1 {
            return Err(invalid(format!(
                "{shown} is a bundle, and no other path is named beside it"
            )));
        }
        let said = [
            ("--variant", !selection.variants.is_empty()),
            ("--agent", !selection.agents.is_empty()),
            ("--agents real", selection.players == Players::Real),
            ("--matrix", !selection.matrix.is_empty()),
            ("--exclude", !selection.exclude.is_empty()),
            ("--label", selection.named.has_labels()),
            ("--seed", selection.seed != 0),
        ];
        if let Some((option, _)) = said.into_iter().find(|(_, is)| *is) {
            return Err(invalid(format!(
                "{shown} is a bundle, which says itself what runs: {option} has no place beside it"
            )));
        }
        Self::open(file).map(Some)
    }

    fn open(file: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("could not make a folder to unpack in")?;
        archive::unpack(file, folder.path())?;
        let (run, _) = reports::read(folder.path())
            .map_err(|why| invalid(format!("{} is no bundle of a run: {why}", file.display())))?;
        Ok(Self {
            run,
            file: file.to_owned(),
            _folder: folder,
        })
    }

    /// Its cases, as they were planned.
    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        self.run.cases.values().map(|it| (*it.case).clone())
    }

    /// How a run of its cases compares with it.
    pub(crate) fn compared(&self, run: &Run) -> String {
        let mut before: Vec<_> = summary::each(&self.run).collect();
        let now: Vec<_> = summary::each(run).collect();
        before.retain(|it| now.iter().any(|other| other.id == it.id));
        let names = [self.file.display().to_string(), "this run".to_owned()];
        let sides = [(&names[0], &before), (&names[1], &now)];
        let sides = sides.map(|(name, summaries)| Side { name, summaries });
        let compared = render(sides, &compare(sides), reports::terminal());
        format!("\n{compared}")
    }
}
