//! `chainbreak bundle`: what somebody else needs to see a run and to play it again, in one file; and playing it.
//!
//! Its history has every case whole, with all objects and versions: no file of the scenario's is needed. Unpacked, it is the folder of a
//! run as any other.

mod contents;
mod redact;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use chainbreak_model::{
    case::{AgentSource, Capabilities, Case},
    names::AgentName,
    plan::{self, Choice, Planned, Skipped},
};
use chainbreak_report::{
    Run,
    parity::{Side, compare, render},
    summary,
    text::count,
    write_atomically,
};
use tempfile::TempDir;

use crate::{
    archive,
    args::{self, Players, named::patterns, selection::Selection},
    cases::{invalid, named_among},
    reports,
};

/// `chainbreak bundle`.
pub(crate) fn bundle(args: &args::Bundle) -> anyhow::Result<ExitCode> {
    let (run, file) = reports::read(&args.run)?;
    let ids: Vec<String> = run.begun().map(|(id, _)| id.clone()).collect();
    let named = patterns(args.cases.clone());
    let chosen = named_among(&named, &ids, "the run has no such case")?;
    if chosen.is_empty() {
        return Err(invalid(format!(
            "{} has no case that was run",
            args.run.display()
        )));
    }
    let (bytes, told) = contents::of(&run, reports::folder(&file), &chosen)?;
    let default = || {
        PathBuf::from(
            run.header
                .started
                .strftime("chainbreak-%Y%m%d-%H%M%S.tgz")
                .to_string(),
        )
    };
    let out = args.out.clone().unwrap_or_else(default);
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

/// A bundle that was opened, as long as this is there.
pub(crate) struct Opened {
    run: Run,
    file: PathBuf,
    _folder: TempDir,
}

impl Opened {
    /// As [`Self::named`], for a run: how often the cases of a bundle of repetitions run, it says itself.
    pub(crate) fn to_run(args: &args::Run) -> anyhow::Result<Option<Self>> {
        let bundle = Self::named(&args.selection)?;
        let cases = bundle.iter().flat_map(|it| it.run.cases.values());
        let has_repetitions = cases.map(|it| it.case.repetition).any(|it| it.is_some());
        if has_repetitions && args.repetition.times() > 1 {
            return Err(invalid(
                "the bundle says itself how often its cases run: neither --repeat nor --until-fails has a place beside it",
            ));
        }
        Ok(bundle)
    }

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
            ("--varying", !selection.varying.is_empty()),
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

    /// What becomes of its cases here.
    pub(crate) fn planned(&self, choice: &Choice, capabilities: &Capabilities) -> Vec<Planned> {
        let cases = self.run.cases.values().map(|it| (*it.case).clone());
        let planned = cases.map(|case| match not_elsewhere(&case) {
            Some(why) => Planned::Skip(Skipped {
                id: case.id(),
                outside: vec![why],
                missing: Vec::new(),
            }),
            None => plan::again(case, choice, capabilities),
        });
        planned.collect()
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

/// Why a case of somebody else's bundle is not played: its reader would have asked for less, or what it names is not here.
fn not_elsewhere(case: &Case) -> Option<String> {
    if !case.cluster.host_sysctls.is_empty() {
        return Some(
            "changes settings of the machine, which a bundle may not: run its scenario".to_owned(),
        );
    }
    let missing = |agent: &AgentName| match case.cluster.source(*agent)? {
        AgentSource::Path(path) if !Path::new(path).exists() => {
            Some(format!("{agent} was {}, which is not here", path.display()))
        }
        _ => None,
    };
    AgentName::ALL.iter().find_map(missing)
}
