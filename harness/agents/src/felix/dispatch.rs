//! The chains that send a packet to its workload's chain, a shallow tree over the interfaces' names
//! (`felix/rules/dispatch.go`).

use std::collections::BTreeSet;

use super::{
    hashes::chain_name,
    renderer::Renderer,
    rule::{Chain, Rule},
};

impl Renderer {
    /// iptables mode: both directions, each to the workload's own chain.
    pub(super) fn workload_dispatch(&self, interfaces: &BTreeSet<&str>) -> Vec<Chain> {
        let from = |name: &str| (in_interface(name), Rule::goto(chain_name("cali-fw-", name)));
        let to = |name: &str| {
            (
                out_interface(name),
                Rule::goto(chain_name("cali-tw-", name)),
            )
        };
        let mut chains = self.dispatch("cali-from-wl-dispatch", interfaces, in_interface, from);
        chains.extend(self.dispatch("cali-to-wl-dispatch", interfaces, out_interface, to));
        chains
    }

    /// BPF mode: packets to a known workload are accepted, the programs have judged them.
    pub(super) fn workload_allow(&self, interfaces: &BTreeSet<&str>) -> Vec<Chain> {
        let to = |name: &str| (out_interface(name), Rule::then("ACCEPT"));
        self.dispatch("cali-to-wl-dispatch", interfaces, out_interface, to)
    }

    /// Names that share their next character after the common prefix get a child chain, reached by
    /// goto; so every chain ends with the rule for unknown interfaces.
    fn dispatch(
        &self,
        root: &str,
        interfaces: &BTreeSet<&str>,
        by_interface: fn(&str) -> String,
        endpoint: impl Fn(&str) -> (String, Rule),
    ) -> Vec<Chain> {
        let unknown = || Rule::then(self.deny()).saying("Unknown interface");
        let rule = |name: &&str| {
            let (criterion, rule) = endpoint(name);
            rule.when(criterion)
        };
        let names: Vec<&str> = interfaces.iter().copied().collect();
        let common = common_prefix(&names);
        let prefix_of = |name: &&str| name.chars().take(common + 1).collect::<String>();
        let mut chains = Vec::new();
        let mut root_rules = Vec::new();
        for group in names.chunk_by(|a, b| prefix_of(a) == prefix_of(b)) {
            if let [name] = group {
                root_rules.push(rule(name));
                continue;
            }
            let prefix = prefix_of(&group[0]);
            let next: String = prefix.chars().skip(common).collect();
            let child = format!("{root}-{next}");
            root_rules.push(Rule::goto(&child).when(by_interface(&format!("{prefix}+"))));
            let rules = group.iter().map(rule).chain([unknown()]).collect();
            chains.push(Chain::new(child, rules));
        }
        root_rules.push(unknown());
        chains.push(Chain::new(root, root_rules));
        chains
    }
}

fn in_interface(name: &str) -> String {
    format!("--in-interface {name}")
}

fn out_interface(name: &str) -> String {
    format!("--out-interface {name}")
}

/// How many characters all names share.
fn common_prefix(names: &[&str]) -> usize {
    let (Some(first), Some(last)) = (names.first(), names.last()) else {
        return 0;
    };
    // The names are sorted: what the outermost two share, all share.
    first
        .chars()
        .zip(last.chars())
        .take_while(|(a, b)| a == b)
        .count()
}
