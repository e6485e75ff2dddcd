//! Deployments, daemon sets and where their pods go.

use std::collections::BTreeMap;

use serde_json::{from_value, json};

use super::{
    super::pods::{is_terminating, node_name},
    cluster::Cluster,
    endpoints, names, per_node, placed, pod, shop, workload,
};

#[test]
fn scaling_down_takes_the_youngest_and_up_gives_new_names() {
    let mut cluster = shop(2);
    let old = names(&cluster.pods());
    let mut ever = old.clone();
    for _ in 0..10 {
        cluster.deployment("nginx", workload(3, "1.27"));
        cluster.rest();
        let three = names(&cluster.pods());
        assert_eq!(three.len(), 3);
        assert!(three.is_superset(&old));
        let new = three.difference(&ever).count();
        assert_eq!(new, 1, "a name came back");
        ever.extend(three);
        cluster.deployment("nginx", workload(2, "1.27"));
        cluster.rest();
        assert_eq!(names(&cluster.pods()), old);
        assert_eq!(endpoints(&cluster.slices()).len(), 2);
    }
}

#[test]
fn a_new_template_replaces_every_pod_and_never_serves_with_fewer_than_allowed() {
    let mut cluster = shop(4);
    let old = names(&cluster.pods());
    cluster.deployment("nginx", workload(4, "1.28"));
    // A quarter of four is one more and one fewer.
    cluster.rest_while(|cluster| {
        let active = cluster
            .pods()
            .iter()
            .filter(|pod| !is_terminating(pod))
            .count();
        assert!(active <= 5, "{active} pods");
        assert!(cluster.serving() >= 3, "{} serve", cluster.serving());
    });
    let new = names(&cluster.pods());
    assert_eq!(new.len(), 4);
    assert!(new.is_disjoint(&old));
    assert_eq!(cluster.replica_sets().len(), 2);
    let status = cluster.deployment_status("nginx");
    assert_eq!(
        (status.updated_replicas, status.available_replicas),
        (Some(4), Some(4))
    );
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!(cluster.revision("nginx"), "2");
    // And back: the old replica set is used again.
    cluster.deployment("nginx", workload(4, "1.27"));
    cluster.rest();
    assert_eq!(cluster.replica_sets().len(), 2);
    assert_eq!(names(&cluster.pods()).len(), 4);
    assert_eq!(cluster.revision("nginx"), "3");
}

#[test]
fn recreate_starts_nothing_before_everything_old_has_gone() {
    let recreate = |version: &str| {
        let mut spec = workload(3, version);
        spec["strategy"] = json!({ "type": "Recreate" });
        spec
    };
    let mut cluster = Cluster::new(2);
    cluster.deployment("nginx", recreate("1"));
    cluster.rest();
    let old = names(&cluster.pods());
    cluster.deployment("nginx", recreate("2"));
    cluster.rest_while(|cluster| {
        let now = names(&cluster.pods());
        assert!(now.is_subset(&old) || now.is_disjoint(&old), "{now:?}");
    });
    assert_eq!(cluster.pods().len(), 3);
}

#[test]
fn a_daemon_set_has_one_pod_on_every_node_and_follows_new_nodes() {
    let mut cluster = Cluster::new(3);
    cluster.taint("n2");
    cluster.daemon_set("agent", workload(0, "1"));
    cluster.rest();
    let expect = |cluster: &Cluster, nodes: usize| {
        let per_node = per_node(&cluster.pods());
        assert_eq!(per_node.len(), nodes);
        assert!(per_node.values().all(|&pods| pods == 1));
        let status = cluster.daemon_set_status("agent");
        assert_eq!(usize::try_from(status.number_ready).unwrap(), nodes);
        assert_eq!(status.desired_number_scheduled, status.number_ready);
    };
    expect(&cluster, 3);
    cluster.node("n4");
    cluster.rest();
    expect(&cluster, 4);
    let old = names(&cluster.pods());
    cluster.daemon_set("agent", workload(0, "2"));
    cluster.rest_while(|cluster| assert!(cluster.serving() >= 3));
    expect(&cluster, 4);
    assert!(names(&cluster.pods()).is_disjoint(&old));
}

#[test]
fn pods_go_to_the_least_loaded_node_and_keep_clear_of_closed_ones() {
    let mut cluster = Cluster::new(3);
    cluster.taint("n3");
    cluster.pod(placed(pod("client"), "n1"));
    cluster.deployment("nginx", workload(1, "1"));
    cluster.rest();
    assert_eq!(
        per_node(&cluster.pods()),
        BTreeMap::from([("n1".into(), 1), ("n2".into(), 1)])
    );
    let mut picky = pod("picky");
    picky.spec = from_value(json!({
        "containers": [], "nodeSelector": { "kubernetes.io/hostname": "n9" }
    }))
    .unwrap();
    cluster.pod(picky);
    let written = cluster.rest();
    assert_eq!(written, ["Status pod test/picky"]);
    cluster.node("n9");
    cluster.rest();
    assert!(
        cluster
            .pods()
            .iter()
            .any(|pod| node_name(pod) == Some("n9"))
    );
}

#[test]
fn a_deployments_own_replica_sets_are_kept_only_as_far_back_as_asked() {
    let mut cluster = Cluster::new(1);
    for version in 0..6 {
        let mut spec = workload(1, &version.to_string());
        spec["revisionHistoryLimit"] = json!(2);
        cluster.deployment("nginx", spec);
        cluster.rest();
    }
    assert_eq!(cluster.replica_sets().len(), 3);
}
