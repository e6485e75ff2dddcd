//! Writing the reports of a run, and writing them again from its `run.jsonl`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
};

use chainbreak_engine::run::Artifact;
use chainbreak_model::event::{Event, EventKind};
use chainbreak_report::{
    Run, exit_code, junit,
    summary::{Summary, summaries},
    term::{self, Colour, Terminal},
    write_atomically,
};

use crate::{args, cases};

/// Line width where no terminal says one.
const WIDTH: usize = 140;

/// Writes every report into the run's folder and, if asked, the human one to standard output.
pub(crate) fn write(run: &Run, folder: &Path, print: bool) -> anyhow::Result<Vec<Summary>> {
    let summaries = summaries(run);
    let junit = folder.join("junit.xml");
    write_atomically(&junit, junit::render(run, &summaries)?.as_bytes())?;
    let story = folder.join("report.txt");
    let plain = Terminal {
        width: WIDTH,
        colour: Colour::Off,
    };
    let stories = term::stories(&summaries, plain);
    write_atomically(&story, stories.as_bytes())?;
    if print {
        let paths = [folder.join("run.jsonl"), junit, story];
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        crate::tell(&term::render(&summaries, &paths, terminal()))?;
    }
    Ok(summaries)
}

/// A run read back, and its file: that of a folder is its `run.jsonl`.
pub(crate) fn read(run: &Path) -> anyhow::Result<(Run, PathBuf)> {
    let file = if run.is_dir() {
        run.join("run.jsonl")
    } else {
        run.to_owned()
    };
    let cannot = |what, why: &dyn std::fmt::Display| {
        cases::invalid(format!("could not {what} {}: {why}", file.display()))
    };
    let source = File::open(&file).map_err(|why| cannot("open", &why))?;
    let run = Run::read(BufReader::new(source)).map_err(|why| cannot("read", &why))?;
    Ok((run, file))
}

/// `chainbreak report`.
pub(crate) fn again(args: &args::Report) -> anyhow::Result<ExitCode> {
    let (run, file) = read(&args.run)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let summaries = write(&run, folder, true)?;
    Ok(ExitCode::from(exit_code(&summaries)))
}

/// Colours in a terminal, unless `NO_COLOR` says no; never in a pipe.
pub(crate) fn terminal() -> Terminal {
    let is_terminal = std::io::stdout().is_terminal();
    let colour = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let size = terminal_size::terminal_size();
    Terminal {
        width: size.map_or(WIDTH, |(width, _)| usize::from(width.0)),
        colour: if colour { Colour::On } else { Colour::Off },
    }
}

/// The agents' logs of a case, a file for each agent and node.
pub(crate) fn logs(events: &[Event]) -> Vec<Artifact> {
    let mut logs = BTreeMap::<String, String>::new();
    for event in events {
        if let EventKind::Log(entry) = &event.what {
            let log = logs
                .entry(format!("{}-{}.log", entry.node, entry.agent))
                .or_default();
            log.push_str(&entry.text);
            log.push('\n');
        }
    }
    logs.into_iter()
        .map(|(name, text)| Artifact { name, text })
        .collect()
}

/// A case's id as the name of a folder.
pub(crate) fn folder_name(id: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-._=".contains(c) {
            c
        } else {
            '_'
        }
    };
    id.chars().map(plain).collect()
}
