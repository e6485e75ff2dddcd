//! The IP sets that rules refer to. A set that a rule matches must be there before the rule
//! (`felix/ipsets/ipsets.go`); Felix fills a new set and swaps it in, so that a set is never half full.
//!
//! Unlike Felix the model writes a set only when a rule needs it, and does not read sets back.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{Event, Family, apply::say, log::Line};
use crate::step::Io;

/// An IP pool of Calico.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its addresses.
    pub cidr: IpNet,
    /// Packets from it to outside of every pool are masqueraded.
    pub nat_outgoing: bool,
    /// It is carried by VXLAN.
    pub vxlan: bool,
}

/// Sets by name with their members, all of one family.
pub(super) type Sets = BTreeMap<String, Vec<String>>;

/// The sets that the rules of a family need.
pub(super) fn needed(family: Family, pools: &[Pool], nodes: &[IpAddr]) -> Sets {
    let ours: Vec<&Pool> = pools
        .iter()
        .filter(|pool| Family::of(pool.cidr.addr()) == family)
        .collect();
    let name = |id: &str| format!("cali{}0{id}", family.number());
    let nets = |keep: fn(&Pool) -> bool| -> Vec<String> {
        ours.iter()
            .filter(|pool| keep(pool))
            .map(|pool| pool.cidr.to_string())
            .collect()
    };
    let mut sets = Sets::new();
    if ours.iter().any(|pool| pool.nat_outgoing) {
        sets.insert(name("all-ipam-pools"), nets(|_| true));
        sets.insert(name("masq-ipam-pools"), nets(|pool| pool.nat_outgoing));
    }
    if ours.iter().any(|pool| pool.vxlan) {
        let nodes = nodes.iter().filter(|node| Family::of(**node) == family);
        sets.insert(
            name("all-vxlan-net"),
            nodes.map(ToString::to_string).collect(),
        );
    }
    sets
}

/// The input of `ipset restore` that makes the sets so.
pub(super) fn restore_input(family: Family, sets: &Sets) -> String {
    let inet = match family {
        Family::V4 => "inet",
        Family::V6 => "inet6",
    };
    let mut lines = Vec::new();
    for (index, (name, members)) in sets.iter().enumerate() {
        let temporary = format!("cali{}t{index}", family.number());
        let create = |name: &str| format!("create {name} hash:net family {inet} maxelem 1048576");
        lines.push(create(&temporary));
        lines.extend(
            members
                .iter()
                .map(|member| format!("add {temporary} {member}")),
        );
        lines.push(format!("{} -exist", create(name)));
        lines.push(format!("swap {temporary} {name}"));
        lines.push(format!("destroy {temporary}"));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Writes the sets; whether it succeeded.
pub(super) async fn write(io: &Io<Event>, family: Family, sets: &Sets) -> bool {
    let input = restore_input(family, sets);
    let output = io.run(&["ipset", "restore"], input.clone()).await;
    if output.exit == 0 {
        return true;
    }
    let message = "Failed to complete ipset restore, IP sets may be out-of-sync.";
    let line = Line::warning("felix/ipsets.go 784", message)
        .with("family", format!("{:?}", family.command()))
        .text("input", &input)
        .text("stderr", &output.stderr);
    say(io, line);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_needed_only_for_pools_that_are_masqueraded_or_tunnelled() {
        let pool = |nat_outgoing, vxlan| Pool {
            cidr: "10.244.0.0/16".parse().unwrap(),
            nat_outgoing,
            vxlan,
        };
        assert!(needed(Family::V4, &[pool(false, false)], &[]).is_empty());
        assert!(needed(Family::V6, &[pool(true, true)], &[]).is_empty());
        let sets = needed(
            Family::V4,
            &[pool(true, true)],
            &["172.18.0.2".parse().unwrap()],
        );
        let names: Vec<&String> = sets.keys().collect();
        assert_eq!(
            names,
            [
                "cali40all-ipam-pools",
                "cali40all-vxlan-net",
                "cali40masq-ipam-pools"
            ]
        );
    }
}
