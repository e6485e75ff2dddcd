//! What was there all the time is told of requests of which none was ever answered, and nothing where it may have been otherwise.

use std::sync::Arc;

use chainbreak_model::{
    case::{
        AgentSource, Case, CniSpec, Dataplane, Destination, Expect, Fault, HostSpec, Origin,
        RandomizeSnat, Route, Run, Step, Via,
    },
    event::{Event, EventKind, Phase},
};
use chainbreak_probe::wire::Outcome;

use crate::{
    history::{case, command, event, run, sample, summaries},
    turned::known,
};

const DEAD: &str = "services dead on n2 for 0.500 s from 1.00 s: from the first request on";

/// What is known before the first request, and who sends them.
fn sent_from(address: [u8; 4]) -> Vec<Event> {
    let mut events = known();
    for event in &mut events {
        if let EventKind::Aimed { from, .. } = &mut event.what {
            *from = Some(address.into());
        }
    }
    events
}

fn ends_so(at_us: u64, outcome: &Outcome) -> Event {
    let mut event = sample(at_us, false);
    if let EventKind::Sample { sample, .. } = &mut event.what {
        sample.outcome = outcome.clone();
    }
    event
}

/// Half a second of requests that all end so.
fn dead(mut events: Vec<Event>, outcome: &Outcome) -> Vec<Event> {
    events.push(event(1_000_000, EventKind::Phase(Phase::Judging)));
    let due = (1_000_000..1_500_000).step_by(20_000);
    events.extend(due.map(|at_us| ends_so(at_us, outcome)));
    events.push(event(1_500_000, EventKind::Phase(Phase::Judged)));
    events.sort_by_key(|event| event.at_us);
    events
}

fn only_answers(expect: Expect) -> Case {
    let mut case = case("v", expect);
    Arc::make_mut(&mut case.promises).retain(|name, _| name.as_str() == "answers");
    case
}

fn said_of(events: Vec<Event>, outcome: &Outcome) -> String {
    let case = only_answers(Expect::Healthy);
    let mut summaries = summaries(&run(vec![(case, dead(events, outcome))]));
    summaries.remove(0).headline().unwrap()
}

/// With commands of kube-proxy and of others before the first request, or later.
fn said(commands: &[(u64, &str, &str)], outcome: &Outcome) -> String {
    said_of(after(commands), outcome)
}

fn after(commands: &[(u64, &str, &str)]) -> Vec<Event> {
    let mut events = sent_from([10, 20, 2, 2]);
    for (at_us, who, words) in commands {
        let argv: Vec<&str> = words.split(' ').collect();
        events.push(command("n2", *at_us, who, &argv, ""));
    }
    events
}

/// With a rule of kube-proxy's that drops them.
fn ruled() -> Vec<Event> {
    after(&[CHAIN, JUMP, DROP])
}

const CHAIN: (u64, &str, &str) = (500_000, "kube-proxy", "iptables -N KUBE-FORWARD");
const JUMP: (u64, &str, &str) = (520_000, "kube-proxy", "iptables -A FORWARD -j KUBE-FORWARD");
const DROP: (u64, &str, &str) = (
    540_000,
    "kube-proxy",
    "iptables -A KUBE-FORWARD -d 10.20.10.127/32 -j DROP",
);

#[test]
fn the_rule_that_ends_them_is_named_with_who_wrote_it() {
    let said = said(&[CHAIN, JUMP, DROP], &Outcome::TimedOut);
    let named = format!(
        "{DEAD}: a request's first packet is dropped by filter KUBE-FORWARD -d 10.20.10.127/32 -j DROP (kube-proxy)"
    );
    assert_eq!(said, named);
}

#[test]
fn nobody_is_named_for_a_chain_that_several_wrote() {
    let another = (
        530_000,
        "firewall",
        "iptables -A KUBE-FORWARD -s 203.0.113.0/24 -j RETURN",
    );
    // It says nothing of IPv4's.
    let chain = (400_000, "kube-proxy", "ip6tables -N KUBE-FORWARD");
    let flush = (535_000, "kube-proxy", "ip6tables -F KUBE-FORWARD");
    let written = [chain, CHAIN, JUMP, another, flush, DROP];
    let said = said(&written, &Outcome::TimedOut);
    assert!(
        said.contains(": a request's first packet is dropped by filter KUBE-FORWARD -d")
            && !said.contains("(kube-proxy)"),
        "{said}"
    );
}

