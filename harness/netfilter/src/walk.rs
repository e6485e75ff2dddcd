//! The way of a packet through a node: hooks and tables in their order, routing, conntrack, translation, verdict
//! (Linux 6.18; iptables 1.8, nft 1.0).
//!
//! [`State`] is what is known of the node, indexed once. [`walk`] takes a packet every way that chance leaves open, each
//! with its share, and every way that what is *not* known leaves open: a match, a target or an element that is not
//! understood, routes or sets that no dump tells. Nothing unknown is passed over in silence ([`Step::Assumed`]).
//!
//! Not modelled: fragments, the windows of TCP connections (a packet of an entry is taken to be within), helpers and
//! expectations, neighbours, tunnels and other transformations behind an interface, eBPF but for what Felix's NAT map, flows and routes tell, bridges,
//! multicast.

mod chain;
mod checks;
mod conntrack;
mod effects;
mod elements;
mod flight;
mod matches;
mod nft;
mod packet;
mod parse;
mod path;
mod policies;
mod program;
mod programs;
mod route;
mod rules;
mod seen;
mod state;
mod target;
mod tell;
mod translation;
mod walker;
mod ways;

pub(crate) use self::policies::Policies;
use self::walker::{Script, Walker};
pub use self::{
    packet::{Packet, Protocol, TcpFlags, Tracking},
    path::{Effect, End, Hook, MOST_PATHS, Path, Step, Walk},
    route::{Origin, Routing},
    seen::Seen,
    state::State,
};

/// Takes a packet every way that is open to it. It is of the state's family.
pub fn walk(state: &State, packet: &Packet) -> Walk {
    let first = ways(state, packet, Order::AsAdded);
    let Some(question) = state.tie() else {
        return first;
    };
    let other = ways(state, packet, Order::Reversed);
    let [mut told, mut otherwise] = [&first, &other].map(Walk::ends);
    told.sort();
    otherwise.sort();
    if told == otherwise {
        return first;
    }
    let mut walk = Walk {
        packet: packet.clone(),
        paths: Vec::new(),
        more: first.more || other.more,
    };
    for (ways, answer) in [
        (first, "the one that was listed first"),
        (other, "the other one"),
    ] {
        let (question, answer) = (question.clone(), answer.to_owned());
        let assumed = Step::Assumed { question, answer };
        walk.paths.extend(ways.paths.into_iter().map(|mut path| {
            path.steps.insert(0, assumed.clone());
            path
        }));
    }
    walk.more |= walk.paths.len() > MOST_PATHS;
    walk.paths.truncate(MOST_PATHS);
    walk
}

/// In which order nat chains are asked that have one hook and priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    AsAdded,
    Reversed,
}

/// Every way in one order.
fn ways(state: &State, packet: &Packet, order: Order) -> Walk {
    let mut script = Script::default();
    let mut paths = Vec::new();
    loop {
        paths.push(Walker::new(state, &mut script, packet.clone(), order).walk());
        let another = script.advance();
        if !another || paths.len() == MOST_PATHS {
            return Walk {
                packet: packet.clone(),
                paths,
                more: another,
            };
        }
    }
}
