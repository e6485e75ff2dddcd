//! The node's interface beside Felix in eBPF mode, whose programs are to be there.

use chainbreak_model::case::Symptom;
use chainbreak_netfilter::{Family, dumps::Kind, felix_programs::DATA_INTERFACES};
use regex::Regex;
use serde_json::Value;

use super::{Context, jumps};
use crate::{Finding, Weight, objects::Objects};

/// Which it takes beside those of the pattern, where it needs them (v3.32.1, `bpf_ep_mgr.go`).
const OWN: [&str; 6] = [
    "lo",
    "tunl0",
    "vxlan.calico",
    "wireguard.cali",
    "bpfout.cali",
    "egress.calico",
];
const PATTERN: &str = "bpfDataIfacePattern";

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    missed(context).into_iter().collect()
}

/// Where FelixConfiguration was not attached, or others count, too, nobody knows which interfaces Felix takes.
fn missed(context: &Context<'_>) -> Option<Finding> {
    let objects = &context.evidence.objects;
    let spec = objects.felix_configuration()?;
    let dumps = &context.evidence.dumps;
    let routing = dumps.routing(Family::V4)?;
    let interface = routing.default_interface()?;
    if !context.ebpf || OWN.contains(&interface) {
        return None;
    }
    let given = |name: &str| spec[name].as_str().filter(|it| !it.is_empty());
    let pattern = Regex::new(given(PATTERN).unwrap_or(DATA_INTERFACES)).ok()?;
    let routed = given("bpfL3IfacePattern")
        .map(Regex::new)
        .transpose()
        .ok()?;
    let is_taken =
        |name: &str| pattern.is_match(name) || routed.as_ref().is_some_and(|it| it.is_match(name));
    // What is a part of it may have the programs.
    if is_taken(interface) || dumps.has_parts(interface) || has_others(objects) {
        return None;
    }
    let is_told = dumps.found().contains(&Kind::Addresses);
    let elsewhere = is_told && routing.reachable_by().any(is_taken);
    let led = jumps::leads_from_outside(context);
    let breaks = led == Some(false) && is_told && !elsewhere;
    let what = format!(
        "Felix attaches no eBPF programs to {interface}: they translate nothing of what comes in there, as for NodePorts from outside"
    );
    let others = match led {
        Some(true) => "kube-proxy's rules do, as long as Felix leaves them alone",
        Some(false) => "kube-proxy's rules do not: nothing jumps to them from PREROUTING",
        None => "whether kube-proxy's rules do was not attached",
    };
    let whose = given(PATTERN).map_or("the default of bpfDataIfacePattern", |_it| PATTERN);
    let elsewhere = elsewhere.then_some("another interface with an address is one that it takes");
    let evidence = [
        Some(format!("the default route leaves by {interface}")),
        Some(format!("{whose}, {pattern}, does not match it")),
        Some(others.to_owned()),
        elsewhere.map(str::to_owned),
    ];
    Some(
        Finding::new(
            Symptom::InterfaceWithoutPrograms,
            Weight::where_so(breaks),
            what,
        )
        .on(evidence.into_iter().flatten())
        .mended_by("a bpfDataIfacePattern that matches the interface, in FelixConfiguration"),
    )
}

