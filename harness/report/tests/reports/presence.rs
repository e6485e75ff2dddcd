//! Who took away what a promise asks for, by its text, its element or its chain, and who made what was not to be there.

use std::sync::Arc;

use chainbreak_model::{
    case::{
        Case, Claim, ElementQuery, Expect, Family, Presence, RuleBackend, RuleChain, RuleQuery,
    },
    event::{Event, EventKind, Phase, RulesSeen},
};

use crate::history::{all_along, case, command, event, run, summaries};

const TABLE: &str = "\
add table ip kube-proxy
add set ip kube-proxy cluster-ips { type ipv4_addr; }
add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
add chain ip kube-proxy services
add chain ip kube-proxy service-X
add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips
add rule ip kube-proxy services ip daddr @cluster-ips drop
add element ip kube-proxy service-ips { 10.96.7.8 . tcp . 80 : goto service-X }
";

fn rule(chain: &str, matches: &str, backend: Option<RuleBackend>) -> Claim {
    let nftables = backend == Some(RuleBackend::Nftables);
    let rule = RuleQuery {
        table: if nftables { "kube-proxy" } else { "nat" }.to_owned(),
        chain: RuleChain::Named(chain.to_owned()),
        matches: Some(matches.to_owned()),
        backend,
        ..RuleQuery::default()
    };
    has(rule, false)
}

pub(crate) fn has(rule: RuleQuery, absent: bool) -> Claim {
    let presence = Presence {
        always: true,
        absent,
        node: None,
    };
    Claim::HasRule { rule, presence }
}

fn vmap() -> Claim {
    rule("services", "vmap @service-ips", Some(RuleBackend::Nftables))
}

/// A case that promises this alone.
pub(crate) fn promising(claim: Claim) -> Case {
    let mut case = case("v", Expect::Healthy);
    *Arc::make_mut(&mut case.promises) = [("it".into(), all_along(claim))].into();
    case
}

/// Of a node that is looked at before 1 s and from 1.5 s on, when it is not as promised any more.
fn said(claim: Claim, commands: Vec<Event>) -> String {
    looked_at(claim, commands, true)
}

/// Where it may not be as promised before, either.
pub(crate) fn looked_at(claim: Claim, commands: Vec<Event>, was_kept: bool) -> String {
    let forbidden = matches!(&claim, Claim::HasRule { presence, .. } if presence.absent);
    let mut events = commands;
    events.extend([
        looked(900_000, usize::from(forbidden != was_kept)),
        looked(1_500_000, usize::from(forbidden)),
    ]);
    let (at, why) = judged(claim, events);
    assert_eq!(at, if was_kept { "1.50" } else { "1.00" });
    why
}

pub(crate) fn looked(at_us: u64, count: usize) -> Event {
    let seen = RulesSeen {
        node: "n1".into(),
        query: "it".into(),
        count,
    };
    event(at_us, EventKind::Rules(seen))
}

/// When it is said to have begun, and why.
fn judged(claim: Claim, mut events: Vec<Event>) -> (String, String) {
    let phases = [(1_000_000, Phase::Judging), (2_000_000, Phase::Judged)];
    events.extend(phases.map(|(at_us, phase)| event(at_us, EventKind::Phase(phase))));
    events.sort_by_key(|event| event.at_us);
    let said = summaries(&run(vec![(promising(claim), events)])).remove(0);
    let said = said.headline().unwrap();
    let (_, began) = said.split_once(" s from ").expect("when it began");
    let (at, why) = began.split_once(" s").expect("a time");
    (at.to_owned(), why.trim_start_matches(": ").to_owned())
}

const UNEXPLAINED: &str = "no recorded command explains it";

fn nft(who: &str, at_us: u64, words: &str) -> Event {
    let argv: Vec<&str> = words.split(' ').collect();
    command("n1", at_us, who, &argv, "")
}

fn made() -> Event {
    command("n1", 400_000, "kube-proxy", &["nft", "-f", "-"], TABLE)
}

/// What is said after kube-proxy's table was made.
fn after(claim: Claim, commands: Vec<Event>) -> String {
    said(claim, [vec![made()], commands].concat())
}

