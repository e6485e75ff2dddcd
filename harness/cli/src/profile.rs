//! `chainbreak.toml` in the current folder: what a team always passes. What is given on the command line takes its place.

use std::{
    ffi::OsString,
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::Context;
use chainbreak_model::input;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, parser::ValueSource};
use indexmap::IndexMap;
use serde::Deserialize;
use toml::{Spanned, Value};

use crate::{
    archive,
    args::{Cli, named::is_path},
    cases::{invalid, unknown},
    registry,
};

const FILE: &str = "chainbreak.toml";
/// In bytes: a longer one was not written by a person.
const MOST: u64 = 64 * 1024;
/// The profile that holds always, beside the one that is named.
const ALWAYS: &str = "default";
/// The option that names a profile. Commands that have it choose cases, and take what profiles have.
const OPTION: &str = "profile";
/// The key for what is given without an option's name, and how the command line calls that.
const PATHS: (&str, &str) = ("paths", "what");
/// What a file that comes with somebody's scenarios must not choose: what leaves a world. Options of backends are such, too.
const NEVER: [&str; 5] = [
    "allow-ebpf",
    "allow-host-changes",
    "backend",
    "backends",
    "out",
];

/// Keys are long options, without their dashes.
type Options = IndexMap<String, Spanned<Value>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiles {
    #[serde(default)]
    profile: IndexMap<String, Options>,
}

/// The arguments of the program, which were read, with what the profiles of that folder add to them: after the command, before what was given. None
/// where they add nothing.
pub(crate) fn added(
    folder: &Path,
    matches: &ArgMatches,
    mut args: Vec<OsString>,
) -> anyhow::Result<Option<Vec<OsString>>> {
    let takes = |(_, given): &(&str, &ArgMatches)| given.try_contains_id(OPTION).is_ok();
    let Some((verb, given)) = matches.subcommand().filter(takes) else {
        return Ok(None);
    };
    let wanted = given.get_one::<String>(OPTION).map(String::as_str);
    let named = given.try_get_many::<PathBuf>(PATHS.1).ok().flatten();
    if named.into_iter().flatten().any(|it| archive::is_one(it)) {
        // A bundle says itself what runs.
        return Ok(None);
    }
    let Some((text, profiles)) = read(folder)? else {
        return match wanted {
            Some(name) => Err(invalid(format!(
                "--{OPTION} {name}: there is no {FILE} here"
            ))),
            None => Ok(None),
        };
    };
    let mut command = Cli::command();
    command.build();
    for (key, value) in profiles.profile.values().flatten() {
        check(&command, key, value).map_err(|why| wrong(&text, value.span(), &why))?;
    }
    let verb = command.find_subcommand(verb);
    let verb = verb.context("no command is what was given")?;
    let options = profiles.of(wanted, verb)?.into_iter();
    let more = options.flat_map(|(key, value)| words(verb, given, key, value.get_ref()));
    let more: Vec<OsString> = more.collect();
    if more.is_empty() {
        return Ok(None);
    }
    let said = more.join(" ".as_ref());
    crate::note(&format!("{FILE} adds: {}", said.display()));
    args.splice(2..2, more);
    Ok(Some(args))
}

/// The file's text and what it says, where there is one.
fn read(folder: &Path) -> anyhow::Result<Option<(String, Profiles)>> {
    let bytes = match input::read(&folder.join(FILE), MOST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| invalid(format!("could not read {FILE}: {error}")))?,
    };
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_binary| invalid(format!("{FILE} is not UTF-8")))?;
    let profiles = toml::from_str(&text).map_err(|error| {
        let place = error.span().unwrap_or_default();
        wrong(&text, place, error.message())
    })?;
    Ok(Some((text, profiles)))
}

