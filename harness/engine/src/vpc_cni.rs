//! What Amazon's VPC CNI writes on a node beside the pods' interfaces: source NAT for what leaves the VPC, and the
//! marks by which answers find back (amazon-vpc-cni-k8s v1.12 to v1.23, `pkg/networkutils`: `buildIptablesSNATRules`
//! and the connmark rules). Pure. Written once, as a start of `aws-node` does; another start would find its rules there.

use std::net::IpAddr;

use chainbreak_model::case::{CniSpec, RandomizeSnat};
use ipnet::IpNet;

/// The arguments of each `iptables` of a node, in order; `inside` is the VPC, where the scenario does not say it. Networks go in
/// at the top of their chain, the last one ends first.
pub fn rules(cni: &CniSpec, inside: &[IpNet], node: IpAddr) -> Vec<Vec<String>> {
    let inside = match cni.vpc_cidrs.as_slice() {
        [] => inside,
        cidrs => cidrs,
    };
    let mut rules = vec![words("-t nat -N AWS-SNAT-CHAIN-0")];
    if cni.external_snat {
        return rules;
    }
    rules.push(rule(
        "-A POSTROUTING",
        "AWS SNAT CHAIN",
        "-j AWS-SNAT-CHAIN-0",
    ));
    for network in inside {
        let into = format!("-I AWS-SNAT-CHAIN-0 1 -d {network}");
        rules.push(rule(&into, "AWS SNAT CHAIN", "-j RETURN"));
    }
    let ports = match cni.randomize_snat {
        RandomizeSnat::Prng => " --random-fully",
        RandomizeSnat::Hashrandom => " --random",
        RandomizeSnat::None => "",
    };
    let translate = format!("-m addrtype ! --dst-type LOCAL -j SNAT --to-source {node}{ports}");
    let into = "-A AWS-SNAT-CHAIN-0 ! -o vlan+";
    rules.push(rule(into, "AWS, SNAT", &translate));
    rules.extend(marks(inside));
    rules
}

/// Connections of pods to outside are marked, and their packets by them.
fn marks(inside: &[IpNet]) -> Vec<Vec<String>> {
    let (chain, comment) = ("AWS-CONNMARK-CHAIN-0", "AWS CONNMARK CHAIN");
    let mut rules = vec![words(&format!("-t nat -N {chain}"))];
    let jump = format!("-j {chain}");
    rules.push(rule(
        "-A PREROUTING -i eni+",
        "AWS, outbound connections",
        &jump,
    ));
    for network in inside {
        let into = format!("-I {chain} 1 -d {network}");
        rules.push(rule(&into, comment, "-j RETURN"));
    }
    let set = "-j CONNMARK --set-xmark 0x80/0x80";
    rules.push(rule(&format!("-A {chain}"), "AWS, CONNMARK", set));
    let restore = "-j CONNMARK --restore-mark --mask 0x80";
    rules.push(rule("-A PREROUTING", "AWS, CONNMARK", restore));
    rules
}

/// A rule of nat with a comment, which may have spaces.
fn rule(before: &str, comment: &str, after: &str) -> Vec<String> {
    let mut rule = words(&format!("-t nat {before} -m comment --comment"));
    rule.push(comment.to_owned());
    rule.extend(words(after));
    rule
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(external_snat: bool, randomize_snat: RandomizeSnat) -> String {
        let cni = CniSpec {
            external_snat,
            randomize_snat,
            vpc_cidrs: Vec::new(),
        };
        let inside = ["10.20.0.0/16", "100.64.0.0/16"].map(|net| net.parse().unwrap());
        let rules = rules(&cni, &inside, [10, 20, 136, 210].into());
        let rules: Vec<String> = rules.iter().map(|rule| rule.join(" ")).collect();
        rules.join("\n")
    }

    #[test]
    fn what_leaves_the_vpc_gets_the_nodes_address_and_a_port_as_asked_for() {
        insta::assert_snapshot!(written(false, RandomizeSnat::Prng), @r"
        -t nat -N AWS-SNAT-CHAIN-0
        -t nat -A POSTROUTING -m comment --comment AWS SNAT CHAIN -j AWS-SNAT-CHAIN-0
        -t nat -I AWS-SNAT-CHAIN-0 1 -d 10.20.0.0/16 -m comment --comment AWS SNAT CHAIN -j RETURN
        -t nat -I AWS-SNAT-CHAIN-0 1 -d 100.64.0.0/16 -m comment --comment AWS SNAT CHAIN -j RETURN
        -t nat -A AWS-SNAT-CHAIN-0 ! -o vlan+ -m comment --comment AWS, SNAT -m addrtype ! --dst-type LOCAL -j SNAT --to-source 10.20.136.210 --random-fully
        -t nat -N AWS-CONNMARK-CHAIN-0
        -t nat -A PREROUTING -i eni+ -m comment --comment AWS, outbound connections -j AWS-CONNMARK-CHAIN-0
        -t nat -I AWS-CONNMARK-CHAIN-0 1 -d 10.20.0.0/16 -m comment --comment AWS CONNMARK CHAIN -j RETURN
        -t nat -I AWS-CONNMARK-CHAIN-0 1 -d 100.64.0.0/16 -m comment --comment AWS CONNMARK CHAIN -j RETURN
        -t nat -A AWS-CONNMARK-CHAIN-0 -m comment --comment AWS, CONNMARK -j CONNMARK --set-xmark 0x80/0x80
        -t nat -A PREROUTING -m comment --comment AWS, CONNMARK -j CONNMARK --restore-mark --mask 0x80
        ");
        let none = written(false, RandomizeSnat::None);
        assert!(
            none.contains("-j SNAT --to-source 10.20.136.210\n"),
            "{none}"
        );
        let hash = written(false, RandomizeSnat::Hashrandom);
        assert!(hash.contains("10.20.136.210 --random\n"), "{hash}");
    }

    #[test]
    fn with_external_snat_there_is_the_chain_and_nothing_leads_to_it() {
        let rules = written(true, RandomizeSnat::Prng);
        assert_eq!(rules, "-t nat -N AWS-SNAT-CHAIN-0");
    }
}
