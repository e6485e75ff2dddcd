//! `chainbreak merge`: one run of several, with its reports.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::Path,
    process::ExitCode,
};

use anyhow::Context;
use chainbreak_report::{Ended, Header, Line, Recorder, Run, exit_code};

use crate::{args, cases, reports, run};

/// Writes the whole.
pub(crate) fn merge(args: &args::Merge) -> anyhow::Result<ExitCode> {
    let parts = args.runs.iter().map(|path| reports::read(path));
    let parts = parts.collect::<anyhow::Result<Vec<_>>>()?;
    let header = parts
        .iter()
        .map(|(part, _)| part.header.clone())
        .reduce(both)
        .expect("the command line asks for one");
    let mut whole = Run::new(header);
    for (part, file) in &parts {
        let lines = lines(part).into_iter();
        let added = lines
            .map(|line| whole.add(line))
            .collect::<Result<Vec<()>, String>>();
        added.map_err(|why| {
            cases::invalid(format!("{}: {why} (in an earlier run)", file.display()))
        })?;
    }
    whole.ended = ended(&parts);
    let folder = run::folder(&args.out)?;
    record(&whole, &folder)?;
    for (part, file) in &parts {
        let from = file.parent().unwrap_or(Path::new("."));
        let artifacts = part.cases.values().flat_map(|case| &case.artifacts);
        for artifact in artifacts {
            copy(from, &folder, artifact)?;
        }
    }
    run::latest(&args.out, &folder);
    let summaries = reports::write(&whole, &folder, true)?;
    Ok(ExitCode::from(exit_code(&summaries)))
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

/// A run as the lines that made it, but for its end.
fn lines(part: &Run) -> Vec<Line> {
    let mut lines: Vec<Line> = part.skipped.iter().cloned().map(Line::Skipped).collect();
    for (id, recorded) in &part.cases {
        lines.push(Line::Planned(Box::new(recorded.case.clone())));
        let events = recorded.events.iter().cloned();
        lines.extend(events.map(|event| Line::Event {
            case: id.clone(),
            event,
        }));
        let artifacts = recorded.artifacts.iter().cloned();
        lines.extend(artifacts.map(|path| Line::Artifact {
            case: id.clone(),
            path,
        }));
    }
    lines
}

/// The whole is complete when every part is; one that was killed leaves no end, and so does the whole.
fn ended(parts: &[(Run, std::path::PathBuf)]) -> Option<Ended> {
    let mut ends = Vec::new();
    for (part, _) in parts {
        ends.push(part.ended.clone()?);
    }
    let interrupted = ends.into_iter().find(|end| *end != Ended::Complete);
    Some(interrupted.unwrap_or(Ended::Complete))
}

fn record(whole: &Run, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join("run.jsonl");
    let file = File::create(&path).with_context(|| format!("could not make {}", path.display()))?;
    let mut recorder = Recorder::begin(BufWriter::new(file), &whole.header)?;
    for line in lines(whole) {
        recorder.append(&line)?;
    }
    if let Some(ended) = &whole.ended {
        recorder.append(&Line::Ended(ended.clone()))?;
    }
    Ok(())
}

/// Copies a kept file; a part may have come without it.
fn copy(from: &Path, to: &Path, artifact: &str) -> anyhow::Result<()> {
    let (source, target) = (from.join(artifact), to.join(artifact));
    if !source.exists() {
        crate::note(&format!("{} is not there any more", source.display()));
        return Ok(());
    }
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(&source, &target).map(drop).with_context(|| {
        format!(
            "could not copy {} to {}",
            source.display(),
            target.display()
        )
    })
}
