//! kube-proxy and Felix in iptables mode.

use chainbreak_netfilter::{
    Owner,
    walk::{Effect, End, walk},
};

use crate::{FELIX, POD, chains, ends, node, only, site, tcp, udp};

fn without(save: &str, part: &str) -> String {
    let lines = save.split_inclusive('\n');
    lines.filter(|line| !line.contains(part)).collect()
}

#[test]
fn a_service_leads_a_pods_connection_to_each_endpoint_by_its_share() {
    let walk = walk(
        &node(FELIX),
        &tcp("10.20.1.2:40000", "10.96.1.0:80").by(POD),
    );
    let expected = [
        r#"0.50 Sent { interface: Some("cali6fa97c49190"), via: None } tcp 10.20.1.2:40000 → 10.20.1.3:80 SYN"#,
        r#"0.50 Sent { interface: Some("cali37033675791"), via: None } tcp 10.20.1.2:40000 → 10.20.1.5:80 SYN"#,
    ];
    assert_eq!(ends(&walk), expected);
    let path = &walk.paths[0];
    assert!(walk.decided() && path.decided().is_none());
    for chain in [
        "KUBE-SERVICES",
        "KUBE-SVC-5JBHKBGPD2A2QXBH",
        "KUBE-SEP-DCSRILBWBZ2DEJVC",
        "cali-tw-cali6fa97c49190",
    ] {
        assert!(chains(path).contains(&chain), "{chain}");
    }
    let flow = path.flow.as_ref().unwrap();
    assert_eq!(flow.backend(), ("10.20.1.3".parse().unwrap(), Some(80)));
}

#[test]
fn what_a_service_does_for_a_source_outside_of_the_cluster_is_masqueraded() {
    let walk = walk(
        &node(FELIX),
        &tcp("192.0.2.9:40000", "10.96.1.0:80").by("eth0"),
    );
    assert_eq!(walk.paths.len(), 2);
    for path in &walk.paths {
        // The port is drawn (`--random-fully`); the address is what reaches the pod, of the only interface that has one.
        assert_eq!(
            (path.packet.src.to_string().as_str(), path.packet.sport),
            ("10.0.1.1", 0)
        );
        assert_eq!(path.packet.mark & 0x4000, 0, "the mark is taken off again");
        assert!(chains(path).contains(&"KUBE-MARK-MASQ"));
    }
}

#[test]
fn without_the_jump_a_service_is_no_address_at_all() {
    let save = without(
        FELIX,
        "-A PREROUTING -m comment --comment \"kubernetes service portals\"",
    );
    let walk = walk(
        &node(&save),
        &tcp("10.20.1.2:40000", "10.96.1.0:80").by(POD),
    );
    let path = only(&walk);
    assert!(matches!(&path.end, End::Sent { interface: Some(it), .. } if it == "eth0"));
    assert_eq!(path.packet.dst.to_string(), "10.96.1.0");
    assert!(!chains(path).iter().any(|it| it.starts_with("KUBE-SVC-")));
}

#[test]
fn an_emptied_service_chain_is_entered_and_leads_back() {
    let save = without(FELIX, "-A KUBE-SVC-5JBHKBGPD2A2QXBH");
    let walk = walk(
        &node(&save),
        &tcp("10.20.1.2:40000", "10.96.1.0:80").by(POD),
    );
    let path = only(&walk);
    assert_eq!(path.packet.dst.to_string(), "10.96.1.0");
    let jump = path
        .rules()
        .find(|(site, ..)| site.chain == "KUBE-SERVICES")
        .unwrap();
    assert_eq!(
        jump.2,
        &Effect::Jump("KUBE-SVC-5JBHKBGPD2A2QXBH".to_owned())
    );
}

#[test]
fn a_service_without_endpoints_is_rejected_by_the_rule_that_says_so() {
    let reject = "[0:0] -A KUBE-SERVICES -d 10.96.1.9/32 -p tcp -m comment --comment \"test/web has no endpoints\" \
                  -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable\n[0:0] -A cali-FORWARD -m comment --comment \"cali:vjr";
    let save = FELIX.replacen(
        "[4268:353311] -A cali-FORWARD -m comment --comment \"cali:vjr",
        reject,
        1,
    );
    let walk = walk(
        &node(&save),
        &tcp("10.20.1.2:40000", "10.96.1.9:80").by(POD),
    );
    let path = only(&walk);
    assert!(matches!(&path.end, End::Rejected { with } if with == "icmp-port-unreachable"));
    assert_eq!(site(path.decided()), ("filter", "KUBE-SERVICES", 1));
    assert_eq!(path.decided().unwrap().owner(), Some(Owner::KubeProxy));
}

#[test]
fn a_workload_that_sends_from_anothers_address_is_stopped_by_felix() {
    let walk = walk(
        &node(FELIX),
        &tcp("10.20.1.3:40000", "10.20.1.5:80").by(POD),
    );
    let path = only(&walk);
    assert_eq!(path.end, End::Dropped);
    assert_eq!(site(path.decided()), ("raw", "cali-PREROUTING", 4));
    assert_eq!(path.decided().unwrap().owner(), Some(Owner::Felix));
}

#[test]
fn a_workload_that_felix_does_not_know_gets_nothing_out() {
    let mut state = crate::State::new(crate::Family::V4);
    let routes = format!(
        "{}10.20.1.7 dev cali77777777777 scope link\n",
        crate::ROUTES
    );
    state.set_routing(crate::Routing::read(crate::Family::V4, "", &routes, ""));
    state.add_save(&crate::Ruleset::parse(FELIX).unwrap());
    let walk = walk(
        &state,
        &udp("10.20.1.7:40000", "10.20.1.5:53").by("cali77777777777"),
    );
    let path = only(&walk);
    assert_eq!(site(path.decided()), ("filter", "cali-from-wl-dispatch", 4));
}

#[test]
fn what_the_node_sends_to_a_service_is_routed_again_and_masqueraded_on_its_way() {
    let walk = walk(&node(FELIX), &tcp("10.0.1.1:40000", "10.96.1.0:80"));
    assert_eq!(walk.paths.len(), 2);
    for path in &walk.paths {
        let End::Sent { interface, .. } = &path.end else {
            panic!("{:?}", path.end);
        };
        assert!(interface.as_ref().unwrap().starts_with("cali"));
        assert_eq!(path.packet.src.to_string(), "10.0.1.1");
    }
}
