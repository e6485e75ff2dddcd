//! Crafted segments do to live connections what they are said to do.

mod world;

use std::{
    collections::BTreeSet, net::SocketAddr, process::ChildStdin, sync::mpsc, time::Duration,
};

use chainbreak_probe::wire::{
    Connections, Errand, Order, Outcome,
    craft::{Craft, Report, Segment},
};
use world::{ANSWERS, Probe, Running, World, order, send};

const INVALID: &str = "-m conntrack --ctstate INVALID";

struct Crafter {
    child: Running,
    stdin: ChildStdin,
    reports: mpsc::Receiver<Report>,
}

impl Crafter {
    fn start(world: &World, segment: Segment) -> Self {
        let errand = Errand::Craft(Craft {
            servers: vec![server()],
            segment,
            every_us: 50_000,
        });
        let mut command = world.command(env!("CARGO_BIN_EXE_chainbreak-probe"));
        let (child, stdin, reports) = send(&mut command, &errand);
        Self {
            child,
            stdin,
            reports,
        }
    }

    /// Waits for a report.
    fn next(&self) -> Report {
        let report = self.reports.recv_timeout(Duration::from_secs(10));
        report.expect("the crafter goes on")
    }

    /// Waits until it crafted for a connection this often.
    fn crafted(&self, times: usize) {
        assert_eq!(self.next(), Report::Started);
        for _ in 0..times {
            assert!(matches!(self.next(), Report::Crafted { server: to, .. } if to == server()));
        }
    }

    /// Ends it; how many segments it sent.
    fn stop(mut self) -> u64 {
        drop(self.stdin);
        let segments = loop {
            if let Report::Done { segments } = self
                .reports
                .recv_timeout(Duration::from_secs(10))
                .expect("the crafter says when it is done")
            {
                break segments;
            }
        };
        assert!(self.child.0.wait().expect("a child").success());
        segments
    }
}

fn server() -> SocketAddr {
    ([127, 0, 0, 1], ANSWERS).into()
}

/// Requests on a kept connection, until stopped.
fn kept(world: &World) -> Probe {
    world.probe(&Order {
        connections: Connections::Kept,
        ..order(ANSWERS, 20_000, None)
    })
}

fn run(world: &World, line: &str) -> String {
    let mut words = line.split(' ');
    let output = world
        .command(words.next().expect("a program"))
        .args(words)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// How many packets the rule for INVALID ones has seen.
fn invalid(world: &World) -> u64 {
    let save = run(world, "iptables-legacy-save -c -t filter");
    let line = save.lines().find(|line| line.contains("INVALID"));
    let count = line.and_then(|line| line.strip_prefix('[')?.split(':').next()?.parse().ok());
    count.expect("the rule has counters")
}

#[test]
fn a_crafted_reset_ends_each_kept_connection_in_turn() {
    let world = World::new();
    let _nginx = world.nginx();
    let mut requests = kept(&world);
    requests.until("answered");
    let crafter = Crafter::start(&world, Segment::Reset);
    let mut clients = BTreeSet::new();
    while clients.len() < 3 {
        if let Report::Crafted { client, .. } = crafter.next() {
            clients.insert(client);
        }
    }
    assert!(crafter.stop() >= 3);
    let samples = requests.stop().samples;
    let locals: BTreeSet<SocketAddr> = samples
        .iter()
        .filter_map(|sample| match &sample.outcome {
            Outcome::Answered { local, .. } => Some(*local),
            _ => None,
        })
        .collect();
    assert!(locals.is_superset(&clients), "{locals:?} {clients:?}");
}

#[test]
fn data_out_of_the_window_is_invalid_to_conntrack_and_harmless_where_it_is_dropped() {
    let world = World::new();
    let _nginx = world.nginx();
    run(
        &world,
        &format!("iptables-legacy -A INPUT {INVALID} -j DROP"),
    );
    let mut requests = kept(&world);
    requests.until("answered");
    let crafter = Crafter::start(&world, Segment::OutOfWindow);
    crafter.crafted(5);
    let sent = crafter.stop();
    requests.until("answered");
    assert!(sent >= 5 && invalid(&world) == sent, "{sent}");
    let samples = requests.stop().samples;
    assert!(samples.iter().all(|sample| sample.outcome.is_answered()));
}

#[test]
fn after_a_stray_handshake_real_segments_are_invalid_unless_conntrack_is_liberal() {
    let world = World::new();
    let _nginx = world.nginx();
    run(
        &world,
        &format!("iptables-legacy -A OUTPUT {INVALID} -j DROP"),
    );
    for (liberal, word) in [(1, "answered"), (0, "timed out")] {
        let liberal = format!("net.netfilter.nf_conntrack_tcp_be_liberal={liberal}");
        run(&world, &format!("sysctl -qw {liberal}"));
        let before = invalid(&world);
        let mut requests = kept(&world);
        requests.until("answered");
        let crafter = Crafter::start(&world, Segment::StrayHandshake);
        crafter.crafted(2);
        requests.until(word);
        crafter.stop();
        let dropped = invalid(&world) - before;
        assert_eq!(
            dropped > 0,
            word == "timed out",
            "{dropped} after {liberal}"
        );
        drop(requests);
    }
}
