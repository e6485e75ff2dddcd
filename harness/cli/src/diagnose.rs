//! `chainbreak diagnose`: what is wrong with a node, by what people attach of it.

mod recorded;
mod told;
mod written;

use std::{path::Path, process::ExitCode};

use chainbreak_diagnose::{Evidence, findings, writers};
use chainbreak_report::text::document;

use self::told::{Found, Told};
use crate::{
    args::{self, Answer},
    attached, cases,
};

/// `chainbreak diagnose`.
pub(crate) fn diagnose(args: &args::Diagnose) -> anyhow::Result<ExitCode> {
    let evidence = evidence(args)?;
    let scenarios = match args.catalogue() {
        Some(path) => cases::all_under(&path)?,
        None => Vec::new(),
    };
    let found = findings(&evidence);
    let told = Told {
        writers: writers(&evidence),
        findings: found
            .iter()
            .map(|finding| Found::of(finding, &scenarios))
            .collect(),
        missing: told::missing(&evidence),
    };
    match args.format {
        Answer::Human => crate::say(&told.human())?,
        Answer::Json => crate::say_as_it_is(&document(&told)?)?,
    }
    if let Some(file) = &args.write {
        written::write(file, &evidence, &found)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn evidence(args: &args::Diagnose) -> anyhow::Result<Evidence> {
    if let [only] = args.what.as_slice()
        && is_run(only)
    {
        return recorded::evidence(args, only);
    }
    if args.case.is_some() || args.at.is_some() || args.node.is_some() {
        return Err(cases::invalid(
            "--case, --at and --node are of a recorded run, which is named alone",
        ));
    }
    let mut evidence = Evidence::default();
    let known = attached::texts(&args.what, &mut |name, text| match evidence.add(text) {
        Ok(known) => Ok(known),
        Err(error) => {
            crate::note(&format!(
                "{}, {error}: its rules are not whole, and left out",
                name.display()
            ));
            Ok(false)
        }
    })?;
    if known == 0 {
        return Err(attached::nothing_in(&args.what, "nothing that is known"));
    }
    Ok(evidence)
}

fn is_run(path: &Path) -> bool {
    path.join("run.jsonl").is_file() || path.file_name().is_some_and(|it| it == "run.jsonl")
}
