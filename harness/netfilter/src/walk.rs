//! The way of a packet through a node: hooks and tables in their order, routing, conntrack, translation, verdict
//! (Linux 6.18; iptables 1.8, nft 1.0).
//!
//! [`State`] is what is known of the node, indexed once. [`walk`] takes a packet every way that chance leaves open, each
//! with its share, and every way that what is *not* known leaves open: a match, a target or an element that is not
//! understood, routes or sets that no dump tells. Nothing unknown is passed over in silence ([`Step::Assumed`]).
//!
//! Not modelled: fragments, the windows of TCP connections (a packet of an entry is taken to be within), helpers and
//! expectations, neighbours, tunnels and other transformations behind an interface, eBPF, bridges, multicast.

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
mod program;
mod route;
mod rules;
mod seen;
mod state;
mod target;
mod tell;
mod translation;
mod walker;
mod ways;

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
    let mut script = Script::default();
    let mut paths = Vec::new();
    loop {
        paths.push(Walker::new(state, &mut script, packet.clone()).walk());
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