#[test]
fn where_two_rules_end_them_by_chance_neither_is_the_one() {
    let chance = (
        530_000,
        "kube-proxy",
        "iptables -A KUBE-FORWARD -m statistic --mode random --probability 0.50000000000 -j DROP",
    );
    let said = said(&[CHAIN, JUMP, chance, DROP], &Outcome::TimedOut);
    assert!(
        said.contains("KUBE-FORWARD 1") && said.contains("KUBE-FORWARD 2"),
        "{said}"
    );
    assert!(!said.contains("(kube-proxy)"), "{said}");
}

#[test]
fn a_rule_that_came_meanwhile_or_ends_requests_otherwise_is_not_why() {
    let late = (1_200_000, DROP.1, DROP.2);
    assert_eq!(said(&[CHAIN, JUMP, late], &Outcome::TimedOut), DEAD);
    let gone = (
        1_200_000,
        "kube-proxy",
        "iptables -D KUBE-FORWARD -d 10.20.10.127/32 -j DROP",
    );
    assert_eq!(said(&[CHAIN, JUMP, DROP, gone], &Outcome::TimedOut), DEAD);
    assert_eq!(said(&[CHAIN, JUMP, DROP], &Outcome::Refused), DEAD);
}

#[test]
fn rules_do_not_explain_requests_of_which_some_ended_otherwise() {
    let mut events = dead(ruled(), &Outcome::TimedOut);
    let refused = |event: &mut Event| {
        if let EventKind::Sample { sample, .. } = &mut event.what {
            sample.outcome = Outcome::Refused;
        }
    };
    events.iter_mut().rev().take(5).for_each(refused);
    let case = only_answers(Expect::Healthy);
    let said = summaries(&run(vec![(case, events)])).remove(0);
    assert_eq!(said.headline().unwrap(), DEAD);
}

#[test]
fn rules_that_felixs_programs_come_before_are_not_named() {
    let mut case = only_answers(Expect::Healthy);
    let felix = case.cluster.calico.as_mut().unwrap();
    felix.source = AgentSource::Path("/opt/calico-node".into());
    let bpf = |case: &mut Case, is_on: bool| {
        let felix = Arc::make_mut(&mut case.cluster.felix);
        felix.insert(Dataplane::FIELD.to_owned(), is_on.into());
    };
    let said = |case: &Case| {
        let run = run(vec![(case.clone(), dead(ruled(), &Outcome::TimedOut))]);
        summaries(&run).remove(0).headline().unwrap()
    };
    bpf(&mut case, false);
    assert!(said(&case).contains("KUBE-FORWARD"), "{}", said(&case));
    bpf(&mut case, true);
    assert_eq!(said(&case), DEAD);
}

#[test]
fn nothing_is_told_of_a_history_that_does_not_say_who_sends() {
    let mut events = ruled();
    for event in &mut events {
        if let EventKind::Aimed { from, .. } = &mut event.what {
            *from = None;
        }
    }
    assert_eq!(said_of(events, &Outcome::TimedOut), DEAD);
}

/// What is said, and whether aws-node is found behind it, of a pod that asks a host outside of the VPC.
fn outside(external_snat: bool, routes: &[Route]) -> String {
    outside_of(external_snat, routes, &[], &[])
}

