//! `diagnose` and `explain --dump` of what `calicoctl cluster diags` makes (v3.31 and later): a folder for each node, and what the API holds.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::ground::{Ground, exits, text};

/// What the API holds: its own endpoint, and that of a Service.
fn objects() -> Value {
    let of = |namespace: &str, name: &str, ip: &str, endpoint: &str| {
        let labels = json!({ "kubernetes.io/service-name": name });
        [
            json!({
                "kind": "Service", "metadata": { "namespace": namespace, "name": name },
                "spec": { "clusterIP": ip, "ports": [{ "port": 80 }] }
            }),
            json!({
                "kind": "EndpointSlice", "metadata": { "namespace": namespace, "labels": labels },
                "ports": [{ "port": 80 }], "endpoints": [{ "addresses": [endpoint] }]
            }),
        ]
    };
    let items = [
        of("default", "kubernetes", "10.96.0.1", "10.0.0.9"),
        of("test", "web", "10.96.1.0", "10.20.1.2"),
    ];
    let images = ["registry.k8s.io/kube-proxy:v1.33.4", "calico/node:v3.32.1"];
    let images = images.map(|image| json!({ "image": image }));
    let pod = json!({ "kind": "Pod", "spec": { "containers": images } });
    let items = [items.concat(), vec![pod]].concat();
    json!({ "kind": "List", "items": items })
}

/// A bundle of two nodes in eBPF mode. The programs on n2 lead to where nobody is any more.
fn bundle(ground: &Ground) {
    let nodes = ground.path().join("diags/nodes");
    for folder in [
        "n1/calico-system",
        "n1/bpf-maps",
        "n2",
        "calico-system",
        "../links",
        "../cluster",
    ] {
        fs::create_dir_all(nodes.join(folder)).unwrap();
    }
    let map = |api: &str, web: &str| {
        format!(
            "10.96.0.1 port 80 proto 6 id 1 count 1 local 0\r\n\t1:0\t {api}:80\r\n10.96.1.0 port 80 proto 6 id 2 count 1 local 0\r\n\t2:0\t {web}:80\r\n"
        )
    };
    ground.write("diags/cluster/objects.json", objects().to_string());
    let frontend = |ip: &str, id: u8| json!({ "addr": ip, "port": 80, "proto": 6, "id": id, "count": 1, "local": 0 });
    let as_json = json!([
        { "frontend": frontend("10.96.0.1", 1), "backends": [{ "addr": "10.0.0.9", "port": 80 }] },
        { "frontend": frontend("10.96.1.0", 2), "backends": [{ "addr": "10.20.1.2", "port": 80 }] },
    ]);
    ground.write("diags/nodes/n1/bpf-nat.json", as_json.to_string());
    // A pod that is on no node.
    for file in ["calico-typha-x.log", "calico-typha-x.txt"] {
        ground.write(&format!("diags/nodes/calico-system/{file}"), "pending\n");
    }
    ground.write("diags/nodes/n2/bpf-nat.txt", map("10.0.0.1", "10.20.1.7"));
    ground.write("diags/nodes/n1/bpf-maps/cali_v4_ct-id_7.txt", [0xff_u8; 9]);
    let log = "2025-06-10 10:00:00.000 [WARNING][53] felix/x.go 7: Once and no more\n";
    ground.write("diags/nodes/n1/calico-system/calico-node-x.log", log);
    let link = nodes.join("../links/calico-node-x.log");
    std::os::unix::fs::symlink("../nodes/n1/calico-system/calico-node-x.log", link).unwrap();
    for (node, gateway) in [("n1", "10.0.0.254"), ("n2", "10.0.0.253")] {
        let file = |name: &str| format!("diags/nodes/{node}/{name}.txt");
        ground.write(
            &file("ip-route"),
            format!("default via {gateway} dev eth0\n10.20.1.2 dev cali1 scope link\n"),
        );
        ground.write(
            &file("ip-neigh"),
            "10.20.1.2 dev eth0  FAILED\n10.0.0.254 dev eth0 lladdr 02:42:ac:12:00:02 STALE\n",
        );
        ground.write(
            &file("ipset-list"),
            "Name: cali40all\nType: hash:net\nMembers:\n10.20.0.0/16\n",
        );
        ground.write(&file("iptables-legacy-save"), "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m set --match-set cali40all dst -j ACCEPT\nCOMMIT\n");
    }
}