/// Whether a node's own FelixConfiguration, or a variable of Felix's pods, says which interfaces there are: both go before `default`.
fn has_others(objects: &Objects) -> bool {
    let says = |object: &Value| !object["spec"][PATTERN].is_null();
    let named = |object: &Value| object["metadata"]["name"] != "default";
    let mut configurations = objects.of("FelixConfiguration");
    configurations.any(|it| named(it) && says(it))
        || ["DaemonSet", "Pod"].into_iter().any(|kind| {
            let mut all = objects.of(kind);
            all.any(|it| it.to_string().contains("FELIX_BPFDATAIFACEPATTERN"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Evidence, examine};

    const ETH0: &str = "default via 10.0.0.1 dev eth0 proto dhcp\n\
        2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default\n    inet 10.0.1.1/24 scope global eth0\n";
    const ENS: &str = "\"bpfDataIfacePattern\": \"^ens\"";
    const RULES: &str =
        include_str!("../../../netfilter/tests/data/felix-3.28.1-with-kube-proxy-1.32.3.save");

    /// What is found of the interface, and what it stands on.
    fn found(dumps: &[&str], spec: &str) -> Option<(Weight, String)> {
        let configuration = format!(
            "{{\"kind\": \"FelixConfiguration\", \"metadata\": {{\"name\": \"default\"}}, \"spec\": {{\"bpfEnabled\": true, {spec}}}}}"
        );
        let mut evidence = Evidence::default();
        for text in dumps.iter().chain(&[configuration.as_str()]) {
            assert!(evidence.add(text).unwrap());
        }
        let mut findings = examine(&evidence).findings.into_iter();
        let of_it = findings.find(|it| it.kind == Symptom::InterfaceWithoutPrograms);
        of_it.map(|it| (it.weight, it.evidence.join("; ")))
    }

    /// The rules without the jump for what comes from outside.
    fn cleaned_up() -> String {
        let jumps = |line: &&str| line.contains("-A PREROUTING") && line.ends_with("KUBE-SERVICES");
        let kept: Vec<&str> = RULES.lines().filter(|line| !jumps(line)).collect();
        assert_eq!(kept.len() + 1, RULES.lines().count());
        kept.join("\n")
    }

    #[test]
    fn an_interface_that_the_pattern_misses_breaks_what_no_rule_of_kube_proxys_leads() {
        let alone = cleaned_up();
        let (weight, told) = found(&[&alone, ETH0], ENS).unwrap();
        assert_eq!(weight, Weight::Breaks);
        let says = "leaves by eth0; bpfDataIfacePattern, ^ens, does not match it; kube-proxy's rules do not";
        assert!(told.contains(says), "{told}");
        // Felix without IPv6 leaves the other family's jump where it is.
        let v6 = "# Generated by ip6tables-save v1.8.9 on Sat Nov 28 10:00:00 2026\n*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n";
        let (weight, _) = found(&[&alone, v6, ETH0], ENS).unwrap();
        assert_eq!(weight, Weight::Breaks);
        let (weight, told) = found(&[RULES, ETH0], ENS).unwrap();
        assert_eq!(weight, Weight::Odd);
        assert!(
            told.contains("as long as Felix leaves them alone"),
            "{told}"
        );
    }

    #[test]
    fn what_was_not_attached_breaks_nothing() {
        let alone = cleaned_up();
        let filter = "*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FORWARD - [0:0]\nCOMMIT\n";
        let ipvs = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-LOAD-BALANCER - [0:0]\nCOMMIT\n";
        let route = "default via 10.0.0.1 dev eth0\n";
        for dumps in [
            &[ETH0] as &[_],
            &[filter, ETH0],
            &[&alone, ipvs, ETH0],
            &[&alone, route],
        ] {
            let (weight, _) = found(dumps, ENS).unwrap();
            assert_eq!(weight, Weight::Odd, "{dumps:?}");
        }
        let second =
            format!("{ETH0}3: ens6: <UP> mtu 1500\n    inet 10.1.0.1/24 scope global ens6\n");
        let (weight, told) = found(&[&alone, &second], ENS).unwrap();
        assert_eq!(weight, Weight::Odd, "{told}");
    }

    #[test]
    fn an_interface_that_felix_takes_or_may_take_is_none() {
        let alone = cleaned_up();
        let part = format!("{ETH0}3: ens5: <UP> mtu 1500 master eth0 state UP\n");
        let own = "{\"kind\": \"FelixConfiguration\", \"metadata\": {\"name\": \"node.n1\"}, \"spec\": {\"bpfDataIfacePattern\": \"eth0\"}}";
        for (dumps, spec) in [
            (&[&alone, ETH0] as &[&str], "\"bpfDataIfacePattern\": \"\""),
            (&[&alone, ETH0], "\"bpfDataIfacePattern\": \"^(ens|eth)\""),
            (
                &[&alone, ETH0],
                "\"bpfDataIfacePattern\": \"^ens\", \"bpfL3IfacePattern\": \"0$\"",
            ),
            (&[&alone, ETH0], "\"bpfDataIfacePattern\": \"(\""),
            (&[&alone, &part], ENS),
            (&[&alone, ETH0, own], ENS),
            (&[&alone], ENS),
        ] {
            assert_eq!(found(dumps, spec), None, "{spec}");
        }
    }
}
