//! Which cells a matrix has, from the scenario and from the command line.

use chainbreak_model::{
    list,
    matrix::MatrixKey,
    names::AgentName,
    plan::{Choice, Exclude, merged},
};

use crate::planned::{SCENARIO, cases, choice, real, scenario, skips};

#[test]
fn cells_that_run_the_same_are_one_case() {
    let scenario = scenario(SCENARIO);
    let matrix = ["kube-proxy=1.28,1.30,1.32", "calico=v3.28.1,v3.32.1"];
    let mut choice = choice(&["kube-proxy=kp"], &matrix);
    choice.variants = vec!["partial".into(), "alone".into()];
    let alone = |calico: &str| (format!("s/alone[calico={calico}]"), 3);
    assert_eq!(
        merged(&scenario, &choice),
        [alone("v3.28.1"), alone("v3.32.1")]
    );
    assert_eq!(list(&scenario, &choice).len(), 3 * 2 + 2);
    let real = (AgentName::KubeProxy, real("/here/kp"));
    choice.versions.insert(real, "1.31.0".to_owned());
    assert_eq!(
        list(&scenario, &choice),
        [
            "s/partial[kube-proxy=1.31.0,calico=v3.28.1]",
            "s/partial[kube-proxy=1.31.0,calico=v3.32.1]",
            "s/alone[calico=v3.28.1]",
            "s/alone[calico=v3.32.1]"
        ]
    );
}

#[test]
fn kubernetes_version_is_kube_proxys_and_without_it_that_of_real_clusters_alone() {
    let text = SCENARIO.replace("timeline:", "matrix: { kube-proxy: [1.29] }\ntimeline:");
    let scenario = scenario(&text);
    let mut choice = choice(&[], &["kubernetes=1.28..1.29"]);
    choice.exclude = vec![Exclude::parse("kubernetes<1.29: it is old").unwrap()];
    choice.variants = vec!["partial".into(), "alone".into()];
    let excluded = "excluded (kubernetes<1.29): it is old".to_owned();
    let old = "s/partial[kubernetes=1.28]".to_owned();
    assert_eq!(skips(&scenario, &choice), [(old, excluded.clone())]);
    let run = cases(&scenario, &choice);
    let versions = run
        .iter()
        .map(|case| (case.id(), case.cluster.kubernetes_version()));
    assert_eq!(
        versions.collect::<Vec<_>>(),
        [
            ("s/partial[kubernetes=1.29]".to_owned(), Some("1.29")),
            // In the lab there is nothing of Kubernetes' version but kube-proxy.
            ("s/alone".to_owned(), None),
        ]
    );
    choice.real_clusters = true;
    choice.variants = vec!["alone".into()];
    let missing = "kubernetes-1.29: the backend lab does not have it".to_owned();
    let skipped = skips(&scenario, &choice);
    assert_eq!(skipped[0].0, "s/alone[kubernetes=1.28]");
    assert!(skipped[0].1.starts_with(&excluded), "{skipped:?}");
    assert_eq!(skipped[1], ("s/alone[kubernetes=1.29]".to_owned(), missing));
}

#[test]
fn kubernetes_and_kube_proxy_are_not_varied_side_by_side() {
    let both = [
        MatrixKey::KubeProxy,
        MatrixKey::Iptables,
        MatrixKey::Kubernetes,
    ];
    assert!(MatrixKey::twice(&both).unwrap().contains("not both"));
    assert_eq!(MatrixKey::twice(&both[..2]), None);
}

#[test]
fn a_dataplane_is_felixs_unless_the_case_says_its_own() {
    let text = SCENARIO.replace(
        "  alone:",
        "  bpf: { felix: { bpfEnabled: true }, expect: healthy }\n  alone:",
    );
    let scenario = scenario(&text);
    let mut choice = choice(&[], &["dataplane=iptables,bpf"]);
    choice.variants = vec!["partial".into(), "bpf".into()];
    let run = cases(&scenario, &choice);
    let felix = run
        .iter()
        .map(|case| (case.id(), case.cluster.felix["bpfEnabled"].as_bool()));
    assert_eq!(
        felix.collect::<Vec<_>>(),
        [
            ("s/partial[dataplane=iptables]".to_owned(), Some(false)),
            ("s/partial[dataplane=bpf]".to_owned(), Some(true)),
            ("s/bpf[dataplane=bpf]".to_owned(), Some(true)),
        ]
    );
    let why = "says itself that Felix begins with bpf".to_owned();
    let other = "s/bpf[dataplane=iptables]".to_owned();
    assert_eq!(skips(&scenario, &choice), [(other, why)]);
}

#[test]
fn a_matrix_key_of_a_command_line_has_values_and_each_once() {
    for (text, why) in [
        ("kube-proxy=1.30,1.30", "\"1.30\" is given twice"),
        ("kube-proxy", "gives no values"),
        (
            "kubeproxy=1.30",
            "it can vary mode, iptables, ip-family, kube-proxy, calico, kubernetes, dataplane",
        ),
        ("calico=3.28", "is no version of Calico"),
        ("kubernetes=1.9", "is no version of Kubernetes"),
        ("dataplane=ebpf", "dataplane is iptables or bpf"),
    ] {
        let said = MatrixKey::parse_values(text).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_mode_is_varied_and_leaves_iptables_to_felix_alone() {
    let text = SCENARIO.replace(
        "timeline:",
        "matrix: { iptables: [legacy, nft] }\ntimeline:",
    );
    let ids = |agents: &str, matrix: &[&str]| {
        let text = text.replace("  calico: { version: v3.28.1 }\n", agents);
        let text = text.replace(", calico: '<v3.30'", "");
        let text = text.replace("  alone: { kube-proxy: none, expect: healthy }\n", "");
        let choice = Choice {
            variants: vec!["partial".into()],
            ..choice(&[], matrix)
        };
        list(&scenario(&text), &choice)
    };
    let modes = ["mode=iptables,nftables"];
    assert_eq!(
        ids("", &modes),
        [
            "s/partial[iptables=legacy,mode=iptables]",
            "s/partial[mode=nftables]",
            "s/partial[iptables=nft,mode=iptables]",
        ]
    );
    let felix = "  calico: { version: v3.28.1 }\n";
    assert_eq!(ids(felix, &modes).len(), 4);
}
