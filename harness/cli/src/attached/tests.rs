use super::*;

/// What is made of these files in a folder.
pub(super) fn held(files: &[(&str, &str)]) -> Attached {
    let mut attached = Attached::default();
    for (file, text) in files {
        let inside = Path::new(file);
        assert!(attached.is_wanted(inside));
        attached.add(inside, inside, false, text.as_bytes().to_vec());
    }
    attached.settle();
    attached
}

#[test]
fn a_file_in_a_nodes_folder_is_that_nodes() {
    let of = |node: &str| Lies::In(node.to_owned());
    for (file, lies) in [
        (
            "diags/nodes/ip-10-0-0-1.ec2.internal/ip-route.txt",
            of("ip-10-0-0-1.ec2.internal"),
        ),
        ("diags/nodes/n1/calico-system/calico-node-x.log", of("n1")),
        (
            "nodes/case-7/diags.tar.gz/diags/nodes/n1/ip-route.txt",
            of("n1"),
        ),
        ("diags/cluster/kubernetes/nodes.yaml", Lies::Anywhere),
        ("diags/nodes/list.txt", Lies::Anywhere),
        ("diags/nodes/\u{1b}[31m/ip-route.txt", Lies::Nowhere),
        ("diags/nodes/../cluster/x.yaml", Lies::Nowhere),
    ] {
        assert_eq!(self::lies(Path::new(file)), lies, "{file}");
    }
}

#[test]
fn a_folder_of_what_pods_say_is_no_nodes() {
    let attached = held(&[
        ("nodes/n1/ip-route.txt", "x"),
        ("nodes/n1/calico-system/a.log", "x"),
        ("nodes/calico-system/calico-typha-x.log", "x"),
        ("nodes/calico-system/calico-typha-x.txt", "x"),
    ]);
    assert_eq!(attached.nodes(), BTreeSet::from(["n1"]));
    let nodes: Vec<Option<&str>> = attached.texts.iter().map(|it| it.node.as_deref()).collect();
    assert_eq!(nodes, [Some("n1"), Some("n1"), None, None]);
}

#[test]
fn of_maps_three_are_read_to_walk_and_of_nodes_the_one_that_is_asked_for() {
    let mut attached = Attached {
        reads: &WALKED,
        asked: Some("n1".to_owned()),
        ..Attached::default()
    };
    let mut is_wanted = |file: &str| attached.is_wanted(Path::new(file));
    for file in [
        "nodes/n1/bpf-nat.txt",
        "nodes/n1/bpf-conntrack.json",
        "nodes/n1/bpf-routes.json",
        "nodes/n1/ip-route.txt",
        "cluster/services.yaml",
        "bpf-conntrack.txt",
    ] {
        assert!(is_wanted(file), "{file}");
    }
    for file in [
        "nodes/n1/bpf-conntrack-stats.json",
        "nodes/n1/bpf-maps/cali_v4_ct-id_7.txt",
        "nodes/n2/ip-route.txt",
    ] {
        assert!(!is_wanted(file), "{file}");
    }
    assert_eq!((attached.maps, attached.nodes().len()), (2, 2));
}

#[test]
fn what_a_sosreport_has_of_other_network_namespaces_is_left_out() {
    let mut attached = Attached::default();
    let mut is_wanted = |file: &str| {
        let folder = Path::new("sosreport-n1/sos_commands");
        attached.is_wanted(&folder.join(file))
    };
    assert!(is_wanted("firewall_tables/iptables_-t_nat_-nvL"));
    assert!(is_wanted("networking/ip_route_show_table_all"));
    assert!(!is_wanted(
        "networking/namespaces/cni-1/ip_netns_exec_cni-1_iptables-save"
    ));
    assert!(!is_wanted(
        "networking/ip_netns_exec_cni-1_ip_route_show_table_all"
    ));
    assert_eq!(attached.elsewhere, 2);
}
