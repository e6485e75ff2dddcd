//! `chainbreak collect`: the script that makes the dumps of a node.

use std::{os::unix::fs::PermissionsExt, process::ExitCode};

use anyhow::Context;
use chainbreak_report::write_atomically;

use crate::args;

/// What a person runs on a node.
pub(crate) const SCRIPT: &str = include_str!("collect/collect.sh");

/// `chainbreak collect`.
pub(crate) fn collect(args: &args::Collect) -> anyhow::Result<ExitCode> {
    let Some(file) = &args.out else {
        crate::say_as_it_is(SCRIPT)?;
        return Ok(ExitCode::SUCCESS);
    };
    write_atomically(file, SCRIPT.as_bytes())?;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(file, executable)
        .with_context(|| format!("could not make {} executable", file.display()))?;
    crate::say(&format!(
        "{}: on the node, as root: sh {} [FOLDER]\n",
        file.display(),
        file.file_name().unwrap_or_default().to_string_lossy()
    ))?;
    Ok(ExitCode::SUCCESS)
}
