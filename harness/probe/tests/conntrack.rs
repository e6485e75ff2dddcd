//! Conntrack's table is filled with connections that nobody has, and emptied of those alone.

mod world;

use std::{process::Command, time::Duration};

use chainbreak_probe::wire::{
    Errand,
    conntrack::{Fill, Report},
};
use world::{World, send};

/// Others' connection, in the network of ours but without our mark.
const OTHERS: &str = "-s 198.18.0.1 -d 198.19.0.1 -p tcp --sport 1023 --dport 80";

/// A namespace whose connections are tracked, with one of others.
fn world() -> World {
    let world = World::new();
    world.sh("iptables -A OUTPUT -m conntrack --ctstate NEW -j ACCEPT");
    world.sh(&format!(
        "conntrack -I {OTHERS} --state ESTABLISHED -t 600 >/dev/null 2>&1"
    ));
    world
}

fn told(world: &World, errand: &Errand) -> Report {
    let mut command: Command = world.command(env!("CARGO_BIN_EXE_chainbreak-probe"));
    let (_child, _stdin, reports) = send(&mut command, errand);
    let report = reports.recv_timeout(Duration::from_secs(30));
    report.expect("the probe says what became of it")
}

/// How many entries a table may have.
fn most() -> u32 {
    let most = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max");
    most.expect("conntrack").trim().parse().expect("a number")
}

/// How far a process gives way to others: the 19th field of its `stat` (proc(5)).
fn nice(process: u32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("its stat");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let nice = fields.split(' ').nth(16).expect("a 19th field");
    nice.parse().expect("a number")
}

fn fill(entries: u32) -> Errand {
    Errand::FillConntrack(Fill {
        entries,
        timeout_s: 600,
        seed: 7,
    })
}

#[test]
fn entries_are_established_and_assured_and_only_they_are_deleted() {
    let world = world();
    assert_eq!(told(&world, &fill(1000)), Report::Filled { full: false });
    // The same once more are the same.
    assert_eq!(told(&world, &fill(1000)), Report::Filled { full: false });
    world.sh("test $(conntrack -L 2>/dev/null | grep -c '^tcp .* ESTABLISHED .*ASSURED.* mark=[1-9]') = 1000");
    assert_eq!(told(&world, &Errand::EmptyConntrack), Report::Emptied);
    world.sh("test $(cat /proc/sys/net/netfilter/nf_conntrack_count) = 1");
    world.sh(&format!("conntrack -D {OTHERS} >/dev/null 2>&1"));
}

#[test]
fn a_table_that_takes_no_more_is_full_and_that_takes_seconds_at_most() {
    let world = world();
    let most = most();
    let begin = std::time::Instant::now();
    assert_eq!(
        told(&world, &fill(most + 1000)),
        Report::Filled { full: true }
    );
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?} for {most}");
    world.sh(&format!(
        "test $(cat /proc/sys/net/netfilter/nf_conntrack_count) -ge {}",
        most - 100
    ));
    assert_eq!(told(&world, &Errand::EmptyConntrack), Report::Emptied);
    world.sh("test $(cat /proc/sys/net/netfilter/nf_conntrack_count) = 1");
}

#[test]
fn a_full_table_stays_full_while_others_connections_end() {
    let world = world();
    world.sh(
        "for port in $(seq 800 1000); do conntrack -I -s 198.18.0.1 -d 198.19.0.1 -p tcp --sport $port --dport 80 \
         --state ESTABLISHED -u SEEN_REPLY,ASSURED -t 600 >/dev/null 2>&1; done",
    );
    let mut command: Command = world.command(env!("CARGO_BIN_EXE_chainbreak-probe"));
    let (mut child, stdin, reports) = send(&mut command, &fill(most() + 1000));
    let filled: Option<Report> = reports.recv_timeout(Duration::from_secs(30)).ok();
    assert_eq!(filled, Some(Report::Filled { full: true }));
    assert_eq!(
        nice(child.0.id()) - nice(std::process::id()),
        10,
        "it gives way"
    );
    world.sh("conntrack -D -p tcp -s 198.18.0.1 -d 198.19.0.1 --dport 80 >/dev/null 2>&1");
    world.sh(&format!(
        "for _ in $(seq 50); do test $(cat /proc/sys/net/netfilter/nf_conntrack_count) -ge {} && exit; sleep 0.1; done; exit 1",
        most() - 20
    ));
    drop(stdin);
    assert!(child.0.wait().expect("the probe ends").success());
    assert_eq!(told(&world, &Errand::EmptyConntrack), Report::Emptied);
}
