//! `expect:` of a variant.

use super::fields::{items, note, text};
use crate::{
    case::{Expect, culprits},
    diagnostic::Gathered,
    language::{Kind, Mapping, needed, optional},
    names::PromiseName,
    nearest::suggest,
    scenario::Run,
    yaml::Node,
};

pub(super) static BROKEN: Mapping = Mapping {
    called: "expect",
    doc: "An incident that does not reproduce is a failure.",
    fields: &[&[
        needed(
            BROKEN_PROMISES,
            Kind::NonEmpty(&Kind::Text),
            "The names of the promises that break; every other one is kept.",
        ),
        optional(
            BY,
            Kind::Text,
            "Who must have caused it: an agent, a third party, another step by its word, or `kernel`. The case fails where the report finds others behind one of these promises, and is inconclusive where it finds nobody behind any.",
        ),
    ]],
};

const BROKEN_PROMISES: &str = "broken";
const BY: &str = "by";

/// What is expected, and because of whom. What the variant runs is `None` where it has mistakes.
pub(super) fn read(
    gathered: &Gathered,
    node: &Node,
    promises: &[&str],
    run: Option<&Run>,
) -> Option<(Expect, Option<String>)> {
    if node.text() == Some("healthy") {
        return Some((Expect::Healthy, None));
    }
    let rest = usize::from(node.get(BY).is_some());
    let Some(broken) = node.get(BROKEN_PROMISES).filter(|_| node.len() == 1 + rest) else {
        let hint = "write `healthy` or `{ broken: [promise, …] }`";
        note(
            gathered,
            &node.place,
            "expect is healthy, or says what is broken",
            Some(hint.to_owned()),
        );
        return None;
    };
    let names = broken_promises(gathered, broken, promises)?;
    let by = match node.get(BY) {
        Some(by) => Some(culprit(gathered, by, run)?),
        None => None,
    };
    Some((Expect::Broken(names), by))
}

fn broken_promises(
    gathered: &Gathered,
    broken: &Node,
    promises: &[&str],
) -> Option<Vec<PromiseName>> {
    let items = items(gathered, broken, BROKEN_PROMISES)?;
    if items.is_empty() {
        let hint = Some("write `expect: healthy`".to_owned());
        note(
            gathered,
            &broken.place,
            "no promise is expected to break",
            hint,
        );
        return None;
    }
    let mut names = Vec::new();
    for item in items {
        let name = text(gathered, item, "a promise's name")?;
        if !promises.contains(&name) {
            let hint = suggest(name, promises.iter().copied());
            note(
                gathered,
                &item.place,
                format!("unknown promise {name:?}"),
                hint,
            );
        }
        names.push(PromiseName::from(name));
    }
    Some(names)
}

/// Somebody or something that the variant has.
fn culprit(gathered: &Gathered, node: &Node, run: Option<&Run>) -> Option<String> {
    let by = text(gathered, node, "who or what breaks them")?;
    let run = run?;
    let known = culprits(&run.cluster, &run.timeline);
    if !known.contains(&by) {
        let message = format!("the variant has no agent, third party or step {by:?}");
        note(gathered, &node.place, message, suggest(by, known));
        return None;
    }
    Some(by.to_owned())
}
