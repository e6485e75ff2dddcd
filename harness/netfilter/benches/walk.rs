//! How fast a packet walks through a large node's rules: `cargo bench -p chainbreak-netfilter --bench walk`.

mod services;

use std::hint::black_box;

use chainbreak_netfilter::{
    Family, Ruleset,
    walk::{Packet, Routing, State, walk},
};
use criterion::Criterion;

/// kube-proxy's rules for so many services of two endpoints each, eight rules a service.
const SERVICES: usize = 10_000;

/// A save as kube-proxy 1.32 leaves it.
fn text() -> String {
    let (chains, rules) = services::text(SERVICES, "");
    format!(
        "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n\
         :KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n{chains}-A PREROUTING -j KUBE-SERVICES\n\
         -A POSTROUTING -j KUBE-POSTROUTING\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n\
         -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n\
         -A KUBE-POSTROUTING -j MASQUERADE --random-fully\n{rules}\
         -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\nCOMMIT\n"
    )
}

fn bench(criterion: &mut Criterion) {
    let ruleset = Ruleset::parse(&text()).expect("a save");
    let routes = "default via 10.0.0.254 dev eth0\n10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.1\n";
    let routing = Routing::read(Family::V4, "", routes, "");
    let index = || {
        let mut state = State::new(Family::V4);
        state.add_save(black_box(&ruleset));
        state.set_routing(routing.clone());
        state
    };
    let state = index();
    let to = |to: &str| {
        let from = "192.0.2.9:40000".parse().expect("an address");
        Packet::syn(from, to.parse().expect("an address")).by("eth0")
    };
    let mut group = criterion.benchmark_group("10,000 services");
    group.sample_size(20);
    group.bench_function("index", |b| b.iter(index));
    for (name, packet) in [
        ("walk to the last service", to("10.96.39.15:80")),
        ("walk to no service", to("198.51.100.1:80")),
    ] {
        let ways = walk(&state, &packet).paths.len();
        assert_eq!(ways, if name.contains("last") { 2 } else { 1 });
        group.bench_function(name, |b| b.iter(|| walk(&state, black_box(&packet))));
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
}
