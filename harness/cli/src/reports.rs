//! Writing the reports of a run, and writing them again from its folder.

#[cfg(feature = "html")]
mod page;
mod texts;

use std::{
    collections::BTreeMap,
    io::{BufReader, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
};

use chainbreak_engine::run::Artifact;
use chainbreak_model::{event::EventKind, input};
use chainbreak_report::{
    Run, SummaryFile, WholeFile, exit_code, history,
    junit::{self, Junit},
    summary,
    term::{Colour, Overview, Terminal},
};

use self::texts::Texts;
use crate::{args, cases};

/// The files of a run, beside those of its cases.
#[cfg(not(feature = "html"))]
const FILES: [&str; 4] = ["run.jsonl", "junit.xml", "report.txt", "summary.json"];
#[cfg(feature = "html")]
const FILES: [&str; 5] = [
    "run.jsonl",
    "junit.xml",
    "report.txt",
    "summary.json",
    page::NAME,
];

/// So long may a `run.jsonl` be: those of format 1 have the events of all cases in it.
const RUN: u64 = 4 << 30;
/// Line width where no terminal says one.
const WIDTH: usize = 140;

/// Writes every report into the run's folder and, if asked, the human one to standard output. One case is in memory at a
/// time: what comes back of each is short.
pub(crate) fn write(run: &Run, folder: &Path, print: bool) -> anyhow::Result<Overview> {
    let paths = FILES.map(|name| folder.join(name));
    let [_, junit, text, summary, ..] = &paths;
    let (mut suites, mut junit) = (Junit::of(run), WholeFile::begin(junit)?);
    junit.append(junit::HEAD.as_bytes())?;
    let (mut values, mut summaries) = (SummaryFile::of(run), WholeFile::begin(summary)?);
    summaries.append(values.head()?.as_bytes())?;
    let mut texts = Texts::begin(folder, print)?;
    let mut overview = Overview::default();
    for summary in summary::each(run) {
        junit.append(suites.case(&summary)?.as_bytes())?;
        summaries.append(values.case(&summary)?.as_bytes())?;
        texts.case(&summary)?;
        overview.add(summary);
    }
    junit.append(suites.end()?.as_bytes())?;
    junit.finish()?;
    summaries.append(values.end(overview.cases())?.as_bytes())?;
    summaries.finish()?;
    texts.write(run, &overview, text)?;
    #[cfg(feature = "html")]
    page::write(run, &overview, folder)?;
    texts.print(&overview, &paths.map(|path| path.display().to_string()))?;
    Ok(overview)
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
    let source = input::open(&file, RUN).map_err(|why| cannot("open", &why))?;
    let run =
        Run::read(BufReader::new(source), folder(&file)).map_err(|why| cannot("read", &why))?;
    Ok((run, file))
}

/// The folder of a run's file.
pub(crate) fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// `chainbreak report`.
pub(crate) fn again(args: &args::Report) -> anyhow::Result<ExitCode> {
    let (run, file) = read(&args.run)?;
    let overview = if args.html {
        page_alone(&run, folder(&file))?
    } else {
        write(&run, folder(&file), true)?
    };
    Ok(ExitCode::from(exit_code(overview.cases())))
}

/// Writes the page and nothing else, and says where it is.
#[cfg(feature = "html")]
fn page_alone(run: &Run, folder: &Path) -> anyhow::Result<Overview> {
    let mut overview = Overview::default();
    summary::each(run).for_each(|summary| overview.add(summary));
    let path = page::write(run, &overview, folder)?;
    crate::tell(&format!("{}\n", path.display()))?;
    Ok(overview)
}

#[cfg(not(feature = "html"))]
fn page_alone(_run: &Run, _folder: &Path) -> anyhow::Result<Overview> {
    Err(cases::invalid(crate::without_features::HTML))
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

/// The agents' logs in the events of a case, a file for each agent and node.
pub(crate) fn logs(folder: &Path, events: &Path) -> anyhow::Result<Vec<Artifact>> {
    let mut logs = BTreeMap::<String, String>::new();
    for event in history::each(folder, events)? {
        if let EventKind::Log(entry) = event?.what {
            let log = logs
                .entry(format!("{}-{}.log", entry.node, entry.agent))
                .or_default();
            log.push_str(&entry.text);
            log.push('\n');
        }
    }
    let logs = logs.into_iter();
    Ok(logs.map(|(name, text)| Artifact { name, text }).collect())
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

/// Where the events of a case are, in the folder of its run.
pub(crate) fn events_path(id: &str) -> String {
    format!("{}/events.jsonl", folder_name(id))
}

#[cfg(all(test, not(feature = "html")))]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_page_says_so_to_whoever_wants_it() {
        let folder = tempfile::tempdir().unwrap();
        let header = r#"{"format":2,"tool":"x","seed":0,"started":"2026-01-01T00:00:00Z"}"#;
        std::fs::write(folder.path().join("run.jsonl"), format!("{header}\n")).unwrap();
        let run = folder.path().to_owned();
        let refused = again(&args::Report { run, html: true }).unwrap_err();
        assert_eq!(refused.to_string(), crate::without_features::HTML);
    }
}
