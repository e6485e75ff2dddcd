//! A scenario of what was found, in a file.

use std::path::Path;

use anyhow::Result;
use chainbreak_diagnose::{Evidence, Finding, Reproduction};
use chainbreak_engine::shell::quoted;

use crate::{cases::invalid, new};

/// What the scenario is called where its file's name says nothing.
const NAME: &str = "as-found";
/// No name is longer.
const LONGEST: usize = 63;

/// Writes it, and says what comes next. A file that is there already stays as it is.
pub(super) fn write(file: &Path, evidence: &Evidence, findings: &[Finding]) -> Result<()> {
    let none = |why: String| invalid(format!("no scenario can be written: {why}"));
    let found = Reproduction::of(evidence, findings).map_err(none)?;
    let name = name(file);
    let left = found.left.join(", ");
    let mut text = found.scenario(&name);
    if new::read(file, &text).is_err() {
        text = found.without_felix_configuration().scenario(&name);
        new::read(file, &text).map_err(|why| none(why.to_string()))?;
        crate::note("FelixConfiguration is not in the scenario, which does not take all of it");
    }
    new::write(file, &text)?;
    if !left.is_empty() {
        crate::note(&format!("no step of the scenario brings about {left}"));
    }
    let shown = file.display().to_string();
    let quoted = quoted(&shown);
    crate::note(&format!(
        "{shown} plays what was found: chainbreak run {quoted}"
    ));
    Ok(())
}

/// The file's name without what no name of a scenario has.
fn name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let stem = stem.to_lowercase();
    let words = stem.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|it| !it.is_empty()).collect();
    let mut name = words.join("-");
    name.truncate(LONGEST);
    name.truncate(name.trim_end_matches('-').len());
    if name.is_empty() {
        name.push_str(NAME);
    }
    name
}