#[test]
fn a_table_that_is_deleted_takes_its_rules_and_elements_with_it() {
    let deleted = || vec![nft("felix", 1_490_000, "nft delete table ip kube-proxy")];
    assert_eq!(after(vmap(), deleted()), "deleted by felix (nft)");
    let element = Claim::HasElement {
        element: ElementQuery {
            table: "kube-proxy".to_owned(),
            set: "service-ips".to_owned(),
            element: "10.96.7.8 . tcp . 80".to_owned(),
            family: Family::Ip,
        },
        presence: Presence {
            always: true,
            absent: false,
            node: None,
        },
    };
    assert_eq!(after(element, deleted()), "deleted by felix (nft)");
}

#[test]
fn who_deletes_another_rule_or_deletes_it_at_another_time_is_not_named() {
    let other = "add rule ip kube-proxy services counter";
    let flush = "flush chain ip kube-proxy service-X";
    for text in [other, flush] {
        let ran = command("n1", 1_490_000, "felix", &["nft", "-f", "-"], text);
        assert_eq!(after(vmap(), vec![ran]), UNEXPLAINED, "{text}");
    }
    // It was seen to be there after the first, and to be gone before the second.
    for at_us in [700_000, 1_600_000] {
        let deleted = nft("felix", at_us, "nft delete table ip kube-proxy");
        assert_eq!(after(vmap(), vec![deleted]), UNEXPLAINED, "{at_us}");
    }
    let elsewhere = command(
        "n2",
        1_490_000,
        "felix",
        &["nft", "delete", "table", "ip", "kube-proxy"],
        "",
    );
    assert_eq!(after(vmap(), vec![elsewhere]), UNEXPLAINED);
}

#[test]
fn nobody_is_named_where_another_wrote_at_the_same_time_or_a_command_cannot_be_followed() {
    let deleted = nft("felix", 1_490_000, "nft delete table ip kube-proxy");
    let beside = nft("another", 1_494_000, "nft add chain ip kube-proxy mine");
    assert_eq!(after(vmap(), vec![deleted.clone(), beside]), UNEXPLAINED);
    let flush = nft("another", 1_494_000, "nft flush ruleset");
    assert_eq!(after(vmap(), vec![deleted.clone(), flush]), UNEXPLAINED);
    let looks = nft("another", 1_494_000, "nft list table ip kube-proxy");
    let elsewhere = nft("another", 1_494_000, "ip6tables -t nat -N MINE");
    assert_eq!(
        after(vmap(), vec![deleted.clone(), looks, elsewhere]),
        "deleted by felix (nft)"
    );
    let unseen = nft("another", 600_000, "nft -f /etc/nftables.conf");
    assert_eq!(after(vmap(), vec![unseen, deleted]), UNEXPLAINED);
}

#[test]
fn what_cannot_be_followed_in_other_tables_hides_nobody() {
    let replaced = |table: &str| {
        let words = format!("nft replace rule ip {table} some-chain handle 7 drop");
        nft("another", 600_000, &words)
    };
    let deleted = nft("felix", 1_490_000, "nft delete table ip kube-proxy");
    let said = |table| after(vmap(), vec![replaced(table), deleted.clone()]);
    assert_eq!(said("calico"), "deleted by felix (nft)");
    assert_eq!(said("kube-proxy"), UNEXPLAINED);
}

#[test]
fn a_rule_of_iptables_is_known_by_its_text_its_family_and_its_backend() {
    let save = "*nat\n:MINE - [0:0]\n-A MINE -p tcp -m tcp --dport 80 -j RETURN\n-A MINE -j ACCEPT\nCOMMIT\n";
    let on = |program: &str, claim: Claim| {
        let restore = format!("{program}-restore");
        let made = command("n1", 410_000, "a", &[&restore, "--noflush"], save);
        let argv = [program, "-t", "nat", "-D", "MINE", "1"];
        after(claim, vec![made, command("n1", 1_490_000, "b", &argv, "")])
    };
    let asked = |backend, family| {
        let Claim::HasRule { mut rule, presence } = rule("MINE", "--dport 80", backend) else {
            unreachable!()
        };
        rule.family = family;
        Claim::HasRule { rule, presence }
    };
    let by = |program: &str| format!("deleted by b ({program})");
    let own = || asked(None, Family::Ip);
    assert_eq!(on("iptables", own()), by("iptables"));
    assert_eq!(on("iptables-legacy", own()), by("iptables-legacy"));
    // The node's own iptables is the legacy one.
    assert_eq!(on("iptables-nft", own()), UNEXPLAINED);
    let of_nft = asked(Some(RuleBackend::Nft), Family::Ip);
    assert_eq!(on("iptables-nft", of_nft), by("iptables-nft"));
    let of_6 = || asked(None, Family::Ip6);
    assert_eq!(on("ip6tables", of_6()), by("ip6tables"));
    assert_eq!(on("iptables", of_6()), UNEXPLAINED);
}

