//! `chainbreak completions` and `chainbreak man`: what shells and `man` read of the command line, made of the command line itself.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{args::Cli, cases::invalid};

const NAME: &str = "chainbreak";

/// Prints what a shell completes the command line with.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    crate::say_as_it_is(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the page of the program or of a command.
pub(crate) fn man(command: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut all = Cli::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let found = all.find_subcommand(name).filter(|it| !it.is_hide_set());
            let found = found.ok_or_else(|| {
                invalid(format!(
                    "there is no command {name}: `{NAME} --help` lists them"
                ))
            })?;
            found.clone().display_name(format!("{NAME}-{name}"))
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    crate::say_as_it_is(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
