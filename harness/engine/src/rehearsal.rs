//! What a case runs in its places where nobody records writes, told before it is run. What is read first and then set back is not known
//! before.

use std::fmt;

use chainbreak_model::{
    case::{Case, Step},
    names::AgentName,
};

use crate::{
    answered_by, census,
    cluster::{Command, FelixProgram, Place},
    dumps, faults, nat_maps, network, observe, ready,
    shell::quoted,
};

/// A command of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Where; on every node without.
    pub at: Option<Place>,
    /// What is run.
    pub command: Command,
    /// What for.
    pub why: String,
}

/// What is run on every node.
fn on_nodes(commands: Vec<Command>, why: &str) -> Vec<Order> {
    let order = |command| Order {
        at: None,
        command,
        why: why.to_owned(),
    };
    commands.into_iter().map(order).collect()
}

/// All of them, in the order in which each is first run.
pub fn orders(case: &Case) -> Vec<Order> {
    let felix = case.cluster.source(AgentName::Felix);
    let felix = felix.and_then(FelixProgram::of);
    let census = census::commands(case, felix.as_ref());
    let written = vec![ready::watch(case)];
    let watched = observe::places(case).into_iter().flat_map(|(at, watched)| {
        watched.commands().into_iter().map(move |command| Order {
            at: Some(Place::from(&at)),
            command,
            why: "looks again and again whether a promise is kept".to_owned(),
        })
    });
    let traffic = case.traffic.iter().map(|(name, traffic)| Order {
        at: Some(Place::from(&traffic.from)),
        command: Command::Probe,
        why: format!("sends the requests of {name}"),
    });
    let addresses = observe::sources(case).into_iter().map(|at| Order {
        at: Some(Place::from(&at)),
        command: observe::ask_for_addresses(),
        why: "reads addresses that promises name".to_owned(),
    });
    let maps = nat_maps::commands(case, felix.as_ref());
    let rules = dumps::commands(case, felix);
    let all = on_nodes(
        written,
        "looks again and again whether agents have written their rules",
    )
    .into_iter()
    .chain(traffic)
    .chain(on_nodes(
        answered_by::listings(case),
        "tells whether programs or rules answer for services",
    ))
    .chain(addresses)
    .chain(on_nodes(
        vec![network::command()],
        "reads routes and settings",
    ))
    .chain(watched)
    .chain(on_nodes(census, "counts what is dropped, before and after"))
    .chain(on_nodes(
        maps,
        "looks where Felix's programs lead, and keeps it with the report",
    ))
    .chain(of_faults(case))
    .chain(on_nodes(
        rules,
        "keeps the rules, and Felix's maps, with the report",
    ));
    let mut orders: Vec<Order> = Vec::new();
    for order in all {
        let same = |it: &&Order| (&it.at, &it.command) == (&order.at, &order.command);
        if !orders.iter().any(|it| same(&it)) {
            orders.push(order);
        }
    }
    orders
}

fn of_faults(case: &Case) -> impl Iterator<Item = Order> {
    let faults = case.timeline.iter().filter_map(|step| match step {
        Step::Fault { fault, .. } => Some((step.word(), faults::orders(fault))),
        _ => None,
    });
    faults.flat_map(|(word, orders)| {
        orders.into_iter().map(move |(at, command)| Order {
            at,
            command,
            why: format!("does or undoes {word}"),
        })
    })
}

/// The command as a shell reads it, in one line.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.command {
            Command::Probe => f.write_str("chainbreak probe"),
            Command::Argv(argv) => {
                let words = argv
                    .iter()
                    .map(|word| quoted(word.trim()).replace('\n', "; "));
                f.write_str(&words.collect::<Vec<_>>().join(" "))
            }
        }
    }
}
