//! The binary `chainbreak`: verbs, and nothing that decides anything. As a library so that the
//! scenario tests can have the same program under a path that cargo tells them.

mod again;
#[cfg(feature = "clusters")]
mod agent;
mod agents;
mod archive;
mod args;
mod attached;
mod backend_choice;
mod bundle;
mod cases;
mod choice;
mod clean;
#[cfg(feature = "clusters")]
mod cluster;
mod collect;
#[cfg(feature = "completions")]
mod completions;
mod course;
mod diagnose;
mod doctor;
mod drops;
mod explain;
mod fed;
mod github;
mod images;
mod interrupted;
mod live;
mod live_node;
mod manifests;
mod matrix;
mod merge;
mod mutate;
mod new;
mod parity;
mod pressure;
#[cfg(feature = "profiles")]
mod profile;
mod provide;
mod record;
mod registry;
mod reports;
mod run;
mod shell;
mod supervise;
mod turns;
#[cfg(feature = "clusters")]
mod versions;
#[cfg(not(all(
    feature = "clusters",
    feature = "html",
    feature = "images",
    feature = "profiles"
)))]
mod without_features;
mod worker;

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use chainbreak_lab::{error::LabError, worker::WorldOptions};
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Cli, Verb};

/// Exit status of our own bugs and of trouble outside any case.
const FAILED: u8 = 1;
/// Exit status of a wrong command line or scenario.
const USAGE: u8 = 2;
/// Exit status when the world would not do.
const INCONCLUSIVE: u8 = 11;

/// Runs the command line of this process and returns its exit status (design: 0 as expected, 1 our
/// bug, 2 usage or invalid scenario, 10 not as expected, 11 inconclusive, 12 nothing ran).
pub fn main() -> ExitCode {
    let ended = command_line().and_then(|cli| match cli.verb {
        // Before any thread exists: a world is made by a process that is alone.
        Verb::Worker { outside: true, .. } => {
            trace();
            worker::outside()
        }
        Verb::Worker {
            allow_ebpf, show, ..
        } => {
            trace();
            let ebpf = allow_ebpf;
            worker::main(&WorldOptions { show, ebpf })
        }
        #[cfg(feature = "clusters")]
        Verb::Agent => agent::main(),
        #[cfg(feature = "clusters")]
        Verb::Held => Ok(chainbreak_kind::held::main()?),
        Verb::Probe => Ok(chainbreak_probe::main()),
        verb => {
            trace();
            in_runtime(verb)
        }
    });
    ended.unwrap_or_else(|error| {
        // A reader that went away (`chainbreak list | head`) is no failure.
        if is_closed(&error) {
            return ExitCode::SUCCESS;
        }
        let is_elsewhere = matches!(error.downcast_ref(), Some(LabError::NotThere { .. }));
        let code = if error.is::<cases::Invalid>() || is_elsewhere {
            USAGE
        } else if error.is::<chainbreak_sources::SourceError>() {
            INCONCLUSIVE
        } else {
            FAILED
        };
        complain(&in_full(&error));
        ExitCode::from(code)
    })
}

/// What this process was started with, and what `chainbreak.toml` adds to it.
fn command_line() -> anyhow::Result<Cli> {
    let args = args::settings::spread(std::env::args_os());
    let matches = Cli::command().get_matches_from(&args);
    #[cfg(feature = "profiles")]
    let matches = match profile::added(Path::new(""), &matches, args)? {
        Some(args) => Cli::command().get_matches_from(args),
        None => matches,
    };
    #[cfg(not(feature = "profiles"))]
    without_features::profiles(Path::new(""), &matches)?;
    Ok(Cli::from_arg_matches(&matches)?)
}

