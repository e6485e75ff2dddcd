//! What Felix notes of a policy program, word by word.

use chainbreak_netfilter::walk::{End, Walk};

use super::{
    ALL, DENIES, FELIX_ROUTES, MAP, ROUTES, SETS, arriving, asks, decided, to_pod, walked,
};
use crate::tcp;

/// A program at the pod's interface with these words, each before an instruction of its own; the end of a tier denies.
fn program(hook: &str, label: &str, words: &[&str]) -> String {
    let instruction = |words: &&str| {
        let goes = if words.starts_with("End of tier") {
            "goto deny"
        } else {
            ""
        };
        format!("{{\"comments\":[{words:?}],\"annotation\":\"{goes}\"}}")
    };
    let words: Vec<String> = words.iter().map(instruction).collect();
    let words = words.join(",");
    format!(
        "/var/run/calico/bpf/policy/cali2733c3e547f_ingress_v4.json:{{\"ifacename\":\"cali2733c3e547f\",\"hook\":\"{hook}\",\
        \"policyInfo\":[{{\"labels\":[\"{label}\"]}},{words}],\"error\":\"\"}}"
    )
}

/// To a pod whose only rule allows what is so.
fn walked_where(condition: &str) -> Walk {
    walked_with(condition, SETS)
}

fn walked_with(condition: &str, sets: &str) -> Walk {
    let numbers = "If dest port is not within any of {}, skip to next rule";
    let numbers = condition.contains("named").then_some(numbers);
    let asked: Vec<&str> = numbers.into_iter().chain([condition]).collect();
    let program = only_rule("Start of rule action:\"allow\"", &asked);
    walked(
        &[ROUTES, FELIX_ROUTES, MAP, &program, sets],
        &to_pod("10.20.1.4", 80),
    )
}

/// A program whose only rule begins and goes on with these words.
fn only_rule(begins: &str, words: &[&str]) -> String {
    let before = ["Start of tier one", "Start of policy one.web", begins];
    let after = [
        "End of rule abc",
        "End of policy one.web",
        "End of tier one",
    ];
    let words = [&before[..], words, &after].concat();
    program("tc egress", "allowed_by_host_policy", &words)
}

#[test]
fn conditions_are_read_as_felix_words_them() {
    let yes = [
        "If protocol == udp, skip to next rule",
        "If source not in {10.20.1.0/24,192.0.2.0/24}, skip to next rule",
        "If dest in {10.30.0.0/16}, skip to next rule",
        "If source doesn't match ipset s:a (0xcfb03d1c7ffe2ba0), skip to next rule",
        "If dest matches ipset s:a (0xcfb03d1c7ffe2ba0), skip to next rule",
        "If source port is within any of {1-1023}, skip to next rule",
        "If ICMP type == 8, skip to next rule",
    ];
    let no = [
        "If protocol != udp, skip to next rule",
        "If source in {10.20.1.0/24}, skip to next rule",
        "If dest not in {10.30.0.0/16}, skip to next rule",
        "If source matches ipset s:a (0xcfb03d1c7ffe2ba0), skip to next rule",
        "If dest doesn't match ipset s:a (0xcfb03d1c7ffe2ba0), skip to next rule",
        "If dest port is not within any of {81,8000-8100}, skip to next rule",
        "If ICMP type != 8, skip to next rule",
        "If dest port is not within any of the named ports {n:http}, skip to next rule",
    ];
    let open = [
        "If the moon is full, skip to next rule",
        "If ICMP type != 8 or code != 0, skip to next rule",
    ];
    for condition in yes {
        assert_eq!(arriving(&walked_where(condition)), [true], "{condition}");
    }
    for condition in no {
        let walk = walked_where(condition);
        assert_eq!(arriving(&walk), [false], "{condition}");
        let End::Refused { why } = &walk.paths[0].end else {
            panic!("{walk:?}")
        };
        assert_eq!(*why, format!("the end of tier one {DENIES}"));
    }
    for condition in open {
        assert_eq!(
            arriving(&walked_where(condition)),
            [true, false],
            "{condition}"
        );
    }
}

#[test]
fn a_rule_without_instructions_asks_nothing() {
    // Of the other family: its words stand before what follows it.
    let words = "{\"comments\":[\"Start of rule action:\\\"allow\\\"\",\"Rule MatchID: 1\",\"End of rule abc\",\"End of policy one.web\",\"End of tier one\"],\"annotation\":\"goto deny\"}";
    let program = program(
        "tc egress",
        "allowed_by_host_policy",
        &["Start of tier one", "Start of policy one.web"],
    );
    let program = program.replace("],\"error\"", &format!(",{words}],\"error\""));
    let texts = [ROUTES, FELIX_ROUTES, MAP, &program];
    assert_eq!(
        decided(&texts, &to_pod("10.20.1.3", 80)),
        format!("the end of tier one {DENIES}")
    );
}

