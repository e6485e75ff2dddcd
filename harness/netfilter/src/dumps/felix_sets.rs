//! The sets of addresses and ports that policies in Felix's eBPF programs ask, as `calico-node -bpf ipsets dump` prints them (read in Calico's sources,
//! v3.28 and v3.32: felix/cmd/calico-bpf/commands/ipsets.go).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Arguments, Write},
    net::IpAddr,
};

use ipnet::IpNet;
use serde_json::Value;

use super::felix_maps::family;
use crate::Family;

/// Of both families: a dump is of one, and of one that has no elements it prints nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FelixSets {
    /// By number (`0x1f`), the elements as `ipset save` has them.
    elements: BTreeMap<String, BTreeSet<String>>,
    dumped: BTreeSet<Family>,
    /// Whose elements the next lines are.
    set: Option<String>,
}

impl FelixSets {
    /// Takes in a line: `IP set 0x1f`, or of its elements `   10.20.1.2/32` or `   10.20.1.2:80 (proto 6)`.
    pub(super) fn take(&mut self, line: &str) -> Option<()> {
        let set = self.set.take();
        if let Some(number) = line.strip_prefix("IP set ") {
            self.set = number.starts_with("0x").then(|| number.to_owned());
            return self.set.as_ref().map(|_| ());
        }
        let set = set.filter(|_| line.starts_with("   "))?;
        self.add(&set, line.trim())?;
        self.set = Some(set);
        Some(())
    }

    /// Takes in one as JSON (`--json`, from v3.32 on).
    pub(super) fn take_json(&mut self, entry: &Value) -> Option<()> {
        let set = entry["set_id"].as_str()?;
        for element in entry["members"].as_array()? {
            self.add(set, element.as_str()?)?;
        }
        Some(())
    }

    fn add(&mut self, set: &str, element: &str) -> Option<()> {
        let (net, element): (IpNet, _) = match element.split_once(" (proto ") {
            None => (element.parse().ok()?, element.to_owned()),
            Some((end, protocol)) => {
                let (ip, port) = end.rsplit_once(':')?;
                let protocol = protocol.trim_end_matches(')');
                let ip: IpAddr = ip.parse().ok()?;
                (ip.into(), format!("{ip},{protocol}:{port}"))
            }
        };
        self.dumped.insert(family(net.addr()));
        let elements = self.elements.entry(set.to_owned()).or_default();
        elements.insert(element);
        Some(())
    }

    /// As `ipset save` would print these, of which a dump that was made has those with elements; nothing where none was made.
    pub(super) fn save<'a>(&self, family: Family, asked: impl Iterator<Item = &'a str>) -> String {
        let mut save = String::new();
        if !self.dumped.contains(&family) {
            return save;
        }
        // Of ports by name a policy says another name than the dump: of these nothing is known.
        for set in asked
            .filter(|it| it.starts_with("0x"))
            .collect::<BTreeSet<_>>()
        {
            line(&mut save, format_args!("create {set} hash:net,port"));
            for element in self.elements.get(set).into_iter().flatten() {
                line(&mut save, format_args!("add {set} {element}"));
            }
        }
        save
    }
}

fn line(save: &mut String, line: Arguments<'_>) {
    writeln!(save, "{line}").expect("a string takes what is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumped(text: &str) -> FelixSets {
        let mut sets = FelixSets::default();
        for line in text.lines() {
            sets.take(line);
        }
        sets
    }

    #[test]
    fn a_set_is_what_the_lines_below_its_number_say() {
        let text = "IP set 0x1f\n   10.20.1.2/32\n   10.20.1.3:80 (proto 6)\n\nIP set 0x2a\n   10.30.0.0/16\n\n   10.9.9.9/32\n";
        let sets = dumped(text);
        let save = sets.save(Family::V4, ["0x1f", "0x3", "s:web"].into_iter());
        assert_eq!(
            save,
            "create 0x1f hash:net,port\nadd 0x1f 10.20.1.2/32\nadd 0x1f 10.20.1.3,6:80\ncreate 0x3 hash:net,port\n"
        );
        let other = sets.save(Family::V4, ["0x2a"].into_iter());
        assert_eq!(other, "create 0x2a hash:net,port\nadd 0x2a 10.30.0.0/16\n");
        assert_eq!(sets.save(Family::V6, ["0x1f"].into_iter()), "");
        let of_v6 = dumped("IP set 0x1f\n   fd00::1:80 (proto 17)\n");
        let save = of_v6.save(Family::V6, ["0x1f"].into_iter());
        assert_eq!(save, "create 0x1f hash:net,port\nadd 0x1f fd00::1,17:80\n");
    }

    #[test]
    fn sets_in_json_are_those_in_lines() {
        let entry = serde_json::json!({ "set_id": "0x1f", "members": ["10.20.1.2/32", "10.20.1.3:80 (proto 6)"] });
        let mut sets = FelixSets::default();
        assert_eq!(sets.take_json(&entry), Some(()));
        let mut lines = dumped("IP set 0x1f\n   10.20.1.2/32\n   10.20.1.3:80 (proto 6)\n");
        lines.set = None;
        assert_eq!(sets, lines);
        assert_eq!(
            sets.take_json(&serde_json::json!({ "dest": "10.0.0.0/8" })),
            None
        );
    }

    #[test]
    fn other_lines_are_no_sets() {
        for text in [
            "IP sets",
            "IP set of ours",
            "   10.20.1.2/32",
            "IP set 0x1f\n   a word",
        ] {
            let sets = dumped(text);
            assert!(sets.elements.is_empty() && sets.dumped.is_empty(), "{text}");
        }
    }
}
