//! Whether the same stands in two kernels, as far as kube-proxy itself decides it.
//!
//! Order counts everywhere but among services in the chains that all of them share, where it is that of
//! a Go map. There the rules of one port still stand together in a fixed order, and the jump to node
//! ports comes last.

use std::collections::BTreeMap;

use chainbreak_netfilter::{Rule, nft};

use crate::{standing::Standing, world::Mode};

const SHARED: [&str; 4] = [
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-PROXY-FIREWALL",
];

/// In the rule of nftables mode that comes with the networks of cluster IPs. Nobody waits for them: those that come after the first sync
/// are heeded by the next full one.
pub const BY_CIDRS: &str = "Drop traffic to unallocated ClusterIPs";

/// The one spelling of rules, whoever wrote them. Remembered: most rules of a world come again in the next.
#[derive(Debug, Default)]
pub struct Spelling {
    known: BTreeMap<String, Spelled>,
}

/// A rule as it is compared.
#[derive(Debug, Clone)]
struct Spelled {
    /// The first word of its comment, which names a port.
    port: String,
    normal: String,
}

impl Spelling {
    fn of(&mut self, mode: Mode, line: &str) -> Spelled {
        if let Some(known) = self.known.get(line) {
            return known.clone();
        }
        let spelled = match mode {
            Mode::Iptables => iptables(line),
            Mode::Nftables => Spelled {
                port: String::new(),
                normal: nft::normal(line),
            },
        };
        self.known.insert(line.to_owned(), spelled.clone());
        spelled
    }

    fn lines(&mut self, mode: Mode, place: &str, lines: &[String]) -> Vec<String> {
        let mut lines: Vec<Spelled> = lines.iter().map(|it| self.of(mode, it)).collect();
        match mode {
            Mode::Iptables => {
                let chain = place.rsplit(' ').next().unwrap_or_default();
                if SHARED.contains(&chain) {
                    sort_ports(&mut lines);
                }
            }
            Mode::Nftables if place.split(' ').nth(2) != Some("chain") => {
                lines.sort_by(|a, b| a.normal.cmp(&b.normal));
            }
            Mode::Nftables => {}
        }
        lines.into_iter().map(|it| it.normal).collect()
    }
}

fn iptables(line: &str) -> Spelled {
    if line.starts_with("policy ") {
        return Spelled {
            port: String::new(),
            normal: line.to_owned(),
        };
    }
    let rule = Rule::new(line);
    let comment = rule.comment().unwrap_or_default();
    Spelled {
        port: comment.split(' ').next().unwrap_or_default().to_owned(),
        normal: rule.normal(),
    }
}

/// Stable: the rules of one port keep their order. Whatever is no port's keeps its place at an end.
fn sort_ports(rules: &mut [Spelled]) {
    let strange = |it: &&Spelled| !it.port.contains('/');
    let first = rules.iter().take_while(strange).count();
    let last = rules.iter().rev().take_while(strange).count();
    let end = rules.len().saturating_sub(last).max(first);
    rules[first..end].sort_by(|a, b| a.port.cmp(&b.port));
}

/// A line for every difference: what only the first has (`<`), and what only the second (`>`). `names` say
/// who they are.
pub fn differences(
    mode: Mode,
    spelling: &mut Spelling,
    names: [&str; 2],
    [left, right]: [&Standing; 2],
) -> Vec<String> {
    let mut found = Vec::new();
    let only_right = right.places().filter(|(it, _)| left.lines(it).is_none());
    let places = left.places().chain(only_right).map(|(place, _)| place);
    for place in places {
        let sides = [left, right].map(|it| it.lines(place).filter(|it| !is_stale(mode, place, it)));
        if sides[0] == sides[1] {
            continue;
        }
        let sides = sides.map(|lines| lines.map(|it| spelling.lines(mode, place, it)));
        if sides[0] != sides[1] {
            found.extend(shown(place, names, &sides));
        }
    }
    found
}

/// A chain of nftables mode that nothing leads to is emptied by one sync and deleted by the first that begins more
/// than a second later, which is a matter of when that comes: an empty one counts as none.
fn is_stale(mode: Mode, place: &str, lines: &[String]) -> bool {
    let is_chain = || place.split(' ').nth(2) == Some("chain");
    mode == Mode::Nftables && lines.is_empty() && place.contains('/') && is_chain()
}

