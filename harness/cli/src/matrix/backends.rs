//! What of a selection is about its backend.

use chainbreak_engine::backend::{BackendOption, Takes};

use super::quoted;
use crate::{args::selection::Selection, registry};

/// As each job is given it: what a run does without being told is left out. Switches come first, then what takes one of
/// some words, and what a person wrote is quoted.
pub(super) fn passed_on(selection: &Selection) -> Vec<String> {
    let mut words = Vec::new();
    let backend = selection.backend.factory().name();
    if registry::all()
        .next()
        .is_some_and(|it| it.name() != backend)
    {
        words.push(format!("--backend {backend}"));
    }
    let options = registry::all().flat_map(|backend| backend.options().1);
    let mut options: Vec<&BackendOption> = options.collect();
    options.sort_by_key(|option| match option.takes {
        Takes::Nothing => 0,
        Takes::OneOf(..) => 1,
        Takes::Text(_) | Takes::Path(_) => 2,
    });
    let given = options.into_iter().filter_map(|option| {
        let (name, value) = (option.name, selection.of_backends.0.get(option.name)?);
        match option.takes {
            Takes::Nothing => Some(format!("--{name}")),
            Takes::OneOf(_, [(first, _), ..]) if *first == value => None,
            Takes::OneOf(..) => Some(format!("--{name} {value}")),
            Takes::Text(_) | Takes::Path(_) => Some(format!("--{name} {}", quoted(value))),
        }
    });
    words.extend(given);
    words
}
