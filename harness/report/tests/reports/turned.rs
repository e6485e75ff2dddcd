//! A command after which packets end is found by their way through the rules, and nobody is named where that is not known.

use chainbreak_model::{
    case::{Entries, Expect, Fault, Step},
    event::{Event, EventKind},
};

use crate::{
    culprits::{DEAD, answers, headline, headline_of, lost},
    history::{RESTORE, SVC, case, cleanup, command, event, run, sample, summaries},
};

const NETWORK: &str = "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536
    inet 127.0.0.1/8 scope host lo
2: eth0@if3: <BROADCAST,UP,LOWER_UP> mtu 1500
    inet 10.0.0.2/24 scope global eth0
default via 10.0.0.1 dev eth0
10.20.2.2 dev cali1 scope link
10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.2
local 10.0.0.2 dev eth0 table local proto kernel scope host src 10.0.0.2
local 127.0.0.0/8 dev lo table local proto kernel scope host src 127.0.0.1
0:\tfrom all lookup local
32766:\tfrom all lookup main
32767:\tfrom all lookup default
net.ipv4.ip_forward = 1
net.ipv4.conf.all.forwarding = 1
net.ipv4.conf.eth0.forwarding = 1
net.ipv4.conf.cali1.forwarding = 1
net.ipv4.conf.all.rp_filter = 0
net.ipv4.conf.cali1.rp_filter = 0
";

/// What is known before the first request: kube-proxy's rules, routes and the address that is asked.
pub(crate) fn known() -> Vec<Event> {
    let rules = format!(
        "*nat\n:KUBE-SERVICES - [0:0]\n:{SVC} - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n\
         -A KUBE-SERVICES -p tcp -m tcp -d 10.96.10.10 --dport 80 -j {SVC}\n\
         -A {SVC} -j DNAT --to-destination 10.20.10.127:80\nCOMMIT\n"
    );
    let aimed = EventKind::Aimed {
        traffic: "shop".into(),
        at: "10.96.10.10:80".parse().expect("an address and a port"),
        from: None,
    };
    let network = EventKind::Network {
        node: "n2".into(),
        text: NETWORK.to_owned(),
    };
    vec![
        command("n2", 400_000, "kube-proxy", &RESTORE, &rules),
        event(800_000, aimed),
        event(900_000, network),
    ]
}

fn with(more: Vec<Event>) -> String {
    headline_of([known(), more].concat())
}

/// A command of somebody's.
fn ran(who: &str, at_us: u64, words: &str) -> Vec<Event> {
    let argv: Vec<&str> = words.split(' ').collect();
    vec![command("n2", at_us, who, &argv, "")]
}

fn other(at_us: u64, words: &str) -> Vec<Event> {
    ran("firewall", at_us, words)
}

const DROPS: &str = "iptables -P FORWARD DROP";
const ACCEPTS: &str = "iptables -P FORWARD ACCEPT";

#[test]
fn a_command_after_which_requests_are_dropped_is_named() {
    assert_eq!(
        with(other(1_490_000, DROPS)),
        format!(
            "{DEAD}a request's first packet is dropped by filter FORWARD, policy: DROPPED – no rule of the chain decided, since \
             firewall (iptables)"
        )
    );
    let rule = "iptables -t raw -A PREROUTING -s 10.20.2.2 -p tcp --dport 80 -j DROP";
    let said = with(other(1_490_000, rule));
    assert!(said.contains("is dropped by raw PREROUTING 1"), "{said}");
}

#[test]
fn a_command_that_changes_nothing_for_the_requests_is_not_named() {
    let elsewhere = "iptables -t raw -A PREROUTING -s 203.0.113.0/24 -j DROP";
    let unexplained = format!("{DEAD}no recorded command explains it");
    assert_eq!(with(other(1_490_000, elsewhere)), unexplained);
    // Long before the first request that was lost, or after it.
    assert_eq!(with(other(1_300_000, DROPS)), unexplained);
    assert_eq!(with(other(1_600_000, DROPS)), unexplained);
}

#[test]
fn the_command_that_turned_them_is_told_from_others_of_the_same_moment() {
    let mut commands = other(1_482_000, "iptables -N MINE");
    commands.extend(ran("culprit", 1_491_000, DROPS));
    commands.extend(other(1_500_000, "iptables -X MINE"));
    assert!(with(commands).ends_with("since culprit (iptables)"));
}

#[test]
fn nobody_is_named_where_it_was_undone_or_another_wrote_at_the_same_time() {
    let unexplained = format!("{DEAD}no recorded command explains it");
    let undone = [other(1_490_000, DROPS), other(1_520_000, ACCEPTS)].concat();
    assert_eq!(with(undone), unexplained);
    let late = [other(1_490_000, DROPS), other(1_680_000, ACCEPTS)].concat();
    assert!(with(late).ends_with("since firewall (iptables)"));
    let beside = ran("another", 1_494_000, "iptables -N MINE");
    assert_eq!(
        with([other(1_490_000, DROPS), beside].concat()),
        unexplained
    );
}

