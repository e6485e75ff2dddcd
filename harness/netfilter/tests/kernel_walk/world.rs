//! A world: the rules of a node, its settings, and packets.

use chainbreak_netfilter::walk::Packet;

use crate::{front::Front, places::Place};

/// A world.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) front: Front,
    /// What the front loads.
    pub(crate) rules: String,
    /// Of all interfaces, and of each.
    pub(crate) rp_filter: [u32; 2],
    pub(crate) packets: Vec<Sent>,
}

/// A packet and who sends it. With `answers` it is turned round when the earlier packet of that number arrived, and
/// goes as that one arrived.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) from: Place,
    pub(crate) packet: Packet,
    pub(crate) answers: Option<usize>,
}