fn wrong(text: &str, place: Range<usize>, why: &str) -> anyhow::Error {
    let before = text.get(..place.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    invalid(format!("{FILE}:{line}: {why}"))
}

impl Profiles {
    /// What holds for a command when that one is named: it takes the place of what holds always, also where both cannot be.
    fn of(
        &self,
        wanted: Option<&str>,
        verb: &Command,
    ) -> anyhow::Result<IndexMap<&str, &Spanned<Value>>> {
        let named = wanted.map(|name| {
            self.profile.get(name).ok_or_else(|| {
                let words = format!("--{OPTION} {name}: {FILE} has no such profile");
                let known = self.profile.keys().map(String::as_str);
                invalid(unknown(&words, name, known))
            })
        });
        let (always, named) = (self.profile.get(ALWAYS), named.transpose()?);
        let options = always.into_iter().chain(named).flatten();
        let mut options: IndexMap<&str, _> = options.map(|(key, it)| (key.as_str(), it)).collect();
        if let Some(named) = named {
            let is_set = |value: &Spanned<Value>| value.get_ref() != &Value::Boolean(false);
            let of_named = named.iter().filter(|(_, value)| is_set(value));
            let set: Vec<&Arg> = of_named.filter_map(|(key, _)| option(verb, key)).collect();
            options.retain(|key, _| {
                let has_place = |arg| set.iter().all(|other| !contradict(verb, arg, other));
                named.contains_key(*key) || option(verb, key).is_none_or(has_place)
            });
        }
        Ok(options)
    }
}

/// What profiles may have of a command's options.
fn options(verb: &Command) -> impl Iterator<Item = &Arg> {
    let others = [OPTION, "help"];
    let is_one = move |arg: &&Arg| arg.get_long().is_some_and(|long| !others.contains(&long));
    verb.get_arguments().filter(is_one)
}

fn option<'a>(verb: &'a Command, name: &str) -> Option<&'a Arg> {
    options(verb).find(|it| it.get_long() == Some(name))
}

/// What is wrong with an entry, whatever the command: a file is for all of them.
fn check(command: &Command, key: &str, value: &Spanned<Value>) -> Result<(), String> {
    let of_backends = registry::all().flat_map(|backend| backend.options().1);
    let mut never = NEVER.into_iter().chain(of_backends.map(|it| it.name));
    if never.any(|it| it == key) {
        return Err(format!(
            "{key} is given on the command line alone, each time"
        ));
    }
    let value = value.get_ref();
    if key == PATHS.0 {
        let paths = texts(value).ok_or_else(|| format!("{key} takes texts"))?;
        let option = paths.iter().find(|path| path.starts_with('-'));
        return option.map_or(Ok(()), |it| Err(format!("{it:?} is no path")));
    }
    let takes = |verb: &&Command| verb.get_arguments().any(|arg| arg.get_id() == OPTION);
    let verbs = || command.get_subcommands().filter(takes);
    let Some(arg) = verbs().find_map(|verb| option(verb, key)) else {
        let known = verbs().flat_map(options).filter_map(Arg::get_long);
        let words = format!("{key} is no option of run");
        return Err(unknown(&words, key, known.chain([PATHS.0])));
    };
    match (is_flag(arg), value) {
        (true, Value::Boolean(_)) => Ok(()),
        (true, _) => Err(format!("{key} is true or false")),
        (false, _) if texts(value).is_some() => Ok(()),
        (false, _) => Err(format!("{key} takes a text or a number, or a list of them")),
    }
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// A value as the command line would have it, or several.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Integer(number) => Some(vec![number.to_string()]),
        Value::Float(number) => Some(vec![number.to_string()]),
        Value::Array(values) if values.iter().all(|it| !it.is_array()) => {
            let each: Option<Vec<_>> = values.iter().map(texts).collect();
            each.map(|it| it.concat())
        }
        _ => None,
    }
}

/// Whether a command does not take both.
fn contradict(verb: &Command, one: &Arg, other: &Arg) -> bool {
    let names = |one: &Arg, other: &Arg| {
        let others = verb.get_arg_conflicts_with(one);
        others.iter().any(|it| it.get_id() == other.get_id())
    };
    names(one, other) || names(other, one)
}

/// What an entry adds: nothing where the command has no such option, or that, its opposite or another path was given.
fn words(verb: &Command, given: &ArgMatches, key: &str, value: &Value) -> Vec<OsString> {
    let was_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let texts = texts(value).unwrap_or_default();
    if key == PATHS.0 {
        // Cases are looked for in these.
        let named = given.try_get_many::<PathBuf>(PATHS.1).ok().flatten();
        if named.into_iter().flatten().any(|it| is_path(it)) {
            return Vec::new();
        }
        return texts.into_iter().map(OsString::from).collect();
    }
    let Some(arg) = option(verb, key) else {
        return Vec::new();
    };
    let is_in_place = |other: &&Arg| other.get_id() == arg.get_id() || contradict(verb, arg, other);
    let mut others = verb.get_arguments().filter(is_in_place);
    if others.any(|it| was_given(it.get_id().as_str())) {
        return Vec::new();
    }
    match value {
        Value::Boolean(true) => vec![format!("--{key}").into()],
        _ => texts
            .iter()
            .map(|it| format!("--{key}={it}").into())
            .collect(),
    }
}

#[cfg(test)]
mod tests;
