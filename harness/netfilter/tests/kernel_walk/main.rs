//! The walk held to the kernel: random rules and random packets, sent through real network namespaces, by root or by an
//! ordinary user. Of each packet its end, its addresses as it arrives, every rule's counter and conntrack's entry are
//! compared with one of the ways that the walk tells.
//!
//! `CHAINBREAK_WORLDS` is how many rulesets are made, `CHAINBREAK_SEED` the first one's seed: with 1 and the number of a
//! world, this one alone.

#![expect(clippy::print_stdout, reason = "how much was compared is told")]
#![expect(clippy::unwrap_used, reason = "a test's helpers fail like its tests")]

mod compare;
mod front;
mod grammar;
mod ipv6;
#[path = "../namespace/mod.rs"]
mod namespace;
mod packets;
mod places;
mod sockets;
mod talk;
mod tally;
mod world;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use compare::Kernel;
use tally::{Seeds, Tally, inside};

/// As many as ten seconds allow.
const WORLDS: u64 = 20;

#[test]
fn the_walk_says_of_every_packet_what_the_kernel_does_with_it() {
    inside(
        "the_walk_says_of_every_packet_what_the_kernel_does_with_it",
        WORLDS,
        compare_worlds,
    );
}

fn compare_worlds(seeds: &Seeds) {
    let mut kernel = Kernel::new(&[]);
    let mut tally = Tally::default();
    for seed in seeds.each() {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let in_ipv6 = random.random_bool(0.4);
        let mut world = grammar::world(&mut random);
        if in_ipv6 {
            world = world.in_ipv6();
        }
        tally.compare(&mut kernel, &world, &format!("world {seed}"));
        if tally.is_over() {
            break;
        }
    }
    tally.tell(seeds);
}
