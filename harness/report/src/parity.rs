//! Two runs of the same cases beside each other: where their verdicts differ, case by case and promise by promise. A verdict is
//! compared, not what was expected of it: two backends that break the same promises are alike.
//!
//! A case that one of the runs could not decide differs from nothing, and is like nothing. Of one with the same verdicts it is said, too, if it
//! was worse on one side ([`figures`]); that is no difference, and for people to look at.

mod figures;

use crate::{
    summary::{Outcome, PromiseSummary, State, Summary},
    term::{self, Terminal},
    text::{one_line, tally, wrap},
};

/// A run and what it is called beside another one.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// As `lab`, or the path of a run.
    pub name: &'a str,
    /// Its cases.
    pub summaries: &'a [Summary],
}

/// What two verdicts on the same case are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// Every promise came out alike.
    Same,
    /// Some promise was kept in one run and broken in the other.
    Differs,
    /// At least one run did not decide it.
    Undecided,
    /// At least one run does not have it.
    NotShared,
}

impl Likeness {
    fn words(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::Undecided => "cannot be compared",
            Self::NotShared => "not in both",
        }
    }

    /// As a case of that outcome is shown.
    fn shown(self) -> Outcome {
        match self {
            Self::Same => Outcome::AsExpected,
            Self::Differs => Outcome::NotAsExpected,
            Self::Undecided => Outcome::Inconclusive,
            Self::NotShared => Outcome::Skipped,
        }
    }
}

/// A case in two runs.
#[derive(Debug, Clone)]
pub struct Compared<'a> {
    id: &'a str,
    likeness: Likeness,
    cases: [Option<&'a Summary>; 2],
}

/// Every case of either run, in the order of the first one.
pub fn compare<'a>(sides: [Side<'a>; 2]) -> Vec<Compared<'a>> {
    let [one, other] = sides.map(|side| side.summaries);
    let find = |of: &'a [Summary], id: &str| of.iter().find(|it| it.id == id);
    let alone = other.iter().filter(|it| find(one, &it.id).is_none());
    let ids = one.iter().chain(alone).map(|it| it.id.as_str());
    let compared = ids.map(|id| {
        let cases = [find(one, id), find(other, id)];
        let likeness = likeness(cases);
        Compared {
            id,
            likeness,
            cases,
        }
    });
    compared.collect()
}

fn likeness(cases: [Option<&Summary>; 2]) -> Likeness {
    let ran = |it: &&Summary| it.outcome != Outcome::Skipped;
    let [Some(one), Some(other)] = cases.map(|case| case.filter(ran)) else {
        return Likeness::NotShared;
    };
    let decided = |it: &Summary| !it.outcome.is_undecided();
    let pairs = pairs(one, other);
    let known = |it: Option<&PromiseSummary>| it.is_some_and(|it| it.state != State::Unknown);
    let both = |(one, other): &(_, _)| known(*one) && known(*other);
    if !decided(one) || !decided(other) || !pairs.iter().all(both) {
        Likeness::Undecided
    } else if pairs.iter().all(|pair| !is_different(pair)) {
        Likeness::Same
    } else {
        Likeness::Differs
    }
}

type Pair<'a> = (Option<&'a PromiseSummary>, Option<&'a PromiseSummary>);

/// The promises of either case by name: a run of an older scenario may have others.
fn pairs<'a>(one: &'a Summary, other: &'a Summary) -> Vec<Pair<'a>> {
    let find = |of: &'a Summary, name: &str| of.promises.iter().find(|it| it.name == name);
    let first = one.promises.iter();
    let first = first.map(|it| (Some(it), find(other, &it.name)));
    let alone = other.promises.iter();
    let alone = alone.filter(|it| find(one, &it.name).is_none());
    first.chain(alone.map(|it| (None, Some(it)))).collect()
}

fn is_different((one, other): &Pair<'_>) -> bool {
    one.map(|it| it.state) != other.map(|it| it.state)
}

