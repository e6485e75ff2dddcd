//! What a connection's addresses, ports and identifiers become, beside other connections.

use chainbreak_netfilter::{
    conntrack::Flow,
    walk::{End, Protocol, Tracking, walk},
};

use crate::{
    POD, Packet, Ruleset, State, Walk, chains, conntrack::tracked, node, only, routed, tcp, udp,
};

/// An echo (8) or the answer to one (0).
fn icmp(from: &str, to: &str, kind: u8, id: u16) -> Packet {
    let end = |address: &str, port: u16| format!("{address}:{port}").parse().unwrap();
    let mut packet = Packet::new(Protocol::ICMP, end(from, id), end(to, 0));
    packet.icmp = kind;
    packet
}

fn knowing(mut state: State, entries: &[&str]) -> State {
    for entry in entries {
        state.add_flow(Flow::parse(entry).unwrap());
    }
    state
}

#[test]
fn an_answer_to_an_echo_is_of_the_entry_with_its_identifier() {
    let entries = [
        "icmp 1 29 src=10.20.1.2 dst=10.96.0.1 type=8 code=0 id=7 [UNREPLIED] \
         src=10.0.1.1 dst=203.0.113.77 type=0 code=0 id=4000 mark=0 use=1",
        "icmp 1 29 src=10.20.1.3 dst=10.96.0.2 type=8 code=0 id=7 [UNREPLIED] \
         src=10.0.1.1 dst=203.0.113.77 type=0 code=0 id=7 mark=0 use=1",
    ];
    let state = knowing(routed(), &entries);
    for (id, ends) in [
        (4000, "icmp 10.96.0.1 → 10.20.1.2"),
        (7, "icmp 10.96.0.2 → 10.20.1.3"),
    ] {
        let walk = walk(&state, &icmp("10.0.1.1", "203.0.113.77", 0, id));
        let packet = &only(&walk).packet;
        assert_eq!((packet.to_string().as_str(), packet.sport), (ends, 7));
    }
}

#[test]
fn an_echo_the_other_way_is_no_answer() {
    let entry = "icmp 1 29 src=10.20.1.2 dst=10.20.2.5 type=8 code=0 id=7 [UNREPLIED] \
                 src=10.20.2.5 dst=10.20.1.2 type=0 code=0 id=7 mark=0 use=1";
    let state = knowing(routed(), &[entry]);
    let back = |kind| {
        let walk = walk(&state, &icmp("10.20.2.5", "10.20.1.2", kind, 7).by("eth0"));
        tracked(&walk).0
    };
    assert_eq!((back(0), back(8)), (Tracking::Established, Tracking::New));
}

#[test]
fn an_echo_whose_identifier_is_another_ones_gets_the_first_one_that_is_free() {
    let entries = [7, 0].map(|id| {
        format!(
            "icmp 1 29 src=10.20.1.2 dst=10.96.0.{id} type=8 code=0 id={id} [UNREPLIED] \
             src=10.20.2.5 dst=10.20.1.2 type=0 code=0 id={id} mark=0 use=1"
        )
    });
    let state = knowing(routed(), &[&entries[0], &entries[1]]);
    for (own, becomes) in [(7, 1), (8, 8)] {
        let walk = walk(&state, &icmp("10.20.1.2", "10.20.2.5", 8, own).by(POD));
        let path = only(&walk);
        assert_eq!(
            (path.packet.sport, tracked(&walk).0),
            (becomes, Tracking::New)
        );
    }
}

#[test]
fn an_identifier_that_was_drawn_is_a_change_of_the_source_and_a_first_free_one_of_the_destination()
{
    let save =
        "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m conntrack --ctstate DNAT -j DROP\nCOMMIT\n";
    for (id, end) in [(35184, "Sent"), (0, "Dropped")] {
        let entry = format!(
            "icmp 1 29 src=10.0.1.1 dst=10.20.2.5 type=8 code=0 id=7 [UNREPLIED] \
             src=10.20.2.5 dst=10.0.1.1 type=0 code=0 id={id} mark=0 use=1"
        );
        let state = knowing(node(save), &[&entry]);
        let walk = walk(&state, &icmp("10.0.1.1", "10.20.2.5", 8, 7));
        let path = only(&walk);
        assert!(
            format!("{:?}", path.end).starts_with(end),
            "{id}: {:?}",
            path.end
        );
        assert_eq!(path.packet.sport, id);
    }
}

