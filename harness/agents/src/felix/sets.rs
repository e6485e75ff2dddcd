//! The IP sets that rules refer to. A set that a rule matches must be there before the rule
//! (`felix/ipsets/ipsets.go`); Felix fills a new set and swaps it in, so that a set is never half full.
//!
//! Unlike Felix the model writes a set only when a rule needs it, and does not read sets back. The sets of its host's own addresses and of pods
//! whose packets get a DSCP are empty: no pod of the lab's asks for that.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::{Event, Family, apply::say, log::Line, renderer::Renderer};
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
pub(super) fn needed(renderer: &Renderer, pools: &[Pool], nodes: &[IpAddr]) -> Sets {
    let (family, version) = (renderer.family, renderer.version);
    let ours: Vec<&Pool> = pools
        .iter()
        .filter(|pool| Family::of(pool.cidr.addr()) == family)
        .collect();
    let name = |id: &str| renderer.set(id);
    let nets = |keep: fn(&Pool) -> bool| -> Vec<String> {
        ours.iter()
            .filter(|pool| keep(pool))
            .map(|pool| pool.cidr.to_string())
            .collect()
    };
    let mut sets = Sets::new();
    let sets_dscp = version.sets_dscp() && !renderer.params.is("BPFEnabled");
    let nat_outgoing = ours.iter().any(|pool| pool.nat_outgoing);
    if sets_dscp || nat_outgoing {
        sets.insert(name(version.all_pools()), nets(|_| true));
    }
    if sets_dscp {
        sets.insert(name("dscp-src-net"), Vec::new());
        sets.insert(name("this-host"), Vec::new());
    }
    if nat_outgoing {
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
    use serde_json::json;

    use super::*;
    use crate::felix::rules_tests::renderer;

    #[test]
    fn sets_are_needed_for_pools_that_are_masqueraded_or_tunnelled_and_where_packets_may_get_a_dscp()
     {
        let pool = |nat_outgoing, vxlan| Pool {
            cidr: "10.244.0.0/16".parse().unwrap(),
            nat_outgoing,
            vxlan,
        };
        let names = |version: &str, family: Family, bpf: bool, pool: Pool| {
            let mut renderer = renderer(version, &json!({ "bpfEnabled": bpf }));
            renderer.family = family;
            let sets = needed(&renderer, &[pool], &["172.18.0.2".parse().unwrap()]);
            sets.into_keys().collect::<Vec<_>>().join(" ")
        };
        let (v4, both) = (Family::V4, pool(true, true));
        assert_eq!(names("v3.30.0", v4, false, pool(false, false)), "");
        assert_eq!(names("v3.30.0", Family::V6, false, both.clone()), "");
        let all = "cali40all-ipam-pools cali40all-vxlan-net cali40masq-ipam-pools";
        assert_eq!(names("v3.30.0", v4, false, both.clone()), all);
        assert_eq!(names("v3.32.0", v4, true, both), all);
        let dscp = "cali60dscp-src-net cali60network-ip-pools cali60this-host";
        assert_eq!(names("v3.32.1", Family::V6, false, pool(true, true)), dscp);
    }
}