/// 0 all the same · 10 some differ · 11 some cannot be compared · 12 no case is in both. What differs is certain, whatever
/// became of the others.
pub fn exit_code(compared: &[Compared<'_>]) -> u8 {
    let any = |likeness| compared.iter().any(|it| it.likeness == likeness);
    if any(Likeness::Differs) {
        10
    } else if any(Likeness::Undecided) {
        11
    } else if any(Likeness::Same) {
        0
    } else {
        12
    }
}

/// Everything that is printed: a table, and below it what differs and why a case cannot be compared.
pub fn render(sides: [Side<'_>; 2], compared: &[Compared<'_>], terminal: Terminal) -> String {
    let names = sides.map(|side| side.name);
    let mut parts = vec![table(names, compared, terminal)];
    parts.extend(compared.iter().filter_map(|it| detail(names, it, terminal)));
    parts.push(closing(compared));
    parts.join("\n")
}

fn table(names: [&str; 2], compared: &[Compared<'_>], terminal: Terminal) -> String {
    let mut rows = vec![["case", names[0], names[1], "verdicts"].map(str::to_owned)];
    rows.extend(compared.iter().map(|it| {
        let [one, other] = it.cases.map(|case| case.map_or("–", got).to_owned());
        let shown = it.likeness.shown();
        let likeness = format!("{} {}", term::mark(shown), it.likeness.words());
        [one_line(it.id), one, other, likeness]
    }));
    let mut widths = [0; 4];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let outcomes = std::iter::once(None).chain(compared.iter().map(|it| Some(it.likeness.shown())));
    let line = |(cells, outcome): (&[String; 4], Option<Outcome>)| {
        let padded = cells.iter().zip(widths);
        let padded = padded.map(|(cell, width)| format!("{cell:<width$}"));
        let line = padded.collect::<Vec<_>>().join("  ");
        term::paint(line.trim_end(), outcome, terminal.colour) + "\n"
    };
    rows.iter().zip(outcomes).map(line).collect()
}

/// What was seen, in short; of a case that has no verdict, why.
fn got(case: &Summary) -> &str {
    match case.outcome {
        Outcome::AsExpected | Outcome::NotAsExpected => &case.got,
        Outcome::Inconclusive | Outcome::Skipped | Outcome::NotBegun => case.outcome.words(),
    }
}

fn detail(names: [&str; 2], compared: &Compared<'_>, terminal: Terminal) -> Option<String> {
    let (id, likeness) = (compared.id, compared.likeness);
    let lines = match (likeness, compared.cases) {
        (Likeness::Same, [Some(one), Some(other)]) => {
            let apart = figures::apart(one, other)?;
            let lines = names.into_iter().zip(apart);
            let line = |(name, it)| format!("    {name}: {}", figures::words(it));
            lines.map(line).collect()
        }
        (Likeness::Differs, [Some(one), Some(other)]) => {
            let pairs = pairs(one, other);
            let different = pairs.iter().filter(|pair| is_different(pair));
            different.flat_map(|pair| told(names, pair)).collect()
        }
        (_, cases) => why(names, cases),
    };
    let first = format!(
        "{} {id}: {}",
        term::mark(likeness.shown()),
        likeness.words(),
        id = one_line(id),
    );
    let first = term::paint(&first, Some(likeness.shown()), terminal.colour) + "\n";
    let lines = lines.iter().map(|line| wrap(line, terminal.width) + "\n");
    Some(std::iter::once(first).chain(lines).collect())
}

fn told(names: [&str; 2], (one, other): &Pair<'_>) -> Vec<String> {
    let named = one.or(*other).map(|it| format!("    {}", it.name));
    let line = |name, promise: Option<&PromiseSummary>| match promise {
        Some(it) => format!("      {name}: {}, {}", state(it.state), it.headline()),
        None => format!("      {name}: there is no such promise"),
    };
    let lines = [line(names[0], *one), line(names[1], *other)];
    named.into_iter().chain(lines).collect()
}

/// Why there is no verdict to compare, of each run that has none.
fn why(names: [&str; 2], cases: [Option<&Summary>; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, case) in names.into_iter().zip(cases) {
        lines.extend(
            match case {
                None => Some("the run does not have it".to_owned()),
                Some(it) if it.outcome.is_undecided() => {
                    let said = it.headline();
                    let headline = said.as_deref().unwrap_or("nobody says why");
                    Some(format!("{}, {headline}", it.outcome.words()))
                }
                Some(_) => None,
            }
            .map(|words| format!("    {name}: {words}")),
        );
    }
    if let [Some(one), Some(other)] = cases
        && lines.is_empty()
    {
        let pairs = pairs(one, other);
        let different = pairs.iter().filter(|pair| is_different(pair));
        lines.extend(different.flat_map(|pair| told(names, pair)));
    }
    lines
}

fn state(state: State) -> &'static str {
    match state {
        State::Kept => "kept",
        State::Broken => "broken",
        State::Unknown => "unknown",
    }
}

fn closing(compared: &[Compared<'_>]) -> String {
    let all = [
        Likeness::Same,
        Likeness::Differs,
        Likeness::Undecided,
        Likeness::NotShared,
    ];
    let of = |likeness: Likeness| {
        let cases = compared.iter().filter(|it| it.likeness == likeness);
        (cases.count(), likeness.words())
    };
    let tally = tally(&all.map(of)).unwrap_or_else(|| "nothing to compare".to_owned());
    let apart = compared.iter().filter(|it| match it.cases {
        [Some(one), Some(other)] if it.likeness == Likeness::Same => {
            figures::apart(one, other).is_some()
        }
        _ => false,
    });
    match apart.count() {
        0 => tally + "\n",
        apart => format!("{tally}; of those that are the same, {apart} with other figures\n"),
    }
}
