//! What `check`, `list` and `plan` answer as documents. `docs/reports.md` has their members.

use std::path::Path;

use chainbreak_engine::backend::Doing;
use chainbreak_model::{
    Diagnostic, Diagnostics,
    case::CaseId,
    plan::{Missing, Planned, Skipped},
};
use indexmap::IndexMap;
use serde::Serialize;

use super::read::Read;
use crate::doctor::in_parts;

/// What `check` found.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Checked {
    /// How many files were read.
    scenarios: usize,
    mistakes: Vec<Mistake>,
    /// How many there are beside these: of a file the first are told.
    more: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Mistake {
    file: String,
    /// Nothing where it is one of the whole file.
    line: Option<usize>,
    column: Option<usize>,
    message: String,
    hint: Option<String>,
}

impl Checked {
    pub(super) fn of(read: &Read) -> Self {
        let wrong = read.wrong.iter();
        let mistakes = wrong.flat_map(|file| file.iter().map(Mistake::of));
        let namesakes = read.namesakes().into_iter();
        let namesakes = namesakes.map(|(scenario, message)| Mistake {
            file: shown(&scenario.file),
            line: None,
            column: None,
            message,
            hint: None,
        });
        Self {
            scenarios: read.files,
            mistakes: mistakes.chain(namesakes).collect(),
            more: read.wrong.iter().map(Diagnostics::more).sum(),
        }
    }

    /// Whether every file can be used.
    pub(super) fn is_well(&self) -> bool {
        self.mistakes.is_empty()
    }
}

impl Mistake {
    fn of(diagnostic: &Diagnostic) -> Self {
        let (line, column) = diagnostic.line_and_column();
        Self {
            file: shown(diagnostic.file()),
            line: Some(line),
            column: Some(column),
            message: diagnostic.message().to_owned(),
            hint: diagnostic.hint_text(),
        }
    }
}

/// What `plan` says.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Plan<'a> {
    run: Vec<Listed<'a>>,
    skip: Vec<Listed<'a>>,
}

impl<'a> Plan<'a> {
    /// Of cases with their ids.
    pub(super) fn of(planned: &'a [(String, Planned)], rehearsed: Vec<Vec<Doing>>) -> Self {
        let (mut run, mut skip) = (Vec::new(), Vec::new());
        let mut rehearsed = rehearsed.into_iter();
        for (id, plan) in planned {
            match plan {
                Planned::Run(case) => run.push(Listed {
                    does: rehearsed.next(),
                    ..Listed::of(id, Some(case.file.as_path()))
                }),
                Planned::Skip(skipped) => skip.push(Listed::skipped(id, skipped)),
            }
        }
        Self { run, skip }
    }
}

/// A case of `list` and `plan`: how it is called, whole and in parts, and where it comes from.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Listed<'a> {
    case: &'a str,
    scenario: &'a str,
    variant: &'a str,
    matrix: IndexMap<&'a str, &'a str>,
    /// Nothing of a case that is skipped, which a plan knows by its id alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// Of a case that would run in a cluster of others: what it does there.
    #[serde(skip_serializing_if = "Option::is_none")]
    does: Option<Vec<Doing>>,
    /// Of a case that is skipped: why it is not meant to run like this.
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<&'a [String]>,
    /// Of a case that is skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Vec<Lacking<'a>>>,
}

/// What is not there.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Lacking<'a> {
    capability: &'a str,
    reason: &'a str,
    hint: Option<&'a str>,
}

impl<'a> Listed<'a> {
    pub(super) fn of(id: &'a str, file: Option<&Path>) -> Self {
        let CaseId {
            scenario,
            variant,
            cell,
            ..
        } = CaseId::of(id);
        Self {
            case: id,
            scenario,
            variant,
            matrix: cell,
            file: file.map(shown),
            does: None,
            outside: None,
            missing: None,
        }
    }

    fn skipped(id: &'a str, skipped: &'a Skipped) -> Self {
        let missing = skipped.missing.iter().map(Lacking::of).collect();
        Self {
            outside: Some(skipped.outside.as_slice()),
            missing: Some(missing),
            ..Self::of(id, None)
        }
    }
}

impl<'a> Lacking<'a> {
    fn of(missing: &'a Missing) -> Self {
        let (reason, hint) = in_parts(&missing.reason);
        Self {
            capability: &missing.capability,
            reason,
            hint,
        }
    }
}

/// What is no UTF-8 has no place in JSON.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
