//! What a full sync of kube-proxy costs: rendering it by the model, and restoring it by the real
//! `iptables-restore` in a network namespace: `cargo bench -p chainbreak-agents --profile dev`.

#![expect(
    dead_code,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "made of parts of tests, and the figures are what it is for"
)]

#[path = "../tests/kube_proxy/desk.rs"]
mod desk;
#[path = "../tests/kube_proxy/netns.rs"]
mod netns;
#[path = "../tests/kube_proxy/objects.rs"]
mod objects;

use std::time::{Duration, Instant};

use chainbreak_agents::{
    kube_proxy::Event,
    step::{Command, Output},
};
use desk::{Desk, Kernel};
use netns::{BACKENDS, Netns};
use objects::{config, plain, slice};

/// How many services, each with two endpoints, and how often their rules are made and restored. With
/// nft the largest takes a minute.
const SIZES: [(usize, usize); 3] = [(100, 10), (1_000, 6), (10_000, 1)];

/// Answers at once, so that the model alone is measured.
struct AtOnce;

impl Kernel for AtOnce {
    fn run(&mut self, command: &Command) -> Output {
        let version = command.argv.iter().any(|word| word == "--version");
        Output {
            stdout: String::from(if version {
                "iptables v1.8.9 (legacy)\n"
            } else {
                ""
            }),
            ..Output::default()
        }
    }
}

fn services(count: usize) -> impl Iterator<Item = Event> {
    (0..count).flat_map(|number| {
        let (high, low) = (number / 256, number % 256);
        let name = format!("shop-{number}");
        let (near, far) = (format!("10.20.{high}.{low}"), format!("10.21.{high}.{low}"));
        [
            plain(&name, &format!("10.96.{high}.{low}")),
            slice(&name, &[(&near, "n1"), (&far, "n2")]),
        ]
    })
}

/// The first sync, from the moment when everything is known to the commands: how long, and its input.
fn render(count: usize) -> (Duration, String) {
    let mut desk = Desk::new(config("1.32"), AtOnce);
    services(count).for_each(|event| desk.tell(event));
    desk.tell(Event::ServicesSynced);
    let begin = Instant::now();
    desk.tell(Event::SlicesSynced);
    (begin.elapsed(), desk.last_restore().to_owned())
}

/// With the time that starting a process in a namespace takes.
fn restore(netns: &mut Netns, input: &str) -> Duration {
    let begin = Instant::now();
    netns.restore(input);
    begin.elapsed()
}

/// In milliseconds, if it was measured at all.
fn median(mut times: Vec<Duration>) -> Option<f64> {
    times.sort();
    let middle = times.get(times.len() / 2)?;
    Some(middle.as_secs_f64() * 1e3)
}

fn main() {
    for (count, times) in SIZES {
        let rendered: Vec<(Duration, String)> = (0..times).map(|_| render(count)).collect();
        let input = rendered[0].1.clone();
        let rules = input.lines().filter(|line| line.starts_with("-A")).count();
        let took = median(rendered.into_iter().map(|(took, _)| took).collect());
        show(&format!("{count} services, {rules} rules: rendered"), took);
        for backend in BACKENDS {
            let mut netns = Netns::new(backend);
            let mut restored = (0..times).map(|_| restore(&mut netns, &input));
            let first = median(restored.by_ref().take(1).collect());
            show(&format!("{count} services, {backend:?}: restored"), first);
            let again = median(restored.collect());
            show(
                &format!("{count} services, {backend:?}: restored over themselves"),
                again,
            );
        }
    }
}

fn show(what: &str, milliseconds: Option<f64>) {
    if let Some(milliseconds) = milliseconds {
        println!("{what} in {milliseconds:.1} ms");
    }
}
