//! Every outcome, made by the real kernel and the real nginx.

mod world;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use chainbreak_probe::wire::{Connections, Order, Outcome, Report};
use world::{ANSWERS, CLOSES_AFTER_TEN, CLOSES_SILENTLY, FAILS, NOBODY, Said, World, order};

fn words(said: &Said) -> Vec<&'static str> {
    said.samples
        .iter()
        .map(|sample| sample.outcome.word())
        .collect()
}

fn locals(said: &Said) -> Vec<SocketAddr> {
    let locals = said
        .samples
        .iter()
        .filter_map(|sample| match &sample.outcome {
            Outcome::Answered { local, .. } => Some(*local),
            _ => None,
        });
    locals.collect()
}

#[test]
fn an_answer_names_its_backend_and_the_address_it_saw() {
    let world = World::new();
    let _nginx = world.nginx();
    let source = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)));
    let said = world
        .probe(&Order {
            source,
            ..order(ANSWERS, 1_000, Some(50))
        })
        .end();
    assert_eq!(said.samples.len(), 50);
    for sample in &said.samples {
        let Outcome::Answered {
            backend,
            seen_as,
            local,
        } = &sample.outcome
        else {
            panic!("{sample:?}");
        };
        assert_eq!((backend.as_str(), *seen_as), ("web-1", Some(*local)));
        assert_eq!(Some(local.ip()), source);
    }
    let ports: BTreeSet<_> = locals(&said).iter().map(SocketAddr::port).collect();
    assert_eq!(ports.len(), 50, "a connection for each request");
    let span = ports.last().unwrap() - ports.first().unwrap();
    assert_eq!(span, 49, "from one port after the other: {ports:?}");
    assert!(matches!(said.done, Report::Done { sent: 50, .. }));
}

#[test]
fn refusals_silence_and_resets_are_told_apart() {
    let world = World::new();
    let _nginx = world.nginx();
    let input = "iptables-legacy -A INPUT -p tcp --dport";
    world.sh(&format!(
        "{input} 1 -j REJECT
         {input} 2 -j REJECT --reject-with icmp-host-unreachable
         {input} 3 -j DROP
         {input} 4 -j REJECT --reject-with tcp-reset
         {input} {CLOSES_AFTER_TEN} --tcp-flags PSH PSH -j REJECT --reject-with tcp-reset"
    ));
    for (port, word) in [
        (NOBODY, "refused"),
        (1, "refused"),
        (2, "unreachable"),
        (3, "timed out"),
        (4, "refused"),
        (CLOSES_AFTER_TEN, "reset"),
        (CLOSES_SILENTLY, "reset"),
        (FAILS, "wrong answer"),
        (ANSWERS, "answered"),
    ] {
        let said = world.probe(&order(port, 1_000, Some(5))).end();
        assert_eq!(words(&said), [word; 5], "port {port}");
    }
    let target = SocketAddr::from(([192, 0, 2, 1], 80));
    let said = world
        .probe(&Order {
            target,
            ..order(1, 1_000, Some(2))
        })
        .end();
    assert_eq!(words(&said), ["unreachable"; 2], "no route");
}

#[test]
fn a_request_that_is_not_answered_delays_no_other() {
    let world = World::new();
    world.sh("iptables-legacy -A INPUT -p tcp --dport 3 -j DROP");
    for connections in [Connections::New, Connections::Kept] {
        let began = Instant::now();
        let said = world
            .probe(&Order {
                connections,
                ..order(3, 1_000, Some(300))
            })
            .end();
        // The last is due after 299 ms and times out 300 ms later. One after the other would take 90 s;
        // half a second is left for a busy machine.
        assert!(
            began.elapsed() < Duration::from_millis(599 + 500),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(words(&said), ["timed out"; 300]);
        let mut due: Vec<u64> = said.samples.iter().map(|sample| sample.at_us).collect();
        due.sort_unstable();
        assert_eq!(due, (0..300).map(|n| n * 1_000).collect::<Vec<u64>>());
        assert!(said.samples.iter().all(|sample| sample.took_us >= 300_000));
    }
}

#[test]
fn a_kept_connection_is_one_connection_until_the_server_closes_it() {
    let world = World::new();
    let _nginx = world.nginx();
    let kept = |port| Order {
        connections: Connections::Kept,
        ..order(port, 1_000, Some(100))
    };
    let said = world.probe(&kept(ANSWERS)).end();
    assert_eq!(words(&said), ["answered"; 100]);
    assert_eq!(locals(&said).into_iter().collect::<BTreeSet<_>>().len(), 1);
    let said = world.probe(&kept(CLOSES_AFTER_TEN)).end();
    assert_eq!(
        words(&said),
        ["answered"; 100],
        "an orderly close costs no request"
    );
    assert_eq!(locals(&said).into_iter().collect::<BTreeSet<_>>().len(), 10);
}

#[test]
fn a_kept_connection_that_was_reset_is_replaced() {
    let world = World::new();
    let _nginx = world.nginx();
    let endless = Order {
        connections: Connections::Kept,
        ..order(ANSWERS, 1_000, None)
    };
    let mut probe = world.probe(&endless);
    probe.until("answered");
    let reset = format!(
        "INPUT -p tcp --dport {ANSWERS} --tcp-flags PSH PSH -j REJECT --reject-with tcp-reset"
    );
    world.sh(&format!("iptables-legacy -A {reset}"));
    probe.until("reset");
    world.sh(&format!("iptables-legacy -D {reset}"));
    probe.until("answered");
    let said = probe.stop();
    assert!(
        words(&said)
            .iter()
            .all(|word| ["answered", "reset"].contains(word))
    );
    let (first, last) = (
        locals(&said).first().copied(),
        locals(&said).last().copied(),
    );
    assert_ne!(first, last);
}

#[test]
fn a_closed_standard_input_ends_the_run_with_every_request_accounted_for() {
    let world = World::new();
    let _nginx = world.nginx();
    let mut probe = world.probe(&order(ANSWERS, 500, None));
    probe.until("answered");
    let said = probe.stop();
    let Report::Done { sent, .. } = said.done else {
        panic!("{:?}", said.done);
    };
    assert_eq!(sent, said.samples.len() as u64);
}

#[test]
fn new_connections_leave_the_wait_to_the_server() {
    let world = World::new();
    let _nginx = world.nginx();
    world.probe(&order(ANSWERS, 500, Some(200))).end();
    let table = world.command("cat").arg("/proc/net/tcp").output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    // sl, local address, remote address, state (06: TIME_WAIT), …
    let rows = table
        .lines()
        .map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    let waiting: Vec<_> = rows
        .filter(|row| row[3] == "06")
        .map(|row| row[1].to_owned())
        .collect();
    let server = format!(":{ANSWERS:04X}");
    assert!(waiting.len() >= 200, "{}", waiting.len());
    assert!(
        waiting.iter().all(|local| local.ends_with(&server)),
        "{waiting:?}"
    );
}
