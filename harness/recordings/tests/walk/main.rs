//! Packets walk through what real kube-proxies left standing.

#![expect(clippy::print_stdout, reason = "how much was compared is told")]
#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

#[path = "../../../netfilter/tests/kernel_walk/compare.rs"]
mod compare;
#[path = "../../../netfilter/tests/kernel_walk/front.rs"]
mod front;
mod kernel;
#[path = "../../../netfilter/tests/namespace/mod.rs"]
mod namespace;
#[path = "../../../netfilter/tests/kernel_walk/packets.rs"]
mod packets;
#[path = "../../../netfilter/tests/kernel_walk/places.rs"]
mod places;
mod recorded;
mod shares;
#[path = "../../../netfilter/tests/kernel_walk/sockets.rs"]
mod sockets;
#[path = "../../../netfilter/tests/kernel_walk/talk.rs"]
mod talk;
#[path = "../../../netfilter/tests/kernel_walk/tally.rs"]
mod tally;
#[path = "../../../netfilter/tests/kernel_walk/world.rs"]
mod world;
