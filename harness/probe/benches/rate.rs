//! How many new connections a second one core makes against a real nginx on another, and how late requests
//! begin: `cargo bench -p chainbreak-probe`.

#[path = "../tests/world/mod.rs"]
mod world;

use std::process::Command;

use chainbreak_probe::wire::{Connections, Order, Report};
use world::{ANSWERS, Said, World, order};

/// How long each rate is held.
const SECONDS: u64 = 3;

fn pinned(world: &World, core: &str, program: &str) -> Command {
    let mut command = world.command("taskset");
    command.args(["-c", core, program]);
    command
}

fn measure(world: &World, connections: Connections, rate: u64) -> Said {
    let order = Order {
        connections,
        timeout_us: 1_000_000,
        ..order(ANSWERS, 1_000_000 / rate, Some(rate * SECONDS))
    };
    let probe = pinned(world, "0", env!("CARGO_BIN_EXE_chainbreak-probe"));
    World::probe_after(probe, &order).end()
}

#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn show(connections: Connections, rate: u64, said: &Said) {
    let answered = said
        .samples
        .iter()
        .filter(|sample| sample.outcome.is_answered());
    let mut took: Vec<u64> = answered.map(|sample| sample.took_us).collect();
    took.sort_unstable();
    let ends = said
        .samples
        .iter()
        .map(|sample| sample.at_us + sample.took_us);
    let seconds = ends.max().unwrap_or(0) as f64 / 1e6;
    let quantile =
        |percent: usize| took.get((took.len() * percent / 100).min(took.len().saturating_sub(1)));
    let Report::Done { sent, lateness } = said.done else {
        return;
    };
    println!(
        "{connections:?} {rate}/s: {:.0} answered/s, {} of {sent} lost, answer {} µs (99 %: {} µs), \
         late {} µs (99 %: {} µs, most {} µs)",
        took.len() as f64 / seconds,
        sent - took.len() as u64,
        quantile(50).unwrap_or(&0),
        quantile(99).unwrap_or(&0),
        lateness.median_us,
        lateness.p99_us,
        lateness.max_us
    );
}

fn main() {
    let world = World::new();
    let _nginx = world.nginx_after(pinned(&world, "1", "nginx"));
    for rate in [200, 1_000, 5_000, 10_000, 12_500, 20_000] {
        for connections in [Connections::New, Connections::Kept] {
            let said = measure(&world, connections, rate);
            show(connections, rate, &said);
        }
    }
}
