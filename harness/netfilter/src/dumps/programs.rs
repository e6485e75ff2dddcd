//! Felix's eBPF programs on a node that was dumped.

use super::Dumps;
use crate::{Family, owner::Owner, save::Ruleset};

/// Words of rules about the marks of its programs (measured with v3.28.1 and v3.32.1; in iptables mode there is none), as iptables and nft print
/// them.
const MARKS: [&str; 4] = [
    "--mark 0x1000000/0x1000000",
    "--mark 0x3000000",
    "mark & 0x01000000 == 0x01000000",
    "mark & 0x03000000 == 0x03000000",
];
/// Of what its programs have seen.
const ACCEPTED: &str = "-m mark --mark 0x1000000/0x1000000 -j ACCEPT";
/// Where Felix masquerades what leaves a pool's pods.
const OUTGOING: &str = "cali-nat-outgoing";

impl Ruleset {
    /// Whether Felix wrote here what it writes in eBPF mode only.
    pub fn is_beside_ebpf(&self) -> bool {
        let chains = self.tables.values().flat_map(|table| &table.chains);
        let of_felix = chains.filter(|(name, _)| Owner::of_chain(name) == Owner::Felix);
        let mut rules = of_felix.flat_map(|(_, chain)| &chain.rules);
        rules.any(|rule| is_of_programs(&rule.text))
    }
}

fn is_of_programs(rule: &str) -> bool {
    MARKS.iter().any(|it| rule.contains(it))
}

impl Dumps {
    /// Of a node where Felix's programs are no rules, as they are in a lab's world: where it is in eBPF mode they are on every packet's way.
    #[must_use]
    pub fn with_programs(self) -> Self {
        let has_programs = !self.nat_map.is_empty() || self.is_beside_ebpf();
        Self {
            has_programs,
            ..self
        }
    }

    /// Whether Felix wrote rules of eBPF mode into tables of iptables or nft.
    pub fn is_beside_ebpf(&self) -> bool {
        let chains = self.nft.iter().flat_map(|table| &table.table.chains);
        let of_felix = chains.filter(|(name, _)| name.contains("cali-"));
        let mut rules = of_felix.flat_map(|(_, chain)| &chain.rules);
        let mut saves = self.saves.iter();
        saves.any(|it| it.ruleset.is_beside_ebpf()) || rules.any(|it| is_of_programs(&it.text))
    }

    /// Whether what Felix's programs let pods send to their own node is accepted: with `defaultEndpointToHostAction: Accept` alone it has that rule
    /// (v3.28.1 and v3.32.1).
    pub(super) fn accepts_to_node(&self, family: Family) -> bool {
        let mut chains = self
            .of_iptables(family)
            .filter_map(|it| it.ruleset.chain("filter", "INPUT"));
        chains.any(|chain| {
            let mut rules = chain.rules.iter();
            rules.any(|rule| rule.text.contains(ACCEPTED) && rule.text.starts_with("-i "))
        })
    }

    /// The mark and its mask by which Felix's rules masquerade what its programs mark so.
    pub(super) fn outgoing(&self, family: Family) -> Option<(u32, u32)> {
        let saves = self.of_iptables(family);
        let chains = saves.filter_map(|it| it.ruleset.chain("nat", OUTGOING));
        let mut rules = chains.flat_map(|chain| &chain.rules);
        rules.find_map(|rule| {
            let mark = rule.value(&["--mark"])?;
            let (mark, mask) = mark.split_once('/')?;
            let number = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
            number(mark).zip(number(mask))
        })
    }
}
