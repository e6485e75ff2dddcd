//! What waits at the gate, for how long, and what does not. Time is the runtime's own and jumps: a test
//! takes no time, and what it measures is exact.

use std::time::Duration;

use chainbreak_engine::gate::{Gate, Matching};
use chainbreak_model::names::NodeName;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

const SECOND: Duration = Duration::from_secs(1);

fn program(name: &str) -> Matching {
    Matching {
        program: Some(name.to_owned()),
        ..Matching::default()
    }
}

/// Passes with a command of kube-proxy on n1, and says how long it waited.
async fn waited(gate: &Gate, line: &str) -> Duration {
    let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let begin = Instant::now();
    gate.pass("kube-proxy", &NodeName::from("n1"), &argv).await;
    begin.elapsed()
}

fn coming(gate: &Gate, line: &'static str) -> JoinHandle<Duration> {
    let gate = gate.clone();
    tokio::spawn(async move { waited(&gate, line).await })
}

/// How long it waited; it must not wait forever.
async fn end_of(command: JoinHandle<Duration>) -> Duration {
    let ended = timeout(SECOND * 3600, command).await;
    let passed = ended.expect("it passes");
    passed.expect("it does not panic")
}

#[tokio::test(start_paused = true)]
async fn without_a_bar_a_command_passes_at_once() {
    assert_eq!(
        waited(&Gate::default(), "iptables -S").await,
        Duration::ZERO
    );
}

#[tokio::test(start_paused = true)]
async fn a_delay_lasts_until_it_is_lifted_and_delays_add_up() {
    let gate = Gate::default();
    gate.delay(program("iptables-restore"), SECOND);
    gate.delay(Matching::default(), SECOND / 2);
    gate.delay(Matching::default(), SECOND * 9);
    // The one whose time is over, whichever began first.
    gate.lift(&Matching::default(), SECOND * 9);
    assert_eq!(waited(&gate, "iptables-restore").await, SECOND * 3 / 2);
    assert_eq!(waited(&gate, "iptables-save").await, SECOND / 2);
    gate.lift(&Matching::default(), SECOND / 2);
    assert_eq!(waited(&gate, "iptables-restore").await, SECOND);
    // It is lifted once.
    gate.lift(&Matching::default(), SECOND / 2);
    gate.lift(&program("iptables-restore"), SECOND);
    assert_eq!(waited(&gate, "iptables-restore").await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_ends_lets_go_who_waits_for_it() {
    let gate = Gate::default();
    gate.delay(Matching::default(), SECOND * 7200);
    let command = coming(&gate, "iptables -S");
    let still = timeout(SECOND, waited(&gate, "iptables -L")).await;
    assert!(still.is_err(), "nobody passes before: {still:?}");
    gate.lift(&Matching::default(), SECOND * 7200);
    assert_eq!(end_of(command).await, SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_held_are_told_of_in_their_order_and_wait_until_released() {
    let gate = Gate::default();
    let mut held = gate.hold(program("iptables-restore"));
    let first = coming(&gate, "iptables-restore --noflush");
    let told = held.waiting().await;
    assert_eq!(
        (told.who.as_str(), told.node.as_str()),
        ("kube-proxy", "n1")
    );
    assert_eq!(told.argv, ["iptables-restore", "--noflush"]);
    let second = coming(&gate, "iptables-restore --test");
    assert_eq!(held.waiting().await.argv[1], "--test");
    let third = timeout(SECOND, held.waiting()).await;
    assert!(third.is_err(), "each is told of once: {third:?}");
    assert!(!first.is_finished() && !second.is_finished());
    held.release();
    assert_eq!(
        (end_of(first).await, end_of(second).await),
        (SECOND, SECOND)
    );
    assert_eq!(waited(&gate, "iptables-restore").await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_forgotten_in_a_panic_holds_nobody() {
    let gate = Gate::default();
    let mut held = gate.hold(Matching::default());
    let command = coming(&gate, "iptables -S");
    let task = tokio::spawn(async move {
        held.waiting().await;
        panic!("the holder is gone");
    });
    assert!(task.await.is_err());
    assert_eq!(end_of(command).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_bar_concerns_only_what_matches_it_wholly() {
    let matching = |who: &str, node: &str, name: &str| Matching {
        who: Some(who.to_owned()),
        node: Some(NodeName::from(node)),
        program: Some(name.to_owned()),
    };
    let cases = [
        (matching("kube-proxy", "n1", "iptables"), "iptables", true),
        (matching("felix", "n1", "iptables"), "iptables", false),
        (matching("kube-proxy", "n2", "iptables"), "iptables", false),
        (program("iptables"), "/usr/sbin/iptables", true),
        (program("iptables"), "iptables-legacy", true),
        (
            program("iptables-restore"),
            "/sbin/iptables-nft-restore",
            true,
        ),
        (program("iptables-nft-restore"), "iptables-restore", false),
        (
            program("iptables-nft-restore"),
            "iptables-nft-restore",
            true,
        ),
        (program("iptables"), "ip6tables", false),
        (program("iptables"), "iptables-save", false),
        (Matching::default(), "conntrack", true),
    ];
    for (which, line, concerned) in cases {
        let gate = Gate::default();
        let told = format!("{which:?}, {line}");
        gate.delay(which, SECOND);
        assert_eq!(
            waited(&gate, line).await == SECOND,
            concerned,
            "{told} must {}wait",
            if concerned { "" } else { "not " }
        );
    }
}