fn shown(place: &str, names: [&str; 2], sides: &[Option<Vec<String>>; 2]) -> Vec<String> {
    let there = |number: usize| {
        let word = sides[number].as_ref().map_or("absent", |_| "there");
        format!("{} {word}", names[number])
    };
    let mut shown = vec![format!("{place}: {}, {}", there(0), there(1))];
    for (mark, mine, other) in [('<', 0, 1), ('>', 1, 0)] {
        let others = sides[other].as_deref().unwrap_or_default();
        for line in sides[mine].iter().flatten() {
            let mark = if others.contains(line) { ' ' } else { mark };
            shown.push(format!("  {mark} {line}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(left: &[&str], right: &[&str]) -> Vec<String> {
        let standing = |rules: &[&str]| {
            let mut standing = Standing::default();
            let rules = rules.iter().map(|&it| it.to_owned()).collect();
            standing.insert("ip nat KUBE-SERVICES".to_owned(), rules);
            standing
        };
        let sides = [&standing(left), &standing(right)];
        differences(
            Mode::Iptables,
            &mut Spelling::default(),
            ["real", "model"],
            sides,
        )
    }

    const A1: &str = "-m comment --comment \"test/a:p cluster IP\" -j MASQ";
    const A2: &str = "-m comment --comment \"test/a:p cluster IP\" -j SVC-A";
    const B: &str = "-m comment --comment \"test/b cluster IP\" -j SVC-B";
    const TAIL: &str = "-m comment --comment \"kubernetes service nodeports\" -j KUBE-NODEPORTS";

    #[test]
    fn the_order_of_services_does_not_count() {
        assert_eq!(
            found(&[A1, A2, B, TAIL], &[B, A1, A2, TAIL]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn the_order_of_one_ports_rules_counts_and_so_does_the_last_rule() {
        for right in [&[A2, A1, B, TAIL], &[A1, A2, TAIL, B], &[TAIL, A1, A2, B]] {
            assert!(!found(&[A1, A2, B, TAIL], right).is_empty(), "{right:?}");
        }
    }

    const LISTING: &str = "table ip kube-proxy {
	set cluster-ips {
		type ipv4_addr
		elements = { 10.96.0.9, 10.96.0.1,
			     10.96.0.5 }
	}

	chain services {
		type nat hook output priority -100; policy accept;
		first
		second
	}

	chain endpoint-AAAA-a/b/tcp/__10.20.1.1/80 {
	}

	chain reject-chain {
	}
}
";

    fn listed(left: &str, right: &str) -> Vec<String> {
        let [left, right] = [left, right].map(|listing| {
            let mut standing = Standing::default();
            standing.add_listing(listing).unwrap();
            standing
        });
        let (mut spelling, names) = (Spelling::default(), ["real", "model"]);
        differences(Mode::Nftables, &mut spelling, names, [&left, &right])
    }

    #[test]
    fn elements_have_no_order_and_rules_have_one() {
        let [set, rules, other] = [
            ("10.96.0.9, 10.96.0.1", "10.96.0.1, 10.96.0.9"),
            ("first\n\t\tsecond", "second\n\t\tfirst"),
            ("10.96.0.5", "10.96.0.6"),
        ]
        .map(|(from, to)| LISTING.replace(from, to));
        assert_eq!(listed(LISTING, &set), Vec::<String>::new());
        assert!(!listed(LISTING, &rules).is_empty());
        assert!(!listed(LISTING, &other).is_empty());
    }

    #[test]
    fn an_empty_chain_of_a_service_counts_as_none_and_a_base_chain_counts() {
        let without = |chain: &str| LISTING.replace(&format!("\tchain {chain} {{\n\t}}\n"), "");
        let endpoint = without("endpoint-AAAA-a/b/tcp/__10.20.1.1/80");
        assert_ne!(endpoint, LISTING);
        assert_eq!(listed(LISTING, &endpoint), Vec::<String>::new());
        assert_eq!(
            listed(LISTING, &without("reject-chain")),
            ["ip kube-proxy chain reject-chain: real there, model absent"]
        );
        let priority = LISTING.replace("priority -100", "priority -90");
        assert!(!listed(LISTING, &priority).is_empty());
    }

    #[test]
    fn a_missing_rule_and_a_missing_chain_are_shown() {
        let shown = found(&[A1, A2], &[A1]);
        let missing = |it: &String| it.starts_with("  < ") && it.contains("SVC-A");
        assert!(shown.iter().any(missing), "{shown:#?}");
        let mut there = Standing::default();
        there.insert("ip nat KUBE-SERVICES".to_owned(), Vec::new());
        let sides = [&there, &Standing::default()];
        let shown = differences(
            Mode::Iptables,
            &mut Spelling::default(),
            ["real", "model"],
            sides,
        );
        assert_eq!(shown, ["ip nat KUBE-SERVICES: real there, model absent"]);
    }
}
