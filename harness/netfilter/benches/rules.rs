//! How fast a large node's rules are read: `cargo bench -p chainbreak-netfilter`.

mod services;

use std::hint::black_box;

use chainbreak_netfilter::{Family, Order, Ruleset, changes, diff};
use criterion::Criterion;

/// kube-proxy's rules for 12,500 services of two endpoints each: eight rules a service, 100,000 in all.
const SERVICES: usize = 12_500;

/// A save as kube-proxy 1.32 leaves it, or (the same lines but for the counters) a restore input.
fn text(counters: &str) -> String {
    let (chains, rules) = services::text(SERVICES, counters);
    format!("*nat\n:KUBE-SERVICES - [0:0]\n{chains}{rules}COMMIT\n")
}

fn bench(criterion: &mut Criterion) {
    let save = text("[12:3456] ");
    let input = text("");
    let ruleset = Ruleset::parse(&save).expect("a save");
    assert_eq!(ruleset.rules(), 8 * SERVICES);
    let mut group = criterion.benchmark_group("100,000 rules");
    group.sample_size(20);
    group.bench_function("parse a save", |b| {
        b.iter(|| Ruleset::parse(black_box(&save)));
    });
    group.bench_function("print it", |b| b.iter(|| black_box(&ruleset).to_string()));
    group.bench_function("count a jump", |b| {
        b.iter(|| ruleset.count("nat", "KUBE-SERVICES", Some(black_box("KUBE-NODEPORTS"))));
    });
    group.bench_function("name the changes of a restore", |b| {
        b.iter(|| changes(&["iptables-restore", "--noflush"], black_box(&input)));
    });
    group.bench_function("compare with itself", |b| {
        b.iter(|| diff(Family::V4, black_box(&ruleset), &ruleset, Order::Any));
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
}
