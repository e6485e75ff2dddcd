//! The report of a run as one page: every case of a scenario under each other on one time axis, with who wrote which rules, where
//! traffic was dead, which command cut it and which one healed it. It needs nothing beside itself, no script and no network.
//!
//! A page is made in parts, one after the other, so that of a run one case is in memory at a time: it is read again here, after
//! the table of verdicts is known. `case.rs` has what is shown of a case as values, `view.rs` lays them out.
//!
//! What others wrote is without control characters ([`clean`]) and escaped; the page itself forbids whatever is not in it
//! (`Content-Security-Policy`), also where a name would pass for markup.

mod axis;
mod case;
mod commands;
mod lanes;
mod rules;
mod strip;
mod view;

use std::{fmt::Display, rc::Rc};

use indexmap::IndexMap;

use self::{axis::Axis, case::CasePage};
use crate::{
    Run,
    summary::{Outcome, Summary, with_material},
    term::{Overview, split},
    text::clean,
};

/// So many cases have a section of their own at most: of a run of more, the first ones that did not come out as expected. A page of all
/// of them would be too long to open.
const SECTIONS: usize = 500;

/// The page of a run whose verdicts are known, in parts to be written one after the other.
pub fn page<'a>(run: &'a Run, overview: &'a Overview) -> impl Iterator<Item = String> {
    let scenarios = Scenarios::of(overview.cases());
    let top = view::top(run, overview, &scenarios);
    let scenarios = Rc::new(scenarios.0);
    let of = |scenarios: &Rc<IndexMap<&'a str, Vec<Row<'a>>>>| {
        let scenarios = Rc::clone(scenarios);
        (0..scenarios.len()).filter_map(move |number| {
            let (name, cases) = scenarios.get_index(number)?;
            Some((number, *name, cases.clone()))
        })
    };
    let rows = of(&scenarios).flat_map(|(number, name, cases)| view::rows(number, name, cases));
    let sections =
        of(&scenarios).flat_map(move |(number, name, cases)| section(run, number, name, cases));
    std::iter::once(top)
        .chain(rows)
        .chain(std::iter::once_with(view::top_end))
        .chain(sections)
        .chain(std::iter::once_with(view::bottom))
}

/// The cases of each scenario, with their numbers in the run.
struct Scenarios<'a>(IndexMap<&'a str, Vec<Row<'a>>>);

/// A case in the table of verdicts.
#[derive(Clone, Copy)]
struct Row<'a> {
    /// Its number in the run: what its section is called by.
    number: usize,
    summary: &'a Summary,
    /// Whether it has a section.
    shown: bool,
}

impl<'a> Scenarios<'a> {
    fn of(cases: &'a [Summary]) -> Self {
        let all = cases.len() <= SECTIONS;
        let mut room = SECTIONS;
        let mut scenarios = IndexMap::<&str, Vec<Row<'_>>>::new();
        let cases = cases.iter().enumerate();
        for (number, summary) in cases.filter(|(_, it)| it.outcome != Outcome::NotBegun) {
            let shown =
                room > 0 && summary.outcome.has_run() && (all || summary.outcome.has_failed());
            room -= usize::from(shown);
            let row = Row {
                number,
                summary,
                shown,
            };
            let (scenario, _) = split(&summary.id);
            scenarios.entry(scenario).or_default().push(row);
        }
        Self(scenarios)
    }
}

/// A scenario: what it is about, and its cases one after the other.
fn section<'a>(
    run: &'a Run,
    number: usize,
    name: &'a str,
    mut cases: Vec<Row<'a>>,
) -> impl Iterator<Item = String> {
    cases.retain(|row| row.shown);
    let axis = Axis::of(cases.iter().map(|row| row.summary));
    let recorded = move |row: &Row<'_>| run.cases.get(&row.summary.id);
    let first = cases.first().and_then(recorded);
    let head = first.map(|first| view::scenario(number, name, &first.case));
    let foot = head.is_some().then(view::scenario_end);
    let shown = move |row: Row<'a>| {
        let recorded = recorded(&row)?;
        Some(with_material(
            &row.summary.id,
            recorded,
            |material, summary| {
                view::case(
                    row.number,
                    &CasePage::of(material, &summary, axis),
                    &summary,
                )
            },
        ))
    };
    let shown = cases.into_iter().filter_map(shown);
    head.into_iter().chain(shown).chain(foot)
}

/// What others wrote, as a page may have it; the templates escape it.
fn said(text: &(impl Display + ?Sized)) -> String {
    clean(&text.to_string())
}
