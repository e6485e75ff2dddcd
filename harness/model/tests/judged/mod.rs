//! What the judge is shown: a case, and events of it.

use std::path::Path;

use chainbreak_model::{
    case::{Capabilities, Case},
    event::{Event, EventKind},
    plan::{Choice, Planned},
    read,
};

/// The case of a scenario in the lab whose name ends in that.
pub(crate) fn case(scenario: &str, name: &str) -> Case {
    let open = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let scenario = read(Path::new("judged.yaml"), scenario.as_bytes(), &open)
        .unwrap_or_else(|error| panic!("{}", error.plain()));
    let choice = Choice {
        backend: "lab".to_owned(),
        ..Choice::default()
    };
    let here =
        ["lab", "iptables-legacy", "conntrack", "ipset"].map(|name| (name.to_owned(), Ok(())));
    let planned = chainbreak_model::plan(&scenario, &choice, &Capabilities(here.into()));
    let found = planned
        .into_iter()
        .find(|planned| planned.id().ends_with(name));
    match found {
        Some(Planned::Run(case)) => *case,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn at(ms: u64, what: EventKind) -> Event {
    Event {
        at_us: ms * 1000,
        what,
    }
}
