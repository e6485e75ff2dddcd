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
mod world;

use std::env;

use chainbreak_netfilter::Family;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use compare::{Compared, Kernel, shrunk};

/// As many as ten seconds allow.
const WORLDS: u64 = 20;
/// How many differences are told.
const MOST: usize = 5;
const INSIDE: &str = "CHAINBREAK_WALK_INSIDE";
const SAID: &str = "packets compared";

fn number(name: &str, otherwise: u64) -> u64 {
    let given = env::var(name).ok();
    given.map_or(otherwise, |it| it.parse().expect("a number"))
}

#[test]
fn the_walk_says_of_every_packet_what_the_kernel_does_with_it() {
    if env::var(INSIDE).is_ok() {
        return compare_worlds();
    }
    let (mut unshare, _lock) = namespace::unshare();
    let output = unshare
        .arg(env::current_exe().unwrap())
        .args([
            "--exact",
            "the_walk_says_of_every_packet_what_the_kernel_does_with_it",
        ])
        .arg("--nocapture")
        .env(INSIDE, "1")
        .output()
        .expect("unshare (package util-linux) runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains(SAID),
        "{said}\n{error}"
    );
    println!("{said}");
}

fn compare_worlds() {
    let (first, count) = (
        number("CHAINBREAK_SEED", 1),
        number("CHAINBREAK_WORLDS", WORLDS),
    );
    let mut kernel = Kernel::new();
    let (mut all, mut worlds) = ([Compared::default(), Compared::default()], 0);
    let (mut different, mut smallest) = (Vec::new(), String::new());
    for seed in first..first + count {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let world = grammar::world(&mut random);
        // Every third one in IPv6.
        let world = if seed.is_multiple_of(3) {
            world.in_ipv6()
        } else {
            world
        };
        worlds += 1;
        match kernel.compare(&world) {
            Ok(compared) => all[usize::from(world.family == Family::V6)] += compared,
            Err(difference) if different.is_empty() => {
                different.push(format!("world {seed}: {difference}"));
                smallest = shrunk(&mut kernel, &world);
            }
            Err(difference) => different.push(format!("world {seed}: {difference}")),
        }
        if different.len() == MOST {
            break;
        }
    }
    println!("{worlds} worlds, {} differ", different.len());
    for (family, compared) in ["IPv4", "IPv6"].into_iter().zip(&all) {
        let Compared {
            packets,
            arrived,
            open,
        } = compared;
        println!("{family}: {packets} {SAID}, {arrived} arrived, {open} left open");
    }
    let told = different.join("\n\n");
    assert!(
        different.is_empty(),
        "{told}\n\nthe first one shrunk:\n{smallest}"
    );
    let is_enough = |it: &Compared| it.arrived * 5 > it.packets && it.open * 20 < it.packets;
    assert!(count < 3 || all.iter().all(is_enough), "{all:?}");
}
