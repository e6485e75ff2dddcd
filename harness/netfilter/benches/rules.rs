//! How fast a large node's rules are read: `cargo bench -p chainbreak-netfilter`.

use std::{fmt::Write, hint::black_box};

use chainbreak_netfilter::{Family, Order, Ruleset, changes, diff};
use criterion::Criterion;

/// kube-proxy's rules for 12,500 services of two endpoints each: eight rules a service, 100,000 in all.
const SERVICES: usize = 12_500;

/// A save as kube-proxy 1.32 leaves it, or (the same lines but for the counters) a restore input.
fn text(counters: &str) -> String {
    let mut chains = String::new();
    let mut rules = String::new();
    let line = "written to a string";
    for n in 0..SERVICES {
        let (svc, ip) = (
            format!("KUBE-SVC-{n:016}"),
            format!("10.96.{}.{}", n / 256, n % 256),
        );
        let name = format!("test/shop-{n}:http");
        writeln!(chains, ":{svc} - [0:0]").expect(line);
        let tcp = format!("-p tcp -m comment --comment \"{name} cluster IP\" -m tcp --dport 80");
        writeln!(
            rules,
            "{counters}-A KUBE-SERVICES -d {ip}/32 {tcp} -j {svc}"
        )
        .expect(line);
        writeln!(
            rules,
            "{counters}-A {svc} ! -s 10.20.0.0/16 -d {ip}/32 {tcp} -j KUBE-MARK-MASQ"
        )
        .expect(line);
        for (end, share) in [
            (1, " -m statistic --mode random --probability 0.50000000000"),
            (2, ""),
        ] {
            let (sep, pod) = (
                format!("KUBE-SEP-{n:014}-{end}"),
                format!("10.2{end}.{}.{}", n / 256, n % 256),
            );
            writeln!(chains, ":{sep} - [0:0]").expect(line);
            writeln!(
                rules,
                "{counters}-A {svc} -m comment --comment \"{name} -> {pod}:80\"{share} -j {sep}"
            )
            .expect(line);
            writeln!(
                rules,
                "{counters}-A {sep} -s {pod}/32 -m comment --comment \"{name}\" -j KUBE-MARK-MASQ"
            )
            .expect(line);
            writeln!(rules, "{counters}-A {sep} -p tcp -m comment --comment \"{name}\" -m tcp -j DNAT --to-destination {pod}:80").expect(line);
        }
    }
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