#[test]
fn policies_of_host_endpoints_and_untracked_ones_are_not_passed_over() {
    let words = [
        "Start of tier one",
        "Start of policy one.web",
        "Start of rule action:\"allow\"",
        "Rule MatchID: 1",
        "End of rule abc",
    ];
    let host = program("tc egress", "to_or_from_host", &words);
    let without_rules = program(
        "tc egress",
        "to_or_from_host\",\"allowed_by_host_policy",
        &["Load packet metadata"],
    );
    let untracked =
        program("xdp", "to_or_from_host", &words).replace("\"cali2733c3e547f\"", "\"eth0\"");
    for (program, what) in [
        (&host, "a host endpoint's"),
        (&without_rules, "a host endpoint's"),
        (&untracked, "untracked"),
    ] {
        let texts = [ROUTES, FELIX_ROUTES, MAP, program];
        let walk = walked(&texts, &to_pod("10.20.1.3", 80));
        asks(&walk, what);
        assert!(
            arriving(&walk).contains(&true) && arriving(&walk).contains(&false),
            "{walk:?}"
        );
    }
    // Of what the node itself sends, too.
    let of_eth0 = host.replace("\"cali2733c3e547f\"", "\"eth0\"");
    let walk = walked(
        &[ROUTES, FELIX_ROUTES, MAP, &of_eth0],
        &tcp("10.0.1.2:40000", "10.20.1.3:81"),
    );
    asks(&walk, "a host endpoint's");
    // What is open where it comes in hides nothing of where it leaves.
    let receives = of_eth0.replace("tc egress", "tc ingress");
    let both = [&ALL[..], &[&receives]].concat();
    let walk = walked(&both, &to_pod("10.20.1.4", 80));
    assert_eq!(arriving(&walk), [false, false], "{walk:?}");
}

#[test]
fn a_protocol_is_the_one_whose_number_the_program_compares() {
    let arrives = |words: &str, asked: &str| {
        let program = only_rule(words, &[asked]);
        arriving(&walked(
            &[ROUTES, FELIX_ROUTES, MAP, &program],
            &to_pod("10.20.1.3", 80),
        ))
    };
    let is = "If protocol != , skip to next rule";
    let is_not = "If protocol == udp, skip to next rule";
    assert_eq!(
        arrives(
            "Start of rule one.web action:\"allow\" protocol:{number:6}",
            is
        ),
        [true]
    );
    assert_eq!(
        arrives(
            "Start of rule one.web action:\"allow\" protocol:{number:17}",
            is
        ),
        [false]
    );
    assert_eq!(
        arrives(
            "Start of rule one.web action:\"allow\" not_protocol:{number:6}",
            is_not
        ),
        [false]
    );
    assert_eq!(
        arrives("Start of rule one.web action:\"allow\"", is),
        [true, false]
    );
    // As v3.28 prints it.
    assert_eq!(
        arrives(
            "Start of rule action:\"allow\" protocol:<number:6 > rule_id:\"a\" ",
            is
        ),
        [true]
    );
    // Felix knows no number of that name.
    assert_eq!(
        arrives(
            "Start of rule action:\"allow\"",
            "If protocol == ipv6-icmp, skip to next rule"
        ),
        [true]
    );
}

#[test]
fn ports_by_name_are_those_of_the_set_that_felix_numbers_by_that_name() {
    let named = "If dest port is not within any of the named ports {s:_F01rT5vCU1pI9A62sl06N2a7d0-KWrlEPvTJQ}, skip to next rule";
    let of = |elements: &str| {
        let sets = format!("IP set 0xcfb03d1c7ffe2ba0\n{elements}\n");
        arriving(&walked_with(named, &sets))
    };
    assert_eq!(of("   10.20.2.2:80 (proto 6)"), [true]);
    assert_eq!(of("   10.20.2.2:80 (proto 17)"), [false]);
    assert_eq!(of("   10.20.2.2:81 (proto 6)"), [false]);
}

#[test]
fn the_end_of_a_tier_does_what_its_words_or_its_instructions_say() {
    let ends = |last: &str, goes: &str| {
        let words = ["Start of tier one", last];
        let program =
            program("tc egress", "allowed_by_host_policy", &words).replace("goto deny", goes);
        let walk = walked(
            &[ROUTES, FELIX_ROUTES, MAP, &program],
            &to_pod("10.20.1.3", 80),
        );
        walk.paths[0].end.to_string()
    };
    let tier = "the end of tier one denies it";
    assert!(ends("End of tier one: deny", "").contains(tier));
    // Up to v3.29.
    assert!(ends("End of tier one", "goto deny").contains(tier));
    let no_profile = "the lack of any policy and profile";
    assert!(ends("End of tier one: pass", "").contains(no_profile));
    assert!(ends("End of tier one", "goto end_of_tier_0").contains(no_profile));
    assert!(ends("End of tier one", "goto nowhere").contains("nowhere"));
}

#[test]
fn a_rule_in_two_programs_may_be_one_of_the_other_family() {
    let program = only_rule(
        "Start of rule action:\"allow\"",
        &["##### Start of program 1 #####"],
    );
    let walk = walked(
        &[ROUTES, FELIX_ROUTES, MAP, &program],
        &to_pod("10.20.1.3", 80),
    );
    assert_eq!(arriving(&walk), [true, false], "{walk:?}");
}