#[test]
fn of_a_bundle_of_several_nodes_each_is_diagnosed_with_what_is_of_the_cluster() {
    let ground = Ground::new();
    bundle(&ground);
    let folder = ground.chainbreak(&["diagnose", "diags"]);
    exits(&folder, 0);
    // As it is made, and whatever the folder is called in which it lies.
    fs::create_dir_all(ground.path().join("nodes/case-7")).unwrap();
    let mut tar = Command::new("tar");
    let tar = tar.args(["-czf", "nodes/case-7/diags.tar.gz", "diags"]);
    exits(&tar.current_dir(ground.path()).output().unwrap(), 0);
    let diagnosed = ground.chainbreak(&["diagnose", "nodes/case-7"]);
    exits(&diagnosed, 0);
    let said = text(&diagnosed.stdout);
    assert_eq!(said, text(&folder.stdout));
    let (worst, other) = said
        .split_once("\nNode n1\n")
        .unwrap_or_else(|| panic!("{said}"));
    assert!(
        worst.starts_with("Node n2\n")
            && worst.contains("✗ Felix's NAT map leads to other endpoints"),
        "{said}"
    );
    assert!(
        worst.contains("test/web at 10.96.1.0, port 80: led to 10.20.1.7:80, its EndpointSlices have 10.20.1.2:80")
            && worst.contains("kubernetes-services-endpoint"),
        "{said}"
    );
    assert!(!other.contains('✗') && other.contains("1 × "), "{said}");
    assert!(
        text(&diagnosed.stderr).contains("1 file of eBPF maps, which nothing here reads: left out")
    );
}

#[test]
fn of_a_bundle_one_node_is_diagnosed_and_written_where_it_is_named() {
    let ground = Ground::new();
    bundle(&ground);
    let one = ground.chainbreak(&["diagnose", "diags", "--node", "n2", "--format", "json"]);
    exits(&one, 0);
    let one: Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!(
        (&one["node"], &one["findings"][0]["kind"]),
        (&Value::from("n2"), &Value::from("nat-map-differs"))
    );
    let written = ground.chainbreak(&[
        "diagnose",
        "diags",
        "--node",
        "n2",
        "--write",
        "as-found.yaml",
    ]);
    exits(&written, 0);
    let scenario = fs::read_to_string(ground.path().join("as-found.yaml")).unwrap();
    assert!(
        scenario.contains("- api: move") && scenario.contains("to: service/test/web"),
        "{scenario}"
    );
    let all = ground.chainbreak(&["diagnose", "diags", "--format", "json"]);
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!(all["nodes"][1]["node"], "n2");
    assert_eq!(all["nodes"][1]["findings"], one["findings"]);

    for args in [
        vec!["diagnose", "diags", "--node", "n3"],
        vec!["diagnose", "diags", "--write", "as-found.yaml"],
        vec!["explain", "10.20.1.2", "10.96.1.0:80", "--dump", "diags"],
    ] {
        let refused = ground.chainbreak(&args);
        exits(&refused, 2);
        assert!(
            text(&refused.stderr).contains("n1, n2"),
            "{args:?}: {}",
            text(&refused.stderr)
        );
    }
}

#[test]
fn a_packet_walks_by_the_dumps_of_the_node_that_is_named() {
    let ground = Ground::new();
    bundle(&ground);
    for (node, gateway) in [("n1", "10.0.0.254"), ("n2", "10.0.0.253")] {
        let walked = |to: &str| {
            let args = [
                "explain",
                "10.20.1.3",
                to,
                "--dump",
                "diags",
                "--node",
                node,
                "--in",
                "cali2",
            ];
            let walked = ground.chainbreak(&args);
            exits(&walked, 0);
            text(&walked.stdout)
        };
        let said = walked("192.0.2.1:80");
        assert!(said.contains(gateway), "{said}");
        // A neighbour's line is no route, and the set that was listed has the address.
        let said = walked("10.20.1.2:80");
        assert!(said.contains("cali1") && !said.contains("eth0"), "{said}");
        assert!(said.contains("nat PREROUTING 1: accepted"), "{said}");
    }
}
