//! `chainbreak explain`: the way of a packet through a node, from the node's dumps, at a moment of a recorded run, in a kept world, or in a running
//! cluster.

mod asked;
pub(crate) mod at_the_end;
pub(crate) mod kept;
pub(crate) mod moment;
mod names;
mod service;
mod told;
mod trace;
mod world;

use std::process::ExitCode;

use chainbreak_diagnose::has_model_of_programs;
use chainbreak_netfilter::{dumps::Dumps, walk::walk};
use chainbreak_report::text::document;

use self::{
    asked::{Ends, Input, end},
    told::{Told, Way},
    world::World,
};
use crate::{
    args::{self, Answer},
    attached,
    cases::invalid,
    live_node::LiveNode,
};

/// A node as it may be, each with what is taken for granted.
type States = Vec<(Option<String>, Dumps)>;

/// What is known of a node, and the packet's ends there.
struct Known {
    ends: Ends,
    /// With what each takes for granted, where they are several.
    states: States,
    /// The same with what the node routed by later, and what is to be known where a packet goes another way by that.
    later: Option<(States, String)>,
    /// Where and when that is; none for dumps.
    at: Option<String>,
    /// What is to be known beside the answer.
    about: Vec<String>,
    /// Whether the rules are known to be those of the node.
    sure: bool,
    /// Among what something may be missing.
    among: &'static str,
}

/// `chainbreak explain`.
pub(crate) fn explain(args: &args::Explain) -> anyhow::Result<ExitCode> {
    let world = args.world.map(|worker| World::of(args, worker));
    let mut known = if let Some(kubeconfig) = &args.kubeconfig {
        live(args, LiveNode::of(kubeconfig, args.node.as_deref())?)?
    } else if !args.dump.is_empty() {
        dumped(args)?
    } else if let Some(world) = &world {
        world.known(args)?
    } else {
        moment::known(args)?
    };
    let ways = ways(args, &known.ends, &known.states)?;
    if let Some((states, doubt)) = known.later.take() {
        // By what the node routed by later, the packet may have no way at all.
        let later = self::ways(args, &known.ends, &states);
        let same = |later: Vec<Way>| {
            later
                .iter()
                .map(|it| &it.walk)
                .eq(ways.iter().map(|it| &it.walk))
        };
        if !later.is_ok_and(same) {
            known.about.push(doubt);
            known.sure = false;
        }
    }
    let asked = world.as_ref().filter(|_| args.trace);
    let now = ways.first().zip(known.states.first());
    let traced = asked
        .zip(now)
        .map(|(world, (way, (_, dumps)))| trace::trace(args, world, (&way.walk.packet, dumps)));
    let told = Told {
        traced: traced.transpose()?,
        missing: known.states.first().map(|it| it.1.missing()),
        known,
        ways,
    };
    match args.format {
        Answer::Human => crate::say(&told.human())?,
        Answer::Json => crate::say_as_it_is(&document(&told.document())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn ways(args: &args::Explain, ends: &Ends, states: &States) -> anyhow::Result<Vec<Way>> {
    let ways = states.iter().map(|(premise, dumps)| {
        let packet = asked::packet(args, ends, dumps)?;
        Ok(Way {
            premise: premise.clone(),
            walk: walk(&dumps.state(packet.family()), &packet),
        })
    });
    ways.collect()
}

/// By what a node of a running cluster lists now.
fn live(args: &args::Explain, node: LiveNode<'_>) -> anyhow::Result<Known> {
    let ends = ends(args)?;
    let mut dumps = Dumps::default();
    dumps
        .add(&node.listed()?)
        .map_err(|why| invalid(format!("what {} lists cannot be read: {why}", node.node)))?;
    Ok(Known {
        at: Some(format!("now on {}", node.node)),
        among: "listed there",
        ..of_dumps(ends, dumps)
    })
}

/// By the dumps of a folder, or several.
fn dumped(args: &args::Explain) -> anyhow::Result<Known> {
    let ends = ends(args)?;
    let dumps = attached::dumps(&args.dump, args.node.as_deref())?;
    Ok(of_dumps(ends, dumps))
}

/// By their addresses.
fn ends(args: &args::Explain) -> anyhow::Result<Ends> {
    Ok(Ends {
        src: end(&args.from, "FROM")?,
        dst: end(&args.to, "TO:PORT")?,
        input: Input::AsRoutesLead,
    })
}

fn of_dumps(ends: Ends, dumps: Dumps) -> Known {
    // A model's table is walked through like any other.
    let dumps = if has_model_of_programs(&dumps) {
        dumps
    } else {
        dumps.with_programs()
    };
    Known {
        ends,
        states: vec![(None, dumps)],
        later: None,
        at: None,
        about: Vec::new(),
        sure: true,
        among: "among the dumps",
    }
}
