//! How to run again what did not come out as expected. It is said to whoever ran it, and not written down: what a run of somebody else's
//! says is no command to follow.

use std::{collections::BTreeSet, path::Path};

use chainbreak_engine::shell::quoted;
use chainbreak_report::{
    summary::{Outcome, Summary},
    text::shown,
};

use crate::{
    args::{self, selection::Selection},
    matrix::{flags, passed_on},
};

/// More cases than these are run again by `--failed`.
const MOST: usize = 5;

/// A line for each case of that run which did not come out as expected; of many, and of those that had not begun, one for all of them.
pub(crate) fn told(args: &args::Run, folder: &Path, cases: &[Summary]) -> String {
    let failed = cases.iter().filter(|case| case.outcome.has_failed());
    let failed: BTreeSet<&str> = failed.map(Summary::case).collect();
    let not_begun = cases.iter().any(|it| it.outcome == Outcome::NotBegun);
    let mut which = Vec::new();
    if failed.len() <= MOST {
        which.extend(failed.iter().map(|case| quoted(case)));
    }
    if failed.len() > MOST || not_begun {
        let run = quoted(&folder.display().to_string());
        which.push(format!("--failed={run}"));
    }
    let command = command(args);
    let lines = which.iter().map(|it| format!("again: {command} {it}\n"));
    shown(&lines.collect::<String>())
}

/// What runs a case as it ran here, up to the case's name.
pub(crate) fn command(args: &args::Run) -> String {
    let selection = Selection {
        // The case's name has it.
        variants: Vec::new(),
        ..args.selection.clone()
    };
    let paths = selection.named.paths().into_iter();
    let paths = paths.map(|it| quoted(&it.display().to_string()));
    let mut words = vec!["chainbreak run".to_owned()];
    words.extend(paths);
    words.extend(flags("--matrix", &selection.matrix));
    words.push(passed_on(&selection));
    let allowed = [
        (args.allow_ebpf, "--allow-ebpf"),
        (args.allow_host_changes, "--allow-host-changes"),
    ];
    let allowed = allowed.into_iter().filter(|(is, _)| *is);
    words.extend(allowed.map(|(_, flag)| flag.to_owned()));
    words.retain(|it| !it.is_empty());
    words.join(" ")
}
