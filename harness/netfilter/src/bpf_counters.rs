//! Packets that ended in Felix's eBPF programs, as `calico-node -bpf counters dump` prints them: a table for each interface, with the
//! interface's name below it (as Calico v3.28.1 and v3.32.1 print them).

use crate::{
    counters::{RuleCounters, Site},
    rule::Counters,
};

/// As which table the programs are listed.
pub(crate) const TABLE: &str = "eBPF";
/// No rule of a chain has such a text.
pub(crate) const UNKNOWN_ROUTE: &str = "packets with unknown route";
pub(crate) const UNKNOWN_SOURCE: &str = "packets with unknown source";
pub(crate) const POLICY: &str = "by policy";
/// The category of packets that went nowhere.
const DROPPED: &str = "Dropped";
/// What the tables' columns of numbers are called, in their order.
const HOOKS: [&str; 3] = ["ingress", "egress", "XDP"];

/// Why packets of one interface were dropped, and how many at each of [`HOOKS`].
type Rows = Vec<(String, [Option<u64>; HOOKS.len()])>;

/// The packets that the programs dropped, by interface and hook. Their bytes are not known.
pub fn dropping(listing: &str) -> RuleCounters {
    let mut counted = RuleCounters::new();
    let (mut rows, mut is_dropped) = (Rows::new(), false);
    for line in listing.lines() {
        if let Some(interface) = caption(line) {
            for (why, numbers) in rows.drain(..) {
                for (hook, packets) in HOOKS.iter().zip(numbers) {
                    let site = Site {
                        table: TABLE.to_owned(),
                        chain: format!("{interface} {hook}"),
                        rule: why.clone(),
                    };
                    let packets = packets.map(|packets| Counters { packets, bytes: 0 });
                    counted.extend(packets.map(|it| (site, it)));
                }
            }
            continue;
        }
        let Some([category, why, numbers @ ..]) = cells(line) else {
            continue;
        };
        if !category.is_empty() {
            is_dropped = category == DROPPED;
        }
        match rows.last_mut() {
            _ if !is_dropped || why.is_empty() => {}
            // A long reason goes on in the next line, where there are no numbers.
            Some((before, _)) if numbers.iter().all(|it| it.is_empty()) => {
                *before = format!("{before} {why}");
            }
            _ => rows.push((why.to_owned(), numbers.map(|it| it.parse().ok()))),
        }
    }
    counted
}

/// `dumped eth0 counters.`
fn caption(line: &str) -> Option<&str> {
    let interface = line.trim().strip_prefix("dumped ")?;
    interface.strip_suffix(" counters.")
}

/// `| Dropped | by policy | 0 | 2 | N/A |`
fn cells(line: &str) -> Option<[&str; 5]> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    cells.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cut from what v3.32.1 printed, with other numbers.
    const DUMP: &str = "\
+----------+--------------------------------+---------+--------+-----+
| CATEGORY |              TYPE              | INGRESS | EGRESS | XDP |
+----------+--------------------------------+---------+--------+-----+
| Accepted | by another program             |       7 |      0 | N/A |
|          | by policy                      |       0 |    328 | N/A |
| Dropped  | Maglev lookup found no         |       0 |      4 | N/A |
|          | backends for service IP        |         |        |     |
|          | by policy                      |       0 |      2 | N/A |
|          | packets with unknown route     |      12 |      0 |   1 |
| Other    | packets hitting NAT source     |       9 |      0 | N/A |
|          | collision                      |         |        |     |
| Redirect | neigh                          |       0 |      0 | N/A |
| Total    | packets                        |      19 | 234242 | N/A |
+----------+--------------------------------+---------+--------+-----+
dumped eth0 counters.
+----------+--------------------------------+---------+--------+-----+
| CATEGORY |              TYPE              | INGRESS | EGRESS | XDP |
+----------+--------------------------------+---------+--------+-----+
| Dropped  | by policy                      |       5 |      0 | N/A |
+----------+--------------------------------+---------+--------+-----+
dumped cali0d3c counters.
";

    #[test]
    fn what_the_programs_dropped_is_told_by_interface_hook_and_reason() {
        let counted = dropping(DUMP);
        let told: Vec<_> = counted
            .iter()
            .filter(|(_, counters)| counters.packets > 0)
            .map(|(site, counters)| {
                assert_eq!(site.owner(), crate::Owner::Felix);
                (site.chain.as_str(), site.rule.as_str(), counters.packets)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("cali0d3c ingress", "by policy", 5),
                ("eth0 XDP", "packets with unknown route", 1),
                (
                    "eth0 egress",
                    "Maglev lookup found no backends for service IP",
                    4
                ),
                ("eth0 egress", "by policy", 2),
                ("eth0 ingress", "packets with unknown route", 12),
            ]
        );
    }

    #[test]
    fn what_no_program_has_counted_and_what_is_no_such_table_drops_nothing() {
        for text in ["", "dumped eth0 counters.", "| Dropped | by policy |", "|"] {
            assert_eq!(dropping(text), RuleCounters::new(), "{text}");
        }
    }
}
