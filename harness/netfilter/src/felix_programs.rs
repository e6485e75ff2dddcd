//! The table of nftables that stands in for Felix's eBPF programs where its model plays: written by harness/agents/src/felix/programs.rs. And when a
//! map, a model's or a real one's, is blind.

use std::{collections::BTreeSet, net::SocketAddr};

/// Its name, in family `ip`.
pub const TABLE: &str = "felix-programs";
/// Its chain that is the NAT map.
pub const FRONTENDS: &str = "frontends";
/// The default of `bpfDataIfacePattern` in v3.32.1: which interfaces of a node Felix attaches its programs to, beside those of tunnels and pods. In v3.28.1
/// tunnels are in it, too.
pub const DATA_INTERFACES: &str = "^((en|wl|ww|sl|ib)[Popsx].*|(eth|wlan|wwan|bond).*)";

/// Whose a rule of the map is, as logs name it: `test/web:http` of `… comment "test/web:http"`.
pub fn port_name(rule: &str) -> Option<&str> {
    let (_, comment) = rule.rsplit_once(" comment \"")?;
    comment.strip_suffix('"')
}

/// Where it leads: `… dnat to ADDRESS:PORT`, or to a map whose values are `ADDRESS . PORT`; nowhere where it drops.
pub fn backends(rule: &str) -> Vec<SocketAddr> {
    let Some((_, to)) = rule.split_once(" dnat to ") else {
        return Vec::new();
    };
    let (to, _) = to.split_once(" comment ").unwrap_or((to, ""));
    let parts = to.split([',', '{', '}']);
    let backends = parts.filter_map(|part| {
        let (_, backend) = part.split_once(" : ").unwrap_or(("", part));
        backend.trim().replace(" . ", ":").parse().ok()
    });
    backends.collect()
}

/// Whether a map that leads a Service to these backends knows none of its endpoints that are ready. Of a Service without the one or the other nobody
/// is led astray.
pub fn is_blind(backends: &BTreeSet<String>, ready: &BTreeSet<String>) -> bool {
    !backends.is_empty() && !ready.is_empty() && backends.is_disjoint(ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_knows_one_endpoint_is_not_blind_nor_is_one_where_there_is_none() {
        let of = |these: &[&str]| these.iter().map(|&it| it.to_owned()).collect();
        let blind = |map: &[&str], ready: &[&str]| is_blind(&of(map), &of(ready));
        assert!(blind(&["a", "b"], &["c"]));
        assert!(!blind(&["a", "b"], &["b", "c"]));
        assert!(!blind(&[], &["c"]) && !blind(&["a"], &[]) && !blind(&[], &[]));
    }

    #[test]
    fn a_rules_backends_and_whose_it_is_are_read_in_both_forms() {
        let name = " comment \"test/web:http\"";
        let one = format!("ip daddr 10.96.0.7 tcp dport 80 dnat to 10.20.1.2:8080{name}");
        let two = format!(
            "fib daddr type local tcp dport 80 dnat to numgen random mod 2 map {{ 0 : 10.20.1.2 . 8080, 1 : 10.20.1.3 . 8080 }}{name}"
        );
        let [first, second] = ["10.20.1.2:8080", "10.20.1.3:8080"].map(|it| it.parse().unwrap());
        assert_eq!(backends(&one), [first]);
        assert_eq!(backends(&two), [first, second]);
        assert_eq!(backends(&format!("ip daddr 10.96.0.7 drop{name}")), []);
        assert_eq!(port_name(&one), Some("test/web:http"));
        assert_eq!(port_name("ip daddr 10.96.0.7 drop"), None);
    }
}