#[test]
fn of_what_was_never_there_nobody_is_said_to_have_taken_it() {
    assert_eq!(
        looked_at(vmap(), Vec::new(), false),
        "from the first look on"
    );
}

#[test]
fn who_took_it_before_the_first_look_is_named() {
    let long_before = nft("felix", 500_000, "nft delete table ip kube-proxy");
    assert_eq!(
        looked_at(vmap(), vec![made(), long_before], false),
        "deleted by felix (nft)"
    );
}

#[test]
fn who_took_it_before_it_was_judged_is_named() {
    let deleted = nft("felix", 700_000, "nft delete table ip kube-proxy");
    let looks = [looked(500_000, 1), looked(710_000, 0)];
    let said = judged(vmap(), [vec![made(), deleted], looks.to_vec()].concat());
    assert_eq!(
        said,
        ("1.00".to_owned(), "deleted by felix (nft)".to_owned())
    );
}

#[test]
fn of_several_who_took_it_between_two_looks_none_is_named() {
    let deleted = |who, at_us| nft(who, at_us, "nft delete table ip kube-proxy");
    let again = command("n1", 1_460_000, "kube-proxy", &["nft", "-f", "-"], TABLE);
    let one = |who| {
        vec![
            deleted(who, 1_440_000),
            again.clone(),
            deleted("felix", 1_490_000),
        ]
    };
    assert_eq!(after(vmap(), one("another")), UNEXPLAINED);
    assert_eq!(after(vmap(), one("felix")), "deleted by felix (nft)");
}

#[test]
fn a_jump_of_the_other_family_is_another_one() {
    let jump = |family| {
        let rule = RuleQuery {
            table: "nat".to_owned(),
            chain: RuleChain::Named("PREROUTING".to_owned()),
            jump: Some("MINE".to_owned()),
            family,
            ..RuleQuery::default()
        };
        has(rule, false)
    };
    let ran = |program: &str, words: &str| format!("{program} -t nat {words}");
    let both = ["iptables", "ip6tables"].map(|program| {
        let words = ["-N MINE", "-A PREROUTING -j MINE"].map(|it| ran(program, it));
        words.map(|it| nft("a", 410_000, &it))
    });
    let deleted = nft("b", 1_490_000, "ip6tables -t nat -D PREROUTING -j MINE");
    let commands = [both.concat(), vec![deleted]].concat();
    assert_eq!(
        after(jump(Family::Ip6), commands.clone()),
        "deleted by b (ip6tables)"
    );
    assert_eq!(after(jump(Family::Ip), commands.clone()), UNEXPLAINED);
    // Also where nobody knows what rules there were.
    let unseen = nft("a", 300_000, "nft -f /etc/nftables.conf");
    let blind = [vec![unseen], commands].concat();
    assert_eq!(after(jump(Family::Ip), blind), UNEXPLAINED);
}

#[test]
fn of_what_was_not_to_be_there_it_is_said_who_made_it() {
    let forbidden = has(
        RuleQuery {
            table: "nat".to_owned(),
            chain: RuleChain::Named("MINE".to_owned()),
            ..RuleQuery::default()
        },
        true,
    );
    let chain = nft("firewall", 1_490_000, "iptables -t nat -N MINE");
    assert_eq!(
        after(forbidden.clone(), vec![chain]),
        "added by firewall (iptables)"
    );
    assert_eq!(after(forbidden, Vec::new()), "");
}