/// World 3137 of the kernel's: 36 was drawn.
#[test]
fn of_a_low_identifier_below_which_others_are_free_it_is_not_known_with_which_end_it_changed() {
    let save =
        "*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m conntrack --ctstate DNAT -j DROP\nCOMMIT\n";
    let entry = |own: u16, id: u16| {
        format!(
            "icmp 1 29 src=10.0.1.1 dst=10.20.2.5 type=8 code=0 id={own} [UNREPLIED] \
             src=10.20.2.5 dst=10.0.1.1 type=0 code=0 id={id} mark=0 use=1"
        )
    };
    let decided = |entries: &[String]| {
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        let state = knowing(node(save), &entries);
        walk(&state, &icmp("10.0.1.1", "10.20.2.5", 8, 7)).decided()
    };
    assert!(!decided(&[entry(7, 2)]));
    assert!(!decided(&[entry(7, 2), entry(0, 0)]));
    assert!(decided(&[entry(7, 2), entry(0, 0), entry(1, 1)]));
    // Another address is no matter of identifiers, and neither is one that was not changed.
    let translated = "icmp 1 29 src=10.0.1.1 dst=10.20.2.5 type=8 code=0 id=7 [UNREPLIED] \
                      src=10.20.2.6 dst=10.0.1.1 type=0 code=0 id=7 mark=0 use=1";
    assert!(decided(&[translated.to_owned()]));
    assert!(decided(&[
        translated.replace("type=0 code=0 id=7", "type=0 code=0 id=2")
    ]));
}

const MASQUERADE: &str =
    "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth0 -j MASQUERADE\nCOMMIT\n";

#[test]
fn a_source_that_was_translated_before_gets_the_same_port_again() {
    let entry = "udp 17 29 src=10.20.1.2 dst=8.8.8.8 sport=5000 dport=53 [UNREPLIED] \
                 src=8.8.8.8 dst=10.0.1.1 sport=53 dport=61234 mark=0 use=1";
    let state = knowing(node(MASQUERADE), &[entry]);
    for (own, becomes) in [(5000, 61234), (5001, 5001)] {
        let walk = walk(
            &state,
            &udp(&format!("10.20.1.2:{own}"), "8.8.4.4:53").by(POD),
        );
        let from = &only(&walk).packet;
        assert_eq!(
            (from.src.to_string().as_str(), from.sport),
            ("10.0.1.1", becomes)
        );
    }
}

#[test]
fn a_connection_that_begins_anew_from_the_other_end_keeps_its_port() {
    let entry = "tcp 6 100 TIME_WAIT src=10.20.1.2 dst=10.20.2.5 sport=5000 dport=53 \
                 src=10.20.2.5 dst=10.20.1.2 sport=53 dport=5000 [ASSURED] mark=0 use=1";
    let state = knowing(routed(), &[entry]);
    let walk = walk(&state, &tcp("10.20.2.5:53", "10.20.1.2:5000").by("eth0"));
    assert_eq!(tracked(&walk).0, Tracking::New);
    assert_eq!(only(&walk).packet.sport, 53);
}

#[test]
fn what_a_rule_of_output_routes_again_keeps_its_output_interface_up_to_the_end_of_the_hook() {
    let save = "*nat\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A OUTPUT -d 10.20.2.5 -j DNAT --to-destination 10.20.1.2\n\
                -A POSTROUTING -o cali+ -j FOR-PODS\n:FOR-PODS - [0:0]\n-A FOR-PODS -j RETURN\nCOMMIT\n\
                *filter\n:OUTPUT ACCEPT [0:0]\n:TO-PODS - [0:0]\n:OUT - [0:0]\n-A OUTPUT -o cali+ -j TO-PODS\n-A OUTPUT -o eth0 -j OUT\n\
                -A TO-PODS -j DROP\n-A OUT -j RETURN\nCOMMIT\n";
    let walk = walk(&node(save), &udp("10.0.1.1:5000", "10.20.2.5:53"));
    let path = only(&walk);
    assert!(matches!(&path.end, End::Sent { interface: Some(it), .. } if it == POD));
    assert_eq!(
        chains(path),
        ["OUTPUT", "OUTPUT", "OUT", "POSTROUTING", "FOR-PODS"]
    );
}

/// Two tables at one hook and priority lead to one of these each.
fn twice(one: &str, other: &str) -> Walk {
    let save = |to: &str| {
        format!(
            "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.1.0/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination {to}\nCOMMIT\n"
        )
    };
    let mut state = node(&save(one));
    state.add_save(&Ruleset::parse(&save(other)).unwrap());
    let packet = tcp("10.20.1.2:40000", "10.96.1.0:80").by(POD);
    assert!(walk(&state, &packet).decided(), "as they were added");
    state.set_unordered();
    walk(&state, &packet)
}

#[test]
fn of_two_nat_tables_at_one_priority_no_listing_tells_which_leads() {
    let walk = twice("10.20.1.3:80", "10.20.1.5:80");
    assert!(!walk.decided());
    let to: Vec<String> = walk
        .paths
        .iter()
        .map(|it| it.packet.dst.to_string())
        .collect();
    assert_eq!(to, ["10.20.1.3", "10.20.1.5"]);
    let (question, _) = walk.paths[0].assumes().next().unwrap();
    assert!(question.contains("the two tables nat"), "{question}");
}

#[test]
fn where_both_lead_to_the_same_it_does_not_matter_which_is_asked_first() {
    assert!(twice("10.20.1.3:80", "10.20.1.3:80").decided());
}
