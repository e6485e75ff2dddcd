//! What is not known is never passed over.

use chainbreak_netfilter::walk::{End, Walk, walk};

use crate::{Family, POD, Ruleset, State, node, tcp};

fn filter(rules: &str) -> Walk {
    let save = format!("*filter\n:FORWARD ACCEPT [0:0]\n:LATER - [0:0]\n{rules}COMMIT\n");
    walk(
        &node(&save),
        &tcp("10.20.1.2:40000", "10.20.1.3:80").by(POD),
    )
}

#[test]
fn a_match_that_is_not_known_leaves_both_branches_open() {
    let walk = filter(
        "-A FORWARD -p tcp -m hashlimit --hashlimit-upto 5/sec --hashlimit-name x -j DROP\n-A FORWARD -j ACCEPT\n",
    );
    assert!(!walk.decided());
    let ends: Vec<bool> = walk
        .paths
        .iter()
        .map(|path| path.end == End::Dropped)
        .collect();
    assert_eq!(ends, [true, false]);
    for (path, answer) in walk.paths.iter().zip(["it matches", "it does not match"]) {
        let assumed: Vec<_> = path.assumes().collect();
        assert_eq!(assumed.len(), 1);
        assert!(
            assumed[0]
                .0
                .contains("-m hashlimit --hashlimit-upto 5/sec --hashlimit-name x"),
            "{}",
            assumed[0].0
        );
        assert_eq!(assumed[0].1, answer);
    }
}

#[test]
fn a_match_that_is_not_known_matters_only_where_the_rest_of_its_rule_matches() {
    assert!(filter("-A FORWARD -p udp -m owner --uid-owner 0 -j DROP\n").decided());
    assert!(!filter("-A FORWARD -p tcp -m owner --uid-owner 0 -j DROP\n").decided());
}

#[test]
fn a_target_that_is_not_known_leaves_both_branches_open() {
    let walk = filter("-A FORWARD -j NFQUEUE --queue-num 3\n");
    assert_eq!(walk.paths.len(), 2);
    assert!(walk.paths[0].end.arrives());
    let End::Undecided { why } = &walk.paths[1].end else {
        panic!("{:?}", walk.paths[1].end);
    };
    assert!(why.contains("NFQUEUE --queue-num 3"));
}

#[test]
fn a_chain_that_is_not_there_is_a_target_that_is_not_known() {
    let walk = filter("-A FORWARD -j GONE\n");
    assert_eq!(walk.paths.len(), 2);
}

#[test]
fn a_set_is_looked_up_when_its_elements_are_known() {
    let save = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m set --match-set cali40s:x src -j DROP\nCOMMIT\n";
    let mut state = node(save);
    let packet = tcp("10.20.1.2:40000", "10.20.1.3:80").by(POD);
    assert!(!walk(&state, &packet).decided());
    state.add_ipsets("create cali40s:x hash:net family inet\nadd cali40s:x 10.20.1.0/24\n");
    let walk = walk(&state, &packet);
    assert!(walk.decided());
    assert_eq!(walk.paths[0].end, End::Dropped);
}

#[test]
fn without_routes_it_is_not_known_whether_a_packet_is_for_the_node() {
    let save =
        "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n-A FORWARD -o cali+ -j DROP\nCOMMIT\n";
    let mut state = State::new(Family::V4);
    state.add_save(&Ruleset::parse(save).unwrap());
    let walk = walk(&state, &tcp("10.20.1.2:40000", "10.20.1.3:80").by(POD));
    let ends: Vec<&End> = walk.paths.iter().map(|path| &path.end).collect();
    assert_eq!(ends[..2], [&End::Dropped, &End::Dropped]);
    assert!(matches!(
        ends[2],
        End::Sent {
            interface: None,
            ..
        }
    ));
}

#[test]
fn rules_that_go_in_circles_end() {
    let walk = filter("-A FORWARD -j LATER\n-A LATER -g LATER\n");
    assert!(matches!(&walk.paths[0].end, End::Undecided { why } if why.contains("circles")));
}

#[test]
fn more_ways_than_can_be_told_are_said_to_be_more() {
    let rule = "-A FORWARD -m owner --uid-owner 0 -j LOG\n";
    let walk = filter(&rule.repeat(20));
    assert!(walk.more && !walk.decided());
}