fn in_runtime(verb: Verb) -> anyhow::Result<ExitCode> {
    let runtime = worker::runtime()?;
    runtime.block_on(async {
        match verb {
            Verb::Check(args) => cases::check(&args),
            Verb::New(args) => new::new(&args),
            Verb::List(args) => cases::list(&args).await,
            Verb::Plan(args) => cases::plan(&args).await,
            Verb::Run(args) => run::run(args).await,
            Verb::Mutate(args) => mutate::mutate(args).await,
            Verb::Matrix(args) => matrix::matrix(&args).await,
            Verb::Merge(args) => merge::merge(&args),
            Verb::Bundle(args) => bundle::bundle(&args),
            Verb::Parity(args) => parity::parity(args).await,
            Verb::Report(args) => reports::again(&args),
            Verb::Drops(args) => drops::rank(&args),
            Verb::Explain(args) => explain::explain(&args),
            Verb::Diagnose(args) => diagnose::diagnose(&args),
            Verb::Collect(args) => collect::collect(&args),
            Verb::Doctor(args) => doctor::doctor(&args).await,
            Verb::Shell(args) => shell::shell(&args),
            Verb::Clean(args) => clean::clean(&args).await,
            Verb::Schema { reference: true } => {
                say(&chainbreak_model::reference())?;
                Ok(ExitCode::SUCCESS)
            }
            Verb::Schema { reference: false } => {
                say(&format!("{:#}\n", chainbreak_model::schema()))?;
                Ok(ExitCode::SUCCESS)
            }
            #[cfg(feature = "completions")]
            Verb::Completions { shell } => completions::completions(shell),
            #[cfg(feature = "completions")]
            Verb::Man { command } => completions::man(command.as_deref()),
            #[cfg(feature = "clusters")]
            Verb::Cluster(args) => cluster::cluster(&args),
            #[cfg(not(feature = "clusters"))]
            Verb::Cluster { .. } => Err(cases::invalid(without_features::CLUSTERS)),
            #[cfg(feature = "clusters")]
            Verb::Versions(args) => versions::versions(&args).await,
            #[cfg(not(feature = "clusters"))]
            Verb::Versions => Err(cases::invalid(without_features::CLUSTERS)),
            Verb::Agents(args) => agents::agents(args).await,
            #[cfg(feature = "clusters")]
            Verb::Agent | Verb::Held => unreachable!("it has a runtime of its own"),
            Verb::Worker { .. } | Verb::Probe => unreachable!("handled without a runtime"),
        }
    })
}

/// Writes text to standard output, without what a terminal or a CI's runner would obey; a reader that went away is an error of the
/// kind `BrokenPipe`.
fn say(text: &str) -> anyhow::Result<()> {
    say_as_it_is(&chainbreak_report::text::shown(text))
}

/// As [`say`], of text that has colours of its own and nothing of others' that is not harmless, or that a program reads.
fn say_as_it_is(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes to standard output, for whoever still reads. What it is worth is written elsewhere too, and told
/// by the exit status: `chainbreak run … | head -1` ends as the run did.
fn tell(text: &str) -> anyhow::Result<()> {
    say_as_it_is(text).or_else(|error| {
        if is_closed(&error) {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// Whether an error says that nobody reads any more.
fn is_closed(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A line of progress, on standard error. What others wrote into it commands neither a terminal nor a CI's runner.
fn note(text: &str) {
    note_as_it_is(&chainbreak_report::text::shown(text));
}

/// As [`note`], of text that has colours of its own and nothing of others' that is not harmless.
fn note_as_it_is(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// An error with its causes. Many name their cause themselves: it is not told twice.
fn in_full(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Says what went wrong, on standard error. Where that is gone too, nobody is left to tell.
fn complain(text: &str) {
    note(&format!("chainbreak: {text}"));
}

/// Internal logs, on standard error, when `CHAINBREAK_LOG` asks for them (`debug`, `chainbreak_lab=trace`).
fn trace() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CHAINBREAK_LOG")
        .unwrap_or_else(|_unset| tracing_subscriber::EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_told_once_also_by_errors_that_name_theirs() {
        let full = io::Error::from_raw_os_error(28);
        let named = anyhow::Error::new(full)
            .context("could not write x: No space left on device (os error 28)");
        let told = Err::<(), _>(named)
            .context("the run was ended")
            .unwrap_err();
        let once = "the run was ended: could not write x: No space left on device (os error 28)";
        assert_eq!(in_full(&told), once);
        let bare =
            anyhow::Error::new(io::Error::from_raw_os_error(28)).context("could not write x");
        assert_eq!(
            in_full(&bare),
            once.trim_start_matches("the run was ended: ")
        );
    }
}
