//! What GitHub is told of a run, where it runs there: annotations on standard error, which the runner reads as well as standard
//! output, and the summary of the step.

use std::{env, fs::OpenOptions, io::Write, path::Path};

use anyhow::Context;
use chainbreak_engine::shell::quoted;
use chainbreak_report::{
    Run,
    github::{Failed, LARGEST},
    summary::{self, Summary},
};

/// Tells it of a run whose cases came to this; nothing where GitHub does not run it. `again` runs a case again, up to its name.
pub(crate) fn tell(run: &Run, cases: &[Summary], again: &str) {
    if !is_here() {
        return;
    }
    let failed = failed(run, cases, Some(again));
    for line in failed.annotations() {
        crate::note_as_it_is(&line);
    }
    summarise(&failed, cases);
}

/// The same of a run that was made of others: who ran these has annotated them.
pub(crate) fn tell_merged(run: &Run, cases: &[Summary]) {
    if is_here() {
        summarise(&failed(run, cases, None), cases);
    }
}

fn is_here() -> bool {
    env::var("GITHUB_ACTIONS").as_deref() == Ok("true")
}

/// Of a case that is over only its outcome is in memory: those that did not come out as expected are read again.
fn failed(run: &Run, cases: &[Summary], again: Option<&str>) -> Failed {
    let mut failed = Failed::default();
    for case in cases.iter().filter(|case| case.outcome.has_failed()) {
        let Some(summary) = summary::of(run, &case.id) else {
            continue;
        };
        let again = again.map(|again| format!("{again} {}", quoted(summary.case())));
        failed.add(&with_whole_path(summary), again.as_deref());
    }
    failed
}

/// What cannot be written is complained of: it is not what the exit code is about.
fn summarise(failed: &Failed, cases: &[Summary]) {
    let step = env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty());
    if let Some(path) = step
        && let Err(error) = append(Path::new(&path), |room| failed.markdown(cases, room))
    {
        crate::complain(&crate::in_full(&error));
    }
}

/// The runner makes of a whole path one of the repository's; it does not know in which folder a step runs.
fn with_whole_path(summary: Summary) -> Summary {
    let file = summary.file.map(|file| match std::path::absolute(&file) {
        Ok(whole) => whole.display().to_string(),
        Err(_) => file,
    });
    Summary { file, ..summary }
}

/// Adds a page to the summary of the step, as long as what is there leaves room for.
fn append(path: &Path, page: impl FnOnce(usize) -> String) -> anyhow::Result<()> {
    let cannot = || format!("could not write {}", path.display());
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let mut file = opened.with_context(cannot)?;
    let there = file.metadata().with_context(cannot)?.len();
    let room = LARGEST.saturating_sub(usize::try_from(there).unwrap_or(usize::MAX));
    file.write_all(page(room).as_bytes()).with_context(cannot)
}
