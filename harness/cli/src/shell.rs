//! `chainbreak shell`.

use std::process::ExitCode;

use chainbreak_lab::registry;

use crate::{args::Shell, say};

/// Goes into a place, or says what there is.
pub(crate) fn shell(args: &Shell) -> anyhow::Result<ExitCode> {
    if args.list {
        say(&registry::listed())?;
    } else if args.kubeconfig {
        say(&registry::kubeconfig()?)?;
    } else {
        return Ok(registry::shell(args.place.as_deref(), &args.command)?);
    }
    Ok(ExitCode::SUCCESS)
}
