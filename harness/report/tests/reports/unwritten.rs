//! Who made the chain that a rule was to lead to which was never there.

use chainbreak_model::{
    case::{Claim, Expect, RuleChain, RuleQuery},
    event::{Event, EventKind, Phase},
};
use chainbreak_report::summary::Outcome;

use crate::{
    history::{command, event, run, summaries},
    presence::{has, looked, looked_at, promising},
};

/// Of a jump that was to be there, after these commands.
fn said(commands: &[(&str, &str)]) -> String {
    let (claim, events) = (jump(), ran(commands));
    looked_at(claim, events, false)
}

fn jump() -> Claim {
    let rule = RuleQuery {
        table: "nat".to_owned(),
        chain: RuleChain::Named("POSTROUTING".to_owned()),
        jump: Some("AWS-SNAT-CHAIN-0".to_owned()),
        ..RuleQuery::default()
    };
    has(rule, false)
}

fn ran(commands: &[(&str, &str)]) -> Vec<Event> {
    let at = (400_000..).step_by(20_000).zip(commands);
    let event = at.map(|(at_us, (who, words))| {
        let argv: Vec<&str> = words.split(' ').collect();
        command("n1", at_us, who, &argv, "")
    });
    event.collect()
}

const PROXY: (&str, &str) = ("kube-proxy", "iptables -t nat -N KUBE-SERVICES");
const MADE: (&str, &str) = ("aws-node", "iptables -t nat -N AWS-SNAT-CHAIN-0");
const LED: (&str, &str) = (
    "aws-node",
    "iptables -t nat -A POSTROUTING -j AWS-SNAT-CHAIN-0",
);
const DELETED: (&str, &str) = (
    "admin",
    "iptables -t nat -D POSTROUTING -j AWS-SNAT-CHAIN-0",
);

#[test]
fn who_made_a_chain_and_never_led_there_is_told() {
    let told = "from the first look on; aws-node made AWS-SNAT-CHAIN-0, and never led there";
    assert_eq!(said(&[PROXY, MADE]), told);
    // Accounting objects are no rules.
    let counts = (
        "kube-proxy",
        "netlink nfacct new localhost_nps_accepted_pkts",
    );
    assert_eq!(said(&[PROXY, counts, MADE]), told);
}

#[test]
fn an_incident_because_of_them_is_as_expected_where_its_scenario_names_them() {
    let outcome = |by: &str| {
        let mut case = promising(jump());
        case.expect = Expect::Broken(vec!["it".into()]);
        case.by = Some(by.to_owned());
        let mut events = ran(&[PROXY, MADE]);
        events.extend([(900_000, 0), (1_500_000, 0)].map(|(at_us, count)| looked(at_us, count)));
        let phases = [(1_000_000, Phase::Judging), (2_000_000, Phase::Judged)];
        events.extend(phases.map(|(at_us, phase)| event(at_us, EventKind::Phase(phase))));
        events.sort_by_key(|event| event.at_us);
        summaries(&run(vec![(case, events)])).remove(0).outcome
    };
    assert_eq!(outcome("aws-node"), Outcome::AsExpected);
    // Nobody is held against another for what they never did.
    assert_eq!(outcome("kube-proxy"), Outcome::Inconclusive);
}

#[test]
fn nobody_is_named_where_nobody_made_it_several_did_or_somebody_led_there() {
    let again = ("admin", "iptables-legacy -t nat -N AWS-SNAT-CHAIN-0");
    let from_elsewhere = ("aws-node", "iptables -t nat -A OUTPUT -j AWS-SNAT-CHAIN-0");
    let in_ipv6 = ("aws-node", "ip6tables -t nat -N AWS-SNAT-CHAIN-0");
    let not_known = ("admin", "iptables -t nat --wondrous");
    for commands in [
        &[PROXY][..],
        &[PROXY, MADE, again],
        &[PROXY, MADE, LED, DELETED],
        &[PROXY, MADE, from_elsewhere],
        &[PROXY, in_ipv6],
        &[PROXY, MADE, not_known],
    ] {
        let said = said(commands);
        assert!(!said.contains("never led there"), "{said}");
    }
}
