//! The report of a run as a page.

use std::path::{Path, PathBuf};

use chainbreak_report::{Run, WholeFile, html, term::Overview};

/// How it is called in the run's folder.
pub(super) const NAME: &str = "report.html";

/// Writes it part by part: the events of one case are in memory at a time.
pub(super) fn write(run: &Run, overview: &Overview, folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join(NAME);
    let mut file = WholeFile::begin(&path)?;
    for part in html::page(run, overview) {
        file.append(part.as_bytes())?;
    }
    file.finish()?;
    Ok(path)
}
