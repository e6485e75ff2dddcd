//! A hole cut into the path is measured as long as it is, and when it is.

mod world;

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, ChildStdout, Stdio},
    sync::mpsc,
    time::Duration,
};

use chainbreak_probe::{clock::monotonic_us, wire::Sample};
use world::{ANSWERS, Running, Said, World, order};

const EVERY_US: u64 = 1_000;
const HOLE_US: u64 = 50_000;
const TOLERANCE_US: u64 = 5_000;

/// The TTL of packets that the world drops. One write to a sysctl gives it to all that are sent from then on,
/// which takes a fraction of what any change of rules does.
const DROPPED: u8 = 77;
const USUAL: u8 = 64;

/// What opens holes and closes them: a shell in the world that writes each TTL it reads, and says so.
struct Knife {
    _shell: Running,
    orders: ChildStdin,
    done: BufReader<ChildStdout>,
}

impl Knife {
    fn new(world: &World) -> Self {
        let drop = format!("INPUT -p tcp --dport {ANSWERS} -m ttl --ttl-eq {DROPPED} -j DROP");
        world.sh(&format!("iptables-legacy -w -A {drop}"));
        let script =
            "while read ttl; do echo $ttl >/proc/sys/net/ipv4/ip_default_ttl && echo done; done";
        let mut shell = world.command("sh");
        let shell = shell.args(["-c", script]).stdin(Stdio::piped());
        let mut shell = shell.stdout(Stdio::piped()).spawn().expect("sh runs");
        let orders = shell.stdin.take().expect("piped");
        let done = BufReader::new(shell.stdout.take().expect("piped"));
        let mut knife = Self {
            _shell: Running(shell),
            orders,
            done,
        };
        // The shell is there, and has done it once.
        knife.set(USUAL);
        knife
    }

    /// Sets the TTL, and says between which times that happened.
    fn set(&mut self, ttl: u8) -> (u64, u64) {
        let before = monotonic_us();
        writeln!(self.orders, "{ttl}").expect("it reads");
        let mut done = String::new();
        self.done.read_line(&mut done).expect("readable");
        assert_eq!(done, "done\n", "a network namespace has its own TTL");
        (before, monotonic_us())
    }

    fn cut(&mut self) -> Cut {
        let (began, begun) = self.set(DROPPED);
        wait_until(began + HOLE_US);
        let (ends, ended) = self.set(USUAL);
        Cut {
            at: began,
            length: ends - began,
            uncertain: (begun - began).max(ended - ends),
        }
    }
}

/// Waits until the clock shows that time: nothing else happens on this channel.
fn wait_until(us: u64) {
    let (_quiet, channel) = mpsc::channel::<()>();
    let left = Duration::from_micros(us.saturating_sub(monotonic_us()));
    assert!(channel.recv_timeout(left).is_err());
}

/// A hole: when it began, how long it was, and how much of both is uncertain, in microseconds.
struct Cut {
    at: u64,
    length: u64,
    uncertain: u64,
}

/// The time of the first unanswered request due around the cut, and the span of all of them.
fn measured(said: &Said, cut: &Cut) -> (u64, u64) {
    let around = cut.at - 4 * TOLERANCE_US..cut.at + cut.length + 4 * TOLERANCE_US;
    let due = said
        .samples
        .iter()
        .filter(|sample| !sample.outcome.is_answered());
    let due: Vec<u64> = due
        .map(|sample| said.started_us + sample.at_us)
        .filter(|due| around.contains(due))
        .collect();
    let (first, last) = (due.iter().min(), due.iter().max());
    let (first, last) = first.zip(last).expect("a hole loses requests");
    (*first, last - first + EVERY_US)
}

/// Cuts three holes into a probe's traffic: what the probe said, and the cuts.
fn run(world: &World, knife: &mut Knife) -> (Said, Vec<Cut>) {
    let probe = world.probe(&order(ANSWERS, EVERY_US, None));
    let cuts = (0..3).map(|_| {
        // The next hole begins when nothing of the last one is under way any more.
        wait_until(monotonic_us() + 100_000);
        knife.cut()
    });
    let cuts = cuts.collect();
    wait_until(monotonic_us() + 100_000);
    (probe.stop(), cuts)
}

#[test]
fn a_hole_of_50_ms_is_measured_as_50_ms() {
    let world = World::new();
    let _nginx = world.nginx();
    let mut knife = Knife::new(&world);
    let mut judged = 0;
    // On a busy machine many holes are blunt, or requests are late before they meet one. Whether a hole is
    // fit to be judged never depends on what the probe made of the hole itself.
    for _ in 0..30 {
        let (said, cuts) = run(&world, &mut knife);
        for cut in cuts
            .iter()
            .filter(|cut| is_sharp(cut) && is_calm(&said, cut))
        {
            let (at, length) = measured(&said, cut);
            println!(
                "cut {} µs ± {}, measured {length} µs",
                cut.length, cut.uncertain
            );
            assert!(
                length.abs_diff(HOLE_US) <= TOLERANCE_US,
                "measured {length} µs"
            );
            assert!(
                at.abs_diff(cut.at) <= TOLERANCE_US,
                "{at} is not {}",
                cut.at
            );
            judged += 1;
        }
        if judged >= 3 {
            return;
        }
    }
    panic!("this machine is too busy to cut a hole of 50 ms: {judged} of 90 were fit");
}

#[test]
fn a_request_that_was_due_in_a_hole_and_sent_after_it_says_so() {
    let world = World::new();
    let _nginx = world.nginx();
    let mut knife = Knife::new(&world);
    let mut probe = world.probe(&order(ANSWERS, EVERY_US, None));
    probe.until("answered");
    probe.signal(&world, "STOP");
    let cut = knife.cut();
    let healed = monotonic_us();
    probe.signal(&world, "CONT");
    wait_until(monotonic_us() + 100_000);
    let said = probe.stop();
    let hole = cut.at..cut.at + cut.length;
    let due = |sample: &Sample| said.started_us + sample.at_us;
    let in_hole = said.samples.iter().filter(|it| hole.contains(&due(it)));
    let in_hole: Vec<&Sample> = in_hole.collect();
    assert!(in_hole.len() as u64 >= HOLE_US / EVERY_US - 1);
    for sample in in_hole {
        assert!(sample.outcome.is_answered(), "it met no hole: {sample:?}");
        let sent = sample.late_us.map(|late| due(sample) + late);
        assert!(sent >= Some(healed), "{sample:?}");
    }
}

/// Whether the requests in the 20 ms before and after the hole, but for 5 ms at its edges, were all answered
/// at once, in 2 ms: a request that is late by more can meet a hole that is not its own.
fn is_calm(said: &Said, cut: &Cut) -> bool {
    let (wide, near) = (4 * TOLERANCE_US, TOLERANCE_US);
    let end = cut.at + cut.length;
    let neighbours = [cut.at - wide..cut.at - near, end + near..end + wide];
    said.samples.iter().all(|sample| {
        let due = said.started_us + sample.at_us;
        let prompt = sample.outcome.is_answered() && sample.took_us <= 2_000;
        prompt || !neighbours.iter().any(|span| span.contains(&due))
    })
}

/// The hole is then between 46 and 54 ms long; with requests every 1 ms that leaves the probe nothing of
/// the tolerance.
fn is_sharp(cut: &Cut) -> bool {
    cut.uncertain <= 2_500 && cut.length.abs_diff(HOLE_US) <= 1_500
}
