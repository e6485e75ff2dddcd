//! The incident, by the program that had it.

use crate::{
    ground::{exits, text, validates},
    stage::{Stage, User, kube_proxy, sha256},
};

/// Cases that have to be among those that ran: an outage, and its cure.
const RAN: [&str; 4] = [
    "calico-bpf-cleanup-fights-kube-proxy/api-moves-before-partial-syncs[iptables=legacy]",
    "calico-bpf-cleanup-fights-kube-proxy/api-moves-before-partial-syncs[iptables=nft]",
    "calico-bpf-cleanup-fights-kube-proxy/cleanup-disabled[iptables=legacy]",
    "silent-outage-without-an-error-line/quiet-cluster[iptables=legacy]",
];

/// What the real one was held to its model with. Others are about releases or moments that it has not.
const SCENARIOS: [&str; 3] = [
    "kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml",
    "kube-proxy/silent-outage-without-an-error-line.yaml",
    "kube-proxy/requests-go-to-pods-that-are-gone.yaml",
];

#[test]
#[ignore = "needs a real kube-proxy: make test-real"]
fn the_scenarios_come_out_as_expected_with_the_real_kube_proxy() {
    scenarios_come_out_for(User::Myself);
}

#[test]
#[ignore = "needs a real kube-proxy: make test-real"]
fn the_scenarios_come_out_as_expected_with_it_for_an_ordinary_user() {
    scenarios_come_out_for(User::Ordinary);
}

/// Every case names who played, its reports too, has commands of it on each node, and misses nothing
/// in the API.
fn scenarios_come_out_for(user: User) {
    let stage = Stage::new(user);
    let (output, given) = stage.run_with(&kube_proxy(), &SCENARIOS);
    exits(&output, 0);
    let who = format!(
        "v1.20.2 (real: {}, sha256 {})",
        given.display(),
        sha256(&given)
    );
    let mut cases = stage.cases();
    // Nobody plays kube-proxy there.
    cases.retain(|case, _| !case.contains("/kube-proxy-removed["));
    for ran in RAN {
        assert!(cases.contains_key(ran), "{ran} ran: {:?}", cases.keys());
    }
    for (case, seen) in &cases {
        assert_eq!(seen.fact("kube-proxy"), Some(who.as_str()), "{case}");
        let nodes = seen.nodes();
        let two = case.starts_with("calico-bpf-cleanup-fights-kube-proxy/");
        assert_eq!(nodes.len(), if two { 2 } else { 1 }, "{case}: {nodes:?}");
        for node in &nodes {
            let restores = seen.commands(node);
            let restores = restores.iter().filter(|argv| argv.contains("-restore "));
            assert!(restores.count() > 0, "{case}: kube-proxy writes on {node}");
        }
        assert_eq!(seen.unknown_requests(), [].into(), "{case}");
    }
    let told = text(&output.stdout);
    let culprit = "jump OUTPUT → KUBE-SERVICES deleted by felix (iptables-legacy-restore)";
    assert!(told.contains(culprit), "{told}");
    let junit = stage.ground.newest("junit.xml");
    validates(&junit);
    let junit = std::fs::read_to_string(junit).unwrap();
    let property = format!("<property name=\"kube-proxy\" value=\"{who}");
    let named = junit.matches(&property).count();
    assert!(named >= cases.len(), "{named} of {}", cases.len());
}
