//! `explain --trace`: a real packet in a kept world, and which rules the kernel says it met.

use std::fs;

use chainbreak_lab::registry;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::ground::{Ground, exits, kept, text};

/// The short scenario with kube-proxy in that mode, and alone: of two tables of nat at one hook no listing tells which is asked first.
fn ground(mode: &str) -> Ground {
    let ground = Ground::new();
    let short = fs::read_to_string(ground.path().join("short.yaml")).unwrap();
    let short: String = short
        .replace("mode: iptables, iptables: legacy", mode)
        .lines()
        .filter(|line| {
            !["jump-stays", "calico:", "felix:"]
                .iter()
                .any(|it| line.contains(it))
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    assert!(short.contains(mode), "{short}");
    ground.write("short.yaml", short);
    ground
}

fn is_as_walked(mode: &str, met: &[&str]) {
    let ground = ground(mode);
    let (run, world) = kept(&ground);
    let pid = world.to_string();
    let asked = [
        "explain",
        "pod/client",
        "test/web:80",
        "--world",
        &pid,
        "--trace",
    ];
    let output = ground.chainbreak(&asked);
    exits(&output, 0);
    let said = text(&output.stdout);
    let (_, told) = said
        .split_once("A request was made from pod/client: answered by ")
        .unwrap();
    assert!(
        told.contains("n1's kernel tells of its way what the walk says:\n"),
        "{said}"
    );
    for met in met {
        let of_it = |line: &&str| line.starts_with("  ✓ ") && line.contains(met);
        assert!(told.lines().any(|line| of_it(&line)), "{met}: {said}");
    }
    assert!(!told.contains('✗'), "{said}");

    let document = ground.chainbreak(&[&asked[..], &["--format", "json"]].concat());
    exits(&document, 0);
    let document: Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document["traced"]["as-walked"], true, "{document:#}");
    assert!(
        document["traced"]["outcome"]["answered"].is_object(),
        "{document:#}"
    );

    let mut left = registry::command(Some(world), "n1", &["nft", "list", "tables"]).unwrap();
    let left = left.output().unwrap();
    exits(&left, 0);
    assert!(
        !text(&left.stdout).contains("chainbreak-trace"),
        "its table is taken away"
    );
    let address = ground.chainbreak(&[
        "explain",
        "10.20.1.2",
        "10.96.0.10:80",
        "--world",
        &pid,
        "--trace",
    ]);
    exits(&address, 2);
    assert!(text(&address.stderr).contains("FROM by its name"));
    run.signal(Signal::SIGINT);
    run.ends();
}

#[test]
fn the_counters_of_iptables_tell_the_way_that_the_walk_says() {
    is_as_walked(
        "mode: iptables, iptables: legacy",
        &["nat PREROUTING", "nat KUBE-SERVICES", "nat KUBE-SEP-"],
    );
}

#[test]
fn the_trace_of_nft_tells_the_way_that_the_walk_says() {
    is_as_walked(
        "mode: nftables",
        &[
            "ip kube-proxy nat-prerouting",
            "ip kube-proxy service-",
            "ip kube-proxy endpoint-",
        ],
    );
}
