//! The rules of a large cluster.

use std::fmt::Write;

/// The chains and the rules that kube-proxy 1.32 has for so many services of two endpoints each, with these counters before each
/// rule: eight rules a service.
pub(crate) fn text(services: usize, counters: &str) -> (String, String) {
    let mut chains = String::new();
    let mut rules = String::new();
    let line = "written to a string";
    for n in 0..services {
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
    (chains, rules)
}
