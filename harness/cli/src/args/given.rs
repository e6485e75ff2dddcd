//! Options of backends, as their crates describe them, among those of the command line.

use chainbreak_engine::backend::{BackendFactory, BackendOption, Cleaning, Given, Takes, Wanted};
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches,
    builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser},
};

use crate::registry;

/// What was given of every backend's options, below the heading of each.
#[derive(Debug, Clone)]
pub(crate) struct OfBackends(pub(crate) Given);

/// What was given of where backends are to look for what runs have left.
#[derive(Debug, Clone)]
pub(crate) struct OfCleaning(pub(crate) Given);

impl Args for OfBackends {
    fn augment_args(command: Command) -> Command {
        registry::all().fold(command, |command, backend| {
            let (heading, options) = backend.options();
            if options.is_empty() {
                return command;
            }
            let args = options.iter().map(|option| arg(option, backend.name()));
            command.next_help_heading(heading).args(args)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OfBackends {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let options = registry::all().flat_map(|backend| backend.options().1);
        Ok(Self(given(options, matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for OfCleaning {
    fn augment_args(command: Command) -> Command {
        registry::all().fold(command, |command, backend| {
            let options = backend.cleaning().into_iter().flat_map(Cleaning::options);
            command.args(options.map(|option| arg(option, backend.name())))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OfCleaning {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let cleaning = registry::all().filter_map(BackendFactory::cleaning);
        Ok(Self(given(cleaning.flat_map(Cleaning::options), matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn arg(option: &BackendOption, backend: &'static str) -> Arg {
    let arg = Arg::new(option.name).long(option.name).help(option.help);
    let arg = match option.takes {
        Takes::Nothing => arg.action(ArgAction::SetTrue),
        Takes::Text(value) => arg.value_name(value),
        Takes::Path(value) => arg
            .value_name(value)
            .value_parser(NonEmptyStringValueParser::new()),
        Takes::OneOf(value, words) => {
            let known = words
                .iter()
                .map(|(word, help)| PossibleValue::new(*word).help(*help));
            arg.value_name(value)
                .value_parser(PossibleValuesParser::new(known))
                .default_values(words.first().map(|(word, _)| *word))
        }
    };
    match option.wanted {
        Wanted::Freely => arg,
        Wanted::Always => arg.required_if_eq("backend", backend),
        Wanted::With(other) => arg.requires(other),
    }
}

fn given<'a>(options: impl Iterator<Item = &'a BackendOption>, matches: &ArgMatches) -> Given {
    let mut given = Given::default();
    for option in options {
        let value = match option.takes {
            Takes::Nothing => matches.get_flag(option.name).then_some(""),
            Takes::Text(_) | Takes::Path(_) | Takes::OneOf(..) => {
                let value = matches.get_one::<String>(option.name);
                value.map(String::as_str)
            }
        };
        if let Some(value) = value {
            given.set(option.name, value);
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::registry;

    #[test]
    fn no_two_backends_have_an_option_of_the_same_name() {
        let all = registry::all().flat_map(|backend| backend.options().1);
        let names: Vec<&str> = all.map(|option| option.name).collect();
        let different: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }
}
