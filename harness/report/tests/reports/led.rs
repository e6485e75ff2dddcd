//! Rules that lead requests past the host that was to count them.

use std::{collections::BTreeMap, sync::Arc};

use chainbreak_model::{
    case::{Claim, Counter, Destination, Expect, HostSpec, Limits, Origin},
    event::EventKind,
};

use crate::{
    history::{RESTORE, all_along, case, command, event},
    spared::judged,
    turned::known,
};

const LEADS: &str =
    "-A PREROUTING -d 192.0.2.50/32 -p tcp -j DNAT --to-destination 10.20.10.127:80\n";

/// What is said of a host that was to be asked at least so often, and was as often as its counter says.
fn said(rules: &str, rose: u64) -> String {
    said_of(&[(500_000, "kube-proxy", rules)], rose, None)
}

/// After these rules were written, when and by whom; and of another traffic, which asks it there.
fn said_of(written: &[(u64, &str, &str)], rose: u64, other: Option<&str>) -> String {
    let mut case = case("v", Expect::Healthy);
    let claim = Claim::Counter {
        counter: Counter::Snmp("Tcp.PassiveOpens".to_owned()),
        at: Some(Origin::Host("balancer".to_owned())),
        limits: Limits {
            at_least: Some(15),
            at_most: None,
        },
    };
    *Arc::make_mut(&mut case.promises) = [("is-asked".into(), all_along(claim))].into();
    let balancer = HostSpec {
        addresses: vec![[192, 0, 2, 50].into()],
        ..HostSpec::default()
    };
    case.cluster.hosts = Arc::new([("balancer".to_owned(), balancer)].into());
    for traffic in Arc::make_mut(&mut case.traffic).values_mut() {
        traffic.to = Destination::Host("balancer".to_owned());
    }
    let mut events = known();
    for event in &mut events {
        if let EventKind::Aimed { at, .. } = &mut event.what {
            *at = "192.0.2.50:80".parse().unwrap();
        }
    }
    if let Some(at) = other {
        let traffic = Arc::make_mut(&mut case.traffic);
        let first = traffic[0].clone();
        traffic.insert("web".into(), first);
        let aimed = EventKind::Aimed {
            traffic: "web".into(),
            at: at.parse().unwrap(),
            from: Some([10, 20, 2, 2].into()),
        };
        events.push(event(810_000, aimed));
    }
    for (at_us, who, rules) in written {
        let nat = format!("*nat\n{rules}COMMIT\n");
        events.push(command("n2", *at_us, who, &RESTORE, &nat));
    }
    for (at_us, value) in [(1_000_001, 7), (1_450_000, 7 + rose)] {
        let seen = EventKind::Counters {
            at: Origin::Host("balancer".to_owned()),
            values: [("is-asked".into(), value)].into(),
            rewritten: BTreeMap::new(),
            unmatched: BTreeMap::new(),
        };
        events.push(event(at_us, seen));
    }
    judged(case, events)
}

#[test]
fn rules_that_lead_what_is_sent_to_it_elsewhere_are_told_with_who_wrote_them() {
    let told =
        "; kube-proxy's rules on n2 led what is sent to host balancer (192.0.2.50) to 10.20.10.127";
    let said = said(LEADS, 0);
    assert!(said.ends_with(told), "{said}");
}

#[test]
fn of_two_traffics_both_have_to_be_led_past_it() {
    let aims = |at: &str, rules: &str| said_of(&[(500_000, "kube-proxy", rules)], 0, Some(at));
    let both = format!("{LEADS}{}", LEADS.replace("192.0.2.50/32", "192.0.2.51/32"));
    let told = "led what is sent to host balancer (192.0.2.50, 192.0.2.51) to 10.20.10.127";
    assert!(aims("192.0.2.51:80", &both).ends_with(told));
    assert!(!aims("192.0.2.51:80", LEADS).contains("led what is sent"));
}

#[test]
fn nobody_is_named_where_rules_led_past_it_only_later_or_were_written_by_two() {
    let late = said_of(&[(1_200_000, "kube-proxy", LEADS)], 0, None);
    assert!(!late.contains("led what is sent"), "{late}");
    let by = |who| {
        said_of(
            &[(500_000, "kube-proxy", LEADS), (600_000, who, half())],
            0,
            None,
        )
    };
    let two = by("admin");
    assert!(!two.contains("led what is sent"), "{two}");
    let one = by("kube-proxy");
    assert!(one.ends_with("to 10.20.10.127, 10.20.10.128"), "{one}");
}

/// Half of what comes goes elsewhere, before the other rule.
fn half() -> &'static str {
    "-I PREROUTING -d 192.0.2.50/32 -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT \
     --to-destination 10.20.10.128:80\n"
}

#[test]
fn of_a_host_that_was_asked_or_that_no_rule_leads_past_nobody_is_named() {
    for said in [said(LEADS, 3), said("", 0), said(half(), 0)] {
        assert!(
            said.starts_with("is-asked broken: Tcp.PassiveOpens"),
            "{said}"
        );
        assert!(!said.contains("led what is sent"), "{said}");
    }
}
