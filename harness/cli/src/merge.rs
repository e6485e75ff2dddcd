//! `chainbreak merge`: one run of several, with its reports.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufWriter, Read, Take},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use chainbreak_model::input;
use chainbreak_report::{
    Ended, FORMAT, Header, History, LONGEST, Line, Recorded, Recorder, Run, exit_code,
};
use jiff::Timestamp;

use crate::{args, cases, github, reports, run};

/// Writes the whole.
pub(crate) fn merge(args: &args::Merge) -> anyhow::Result<ExitCode> {
    let parts = args.runs.iter().map(|path| reports::read(path));
    let parts = parts.collect::<anyhow::Result<Vec<_>>>()?;
    let header = parts
        .iter()
        .map(|(part, _)| part.header.clone())
        .reduce(both)
        .expect("the command line asks for one");
    distinct(&parts)?;
    let folder = run::folder(&args.out)?;
    let mut whole = Whole::begin(&folder, header)?;
    for (part, file) in &parts {
        for skipped in &part.skipped {
            whole.line(Line::Skipped(skipped.clone()))?;
        }
        for (id, recorded) in &part.cases {
            whole.case(id, recorded, file)?;
        }
    }
    if let Some(at) = finished(&parts) {
        whole.line(Line::Finished(at))?;
    }
    if let Some(ended) = ended(&parts) {
        whole.line(Line::Ended(ended))?;
    }
    let whole = whole.run;
    run::latest(&args.out, &folder);
    let overview = reports::write(&whole, &folder, true)?;
    github::tell_merged(&whole, overview.cases());
    Ok(ExitCode::from(exit_code(overview.cases())))
}

/// A case is in one part only.
fn distinct(parts: &[(Run, PathBuf)]) -> anyhow::Result<()> {
    let mut known = BTreeSet::new();
    for (part, file) in parts {
        for id in part.cases.keys() {
            if !known.insert(id) {
                return Err(cases::invalid(format!(
                    "{}: case {id} is planned twice (in an earlier run)",
                    file.display()
                )));
            }
        }
    }
    Ok(())
}

/// The run that is made of the parts.
struct Whole<'a> {
    folder: &'a Path,
    recorder: Recorder<BufWriter<File>>,
    run: Run,
}

impl<'a> Whole<'a> {
    fn begin(folder: &'a Path, header: Header) -> anyhow::Result<Self> {
        let path = folder.join("run.jsonl");
        let file =
            File::create(&path).with_context(|| format!("could not make {}", path.display()))?;
        let header = Header {
            format: FORMAT,
            ..header
        };
        Ok(Self {
            folder,
            recorder: Recorder::begin(BufWriter::new(file), &header)?,
            run: Run::new(header),
        })
    }

    fn line(&mut self, line: Line) -> anyhow::Result<()> {
        self.recorder.append(&line)?;
        self.run.add(line, self.folder).map_err(anyhow::Error::msg)
    }

    /// Adds a case of the part that is in that file, with its events and what was kept for it.
    fn case(&mut self, id: &str, recorded: &Recorded, part: &Path) -> anyhow::Result<()> {
        self.line(Line::Planned(Box::new((*recorded.case).clone())))?;
        self.history(id, &recorded.history)?;
        if let Some(verdict) = recorded.verdict.clone() {
            let case = id.to_owned();
            self.line(Line::Judged { case, verdict })?;
        }
        let mut known = BTreeSet::new();
        let artifacts = recorded.artifacts.iter();
        for path in artifacts.filter(|path| known.insert(*path)) {
            let kept = open(reports::folder(part), Path::new(path))?;
            if let Some(mut kept) = kept {
                write(&self.folder.join(path), &mut kept)?;
            }
            let (case, path) = (id.to_owned(), path.clone());
            self.line(Line::Artifact { case, path })?;
        }
        Ok(())
    }

    /// A case that never began has no events; those of an older run are in the midst of it.
    fn history(&mut self, id: &str, history: &History) -> anyhow::Result<()> {
        let path = reports::events_path(id);
        let target = self.folder.join(&path);
        match history {
            History::Here(events) if events.is_empty() => return Ok(()),
            History::Here(events) => {
                let lines = events.iter().map(serde_json::to_string);
                let lines = lines.collect::<Result<Vec<_>, _>>()?;
                let text = lines.join("\n") + "\n";
                write(&target, &mut text.as_bytes())?;
            }
            History::In(folder, file) => {
                if let Some(mut events) = open(folder, file)? {
                    write(&target, &mut events)?;
                }
            }
        }
        let case = id.to_owned();
        self.line(Line::History { case, path })
    }
}

/// The header of two runs: it began with the first, and on all of their machines.
fn both(one: Header, other: Header) -> Header {
    let mut host = one.host;
    for (fact, value) in other.host {
        let known = host.entry(fact).or_default();
        let has = known.split(", ").any(|it| it == value);
        if !has {
            let comma = if known.is_empty() { "" } else { ", " };
            *known = format!("{known}{comma}{value}");
        }
    }
    Header {
        started: one.started.min(other.started),
        host,
        ..one
    }
}

/// When the last part was over, where each says when it was.
fn finished(parts: &[(Run, PathBuf)]) -> Option<Timestamp> {
    let each = parts.iter().map(|(part, _)| part.finished);
    let each: Option<Vec<Timestamp>> = each.collect();
    each?.into_iter().max()
}

/// The whole is complete when every part is; one that was killed leaves no end, and so does the whole.
fn ended(parts: &[(Run, PathBuf)]) -> Option<Ended> {
    let mut ends = Vec::new();
    for (part, _) in parts {
        ends.push(part.ended.clone()?);
    }
    let interrupted = ends.into_iter().find(|end| *end != Ended::Complete);
    Some(interrupted.unwrap_or(Ended::Complete))
}

/// Opens a file of a part, which may have come without it. A part is somebody else's: a link in it could lead anywhere.
fn open(folder: &Path, path: &Path) -> anyhow::Result<Option<Take<File>>> {
    let shown = folder.join(path);
    match input::open_below(folder, path, LONGEST) {
        Ok(file) => Ok(Some(file)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            crate::note(&format!("{} is not there any more", shown.display()));
            Ok(None)
        }
        Err(why) => Err(cases::invalid(format!(
            "could not read {}: {why}",
            shown.display()
        ))),
    }
}

/// Writes a file of the whole. None is written twice: a part names no file of another one.
fn write(target: &Path, contents: &mut dyn Read) -> anyhow::Result<()> {
    let folder = reports::folder(target);
    fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    let mut file =
        File::create_new(target).with_context(|| format!("could not make {}", target.display()))?;
    io::copy(contents, &mut file)
        .map(drop)
        .with_context(|| format!("could not write {}", target.display()))
}