/// Of this VPC, with these steps.
fn outside_of(external_snat: bool, routes: &[Route], vpc: &[&str], steps: &[Step]) -> String {
    let mut case = only_answers(Expect::Broken(vec!["answers".into()]));
    case.by = Some("aws-node".to_owned());
    case.timeline = Arc::new(steps.to_vec());
    let db = HostSpec {
        addresses: vec![[192, 0, 2, 10].into()],
        routes: routes.to_vec(),
        nginx: Some(80),
    };
    case.cluster.hosts = Arc::new([("db".to_owned(), db)].into());
    case.cluster.cni = Some(CniSpec {
        external_snat,
        randomize_snat: RandomizeSnat::Prng,
        vpc_cidrs: vpc.iter().map(|it| it.parse().unwrap()).collect(),
    });
    for traffic in Arc::make_mut(&mut case.traffic).values_mut() {
        traffic.to = Destination::Host("db".to_owned());
    }
    let mut events = sent_from([10, 20, 2, 2]);
    for event in &mut events {
        if let EventKind::Aimed { at, .. } = &mut event.what {
            *at = "192.0.2.10:80".parse().unwrap();
        }
    }
    let run = run(vec![(case, dead(events, &Outcome::TimedOut))]);
    summaries(&run).remove(0).headline().unwrap()
}

#[test]
fn a_host_that_has_no_route_back_to_a_pods_own_address_is_told_with_who_is_told_to_leave_it() {
    let dead = "host db dead on n2 for 0.500 s from 1.00 s: from the first request on";
    let way = "they leave n2 as 10.20.2.2";
    let nobody = "; nobody is found behind it, and the scenario expects aws-node";
    assert_eq!(
        outside(true, &[]),
        format!(
            "{dead}: {way} (aws-node: external-snat), and host db has no route of its own to that"
        )
    );
    assert_eq!(
        outside(false, &[]),
        format!("{dead}: {way}, and host db has no route of its own to that{nobody}")
    );
    // To a network of the VPC nodes never translate.
    assert_eq!(
        outside_of(true, &[], &["192.0.2.0/24"], &[]),
        outside(false, &[])
    );
    // Who may run anything may have made a route.
    let runs = Step::Fault {
        fault: Fault::Run(Run {
            at: Some(Origin::Host("db".to_owned())),
            who: "admin".to_owned(),
            argv: vec!["true".to_owned()],
        }),
        duration: None,
    };
    assert_eq!(
        outside_of(true, &[], &[], &[runs]),
        format!("{dead}{nobody}")
    );
    let route = Route {
        to: "10.20.2.0/24".parse().unwrap(),
        via: Via::Node("n2".into()),
    };
    assert_eq!(outside(true, &[route]), format!("{dead}{nobody}"));
}

#[test]
fn what_a_host_sends_to_anothers_address_is_walked_on_the_node_that_it_is_handed_to() {
    let mut case = only_answers(Expect::Healthy);
    let route = |to: &str, node: &str| Route {
        to: to.parse().unwrap(),
        via: Via::Node(node.into()),
    };
    let balancer = HostSpec {
        addresses: vec![[192, 0, 2, 50].into()],
        ..HostSpec::default()
    };
    let client = HostSpec {
        routes: vec![route("192.0.2.0/24", "n1"), route("192.0.2.50/32", "n2")],
        ..HostSpec::default()
    };
    let hosts = [
        ("balancer".to_owned(), balancer),
        ("out".to_owned(), client),
    ];
    case.cluster.hosts = Arc::new(hosts.into());
    for traffic in Arc::make_mut(&mut case.traffic).values_mut() {
        traffic.from = Origin::Host("out".to_owned());
        traffic.to = Destination::Host("balancer".to_owned());
    }
    let mut events = sent_from([10, 0, 0, 9]);
    for event in &mut events {
        if let EventKind::Aimed { at, .. } = &mut event.what {
            *at = "192.0.2.50:80".parse().unwrap();
        }
    }
    let drops = "iptables -t raw -A PREROUTING -d 192.0.2.50/32 -j DROP";
    let argv: Vec<&str> = drops.split(' ').collect();
    events.push(command("n2", 500_000, "firewall", &argv, ""));
    let run = run(vec![(case, dead(events, &Outcome::TimedOut))]);
    let said = summaries(&run).remove(0).headline().unwrap();
    assert!(
        said.starts_with("host balancer dead on n2")
            && said.ends_with("is dropped by raw PREROUTING -d 192.0.2.50/32 -j DROP (firewall)"),
        "{said}"
    );
}