#[test]
fn a_rule_that_refuses_does_not_explain_requests_that_time_out() {
    let rule = "iptables -A FORWARD -p tcp -j REJECT --reject-with tcp-reset";
    let unexplained = format!("{DEAD}no recorded command explains it");
    assert_eq!(with(other(1_490_000, rule)), unexplained);
}

#[test]
fn nobody_is_named_where_the_rules_or_the_way_are_not_known() {
    let unexplained = format!("{DEAD}no recorded command explains it");
    let drops = || other(1_490_000, DROPS);
    // A command that cannot be followed.
    let unknown = other(700_000, "iptables -A NOT-THERE -j ACCEPT");
    assert_eq!(with([unknown, drops()].concat()), unexplained);
    // A rule that is not understood.
    let asks = "iptables -t raw -A PREROUTING -m bpf --object-pinned /x -j DROP";
    let said = with([other(700_000, asks), drops()].concat());
    assert_eq!(said, unexplained);
    // Routes, or the address that is asked, which older histories do not tell.
    for left_out in ["Network", "Aimed"] {
        let mut events = known();
        events.retain(|event| !format!("{:?}", event.what).starts_with(left_out));
        assert_eq!(headline_of([events, drops()].concat()), unexplained);
    }
}

#[test]
fn what_the_scenario_did_just_before_is_said_of_a_gap_that_no_command_explains() {
    let step = |at_us, text: &str| {
        let text = text.to_owned();
        event(at_us, EventKind::Step { text })
    };
    let steps = vec![
        step(1_300_000, "n1: link eth0 down"),
        step(1_490_000, "n2: link eth0 down"),
        step(1_600_000, "n2: link eth0 up"),
    ];
    assert_eq!(
        with(steps),
        format!("{DEAD}no recorded command explains it; just before it: n2: link eth0 down")
    );
}

#[test]
fn a_request_that_passes_does_not_hide_what_was_done_before_the_outage() {
    let said = |passed: &[u64]| {
        let text = "fill conntrack of node/n2".to_owned();
        let mut events = lost(vec![event(1_490_000, EventKind::Step { text })]);
        let passes = |event: &&mut Event| {
            matches!(event.what, EventKind::Sample { .. }) && passed.contains(&event.at_us)
        };
        for event in events.iter_mut().filter(passes) {
            *event = sample(event.at_us, true);
        }
        answers(events, None).headline().unwrap()
    };
    let of_the_rest = "services dead on n2 for 0.100 s from 1.60 s: ";
    let done = "just before it: fill conntrack of node/n2";
    let told = said(&[1_580_000]);
    assert!(
        told.starts_with(of_the_rest) && told.contains(done),
        "{told}"
    );
    // Where requests pass for as long as they were lost before, another outage begins.
    let told = said(&[1_540_000, 1_560_000, 1_580_000]);
    assert!(
        told.starts_with(of_the_rest) && !told.contains(done),
        "{told}"
    );
}

#[test]
fn a_fault_that_lasts_is_said_of_a_later_loss_too_until_it_is_undone() {
    let said = |undone: bool| {
        let fault = Fault::FillConntrack {
            node: Some("n2".into()),
            entries: Entries::Full,
        };
        let mut case = case("v", Expect::Healthy);
        case.timeline = vec![Step::Fault {
            fault,
            duration: None,
        }]
        .into();
        let text = "fill conntrack of node/n2".to_owned();
        let mut events = vec![
            event(1_480_000, EventKind::StepBegan { step: 0 }),
            event(1_490_000, EventKind::Step { text }),
        ];
        if undone {
            events.push(event(1_550_000, EventKind::StepEnded { step: 0 }));
        }
        let mut events = lost(events);
        for event in &mut events {
            if matches!(event.what, EventKind::Sample { .. })
                && (1_540_000..1_600_000).contains(&event.at_us)
            {
                *event = sample(event.at_us, true);
            }
        }
        summaries(&run(vec![(case, events)]))
            .remove(0)
            .headline()
            .unwrap()
    };
    let told = "there since an earlier loss: fill conntrack of node/n2";
    assert!(said(false).contains(told), "{}", said(false));
    assert!(!said(true).contains("fill conntrack"), "{}", said(true));
}

#[test]
fn what_was_deleted_while_requests_were_still_answered_is_not_why_later_ones_are_lost() {
    let at_once = headline(cleanup("n2", 1_490_000));
    assert!(at_once.contains("deleted by felix"), "{at_once}");
    let long_before = headline(cleanup("n2", 1_200_000));
    assert_eq!(
        long_before,
        format!("{DEAD}no recorded command explains it")
    );
}
