//! Kubernetes of a cluster's nodes upgraded by kubeadm, one node after the other, under traffic.

use crate::{
    exits, ground,
    ground::{text, validates},
};

/// From the node image before the newest: `CHAINBREAK_KIND_IMAGE_BEFORE`.
#[test]
#[ignore = "needs Docker, kind and node images of two versions: make test-kind-upgrade"]
fn nodes_are_upgraded_and_drained_one_after_the_other_and_each_step_is_judged() {
    let before = std::env::var("CHAINBREAK_KIND_IMAGE_BEFORE");
    let before = before.expect("`make test-kind-upgrade` names the image");
    let (_, version) = before.rsplit_once(":v").expect("its tag is a version");
    let ground = ground();
    ground.write("upgrade.yaml", include_str!("../upgrade.yaml"));
    ground.write("upgrade-pods.yaml", include_str!("../upgrade-pods.yaml"));
    let (matrix, to) = (format!("kube-proxy={version}"), crate::kubernetes());
    let args = [
        "run",
        "upgrade.yaml",
        "--out",
        "out",
        "-v",
        "--backend",
        "kind",
    ];
    let image = ["--kind-image", &before, "--matrix", &matrix];
    let output = crate::command(&ground, &[&args[..], &image].concat()).output();
    let output = output.unwrap();
    exits(&output, 0);
    let history = ground.history();
    let mut rest = history.as_str();
    for words in [
        format!("upgrade Kubernetes on n1 from {version} to {to}"),
        "kubeadm has upgraded n1".to_owned(),
        "kube-proxy's pods are of the new version on every node".to_owned(),
        "n1 is drained: ".to_owned(),
        format!("upgrade Kubernetes on n2 from {version} to {to}"),
        "kubeadm has upgraded n2".to_owned(),
        "n2 is drained: ".to_owned(),
    ] {
        let found = rest.split_once(&words);
        (_, rest) = found.unwrap_or_else(|| panic!("{words}: {history}"));
    }
    let junit = ground.newest("junit.xml");
    validates(&junit);
    let junit = std::fs::read_to_string(junit).unwrap();
    for node in ["n1", "n2"] {
        let suite = format!("during upgrade Kubernetes {version} → 1.34 on {node}\"");
        assert!(junit.contains(&suite), "{suite}: {junit}");
    }
    assert_eq!(crate::standing(), [""; 0], "{}", text(&output.stdout));
}
