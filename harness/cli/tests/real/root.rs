//! A kube-proxy in an unpacked root file system, as an image has it, with an iptables of its own.

use crate::{
    ground::{exits, text},
    stage::{Stage, User, root},
};

const SILENT: [&str; 5] = [
    "kube-proxy",
    "--variant",
    "quiet-cluster",
    "--matrix",
    "iptables=legacy",
];
const CASE: &str = "silent-outage-without-an-error-line/quiet-cluster[iptables=legacy]";

#[test]
#[ignore = "needs a real kube-proxy: make test-real"]
fn the_incident_comes_out_in_a_root_of_its_own() {
    incident_comes_out_for(User::Myself);
}

#[test]
#[ignore = "needs a real kube-proxy: make test-real"]
fn the_incident_comes_out_in_a_root_of_its_own_for_an_ordinary_user() {
    incident_comes_out_for(User::Ordinary);
}

/// The root's iptables is another version than the machine's, and the one that is used.
fn incident_comes_out_for(user: User) {
    let stage = Stage::new(user);
    let (output, _) = stage.run_with(&root("legacy"), &SILENT);
    exits(&output, 0);
    let cases = stage.cases();
    let seen = &cases[CASE];
    let own = seen.fact("kube-proxy.iptables");
    assert_eq!(own, Some("iptables v1.8.7 (legacy)"));
    assert_ne!(seen.fact("iptables"), own, "the machine has another");
    assert!(seen.commands("n1").len() > 10);
}

/// Felix cleans up with the machine's legacy iptables what kube-proxy never wrote there: the iptables backend in
/// the image decides whether the incident happens. That it does not shows that the root's own ran.
#[test]
#[ignore = "needs a real kube-proxy: make test-real"]
fn the_iptables_backend_in_the_root_decides_where_rules_are() {
    let stage = Stage::new(User::Myself);
    let (output, _) = stage.run_with(&root("nft"), &SILENT);
    exits(&output, 10);
    let told = text(&output.stdout);
    let kept = "node-is-answered kept, though the incident should break it: 100.00 % answered";
    assert!(told.contains(kept), "{told}");
    let own = stage.cases()[CASE]
        .fact("kube-proxy.iptables")
        .map(str::to_owned);
    assert_eq!(own.as_deref(), Some("iptables v1.8.7 (nf_tables)"));
}
