//! Cells of one IP family, of the other, and of both.

use chainbreak_model::{
    case::{Capabilities, Case, Claim, Expect, IpFamily},
    names::PromiseName,
    plan,
    plan::{Choice, Planned},
};

use crate::planned::{SCENARIO, choice, planned, scenario};

/// A lab whose legacy iptables has both families.
fn of_both_families() -> Capabilities {
    let all = [
        "lab",
        "iptables-legacy",
        "ip6tables-legacy",
        "conntrack",
        "ipset",
    ];
    Capabilities(all.map(|it| (it.to_owned(), Ok(()))).into())
}

#[test]
fn a_family_of_the_matrix_comes_first_or_alone() {
    let families = |cluster: &str| {
        let text = SCENARIO.replace("  nodes: 1\n", cluster);
        let scenario =
            scenario(&text.replace("timeline:", "matrix: { ip-family: [IPv6] }\ntimeline:"));
        let mut choice = choice(&[], &[]);
        choice.variants = vec!["partial".into()];
        let missing = match planned(&scenario, &choice).remove(0) {
            Planned::Run(case) => panic!("{} needs ip6tables", case.id()),
            Planned::Skip(skipped) => skipped.missing,
        };
        assert_eq!(missing[0].capability, "ip6tables-legacy");
        let all = of_both_families();
        match plan(&scenario, &choice, &all).remove(0) {
            Planned::Run(case) => case.cluster.ip_families,
            Planned::Skip(skipped) => panic!("{}", skipped.reason()),
        }
    };
    assert_eq!(families("  nodes: 1\n"), [IpFamily::V6]);
    let both = families("  ip-families: [IPv4, IPv6]\n");
    assert_eq!(both, [IpFamily::V6, IpFamily::V4]);
}

#[test]
fn what_is_said_of_the_default_family_holds_of_the_cells() {
    let text = SCENARIO
        .replace(
            "promises:\n",
            "matrix: { ip-family: [IPv4, IPv6] }\npromises:\n  \
             jump: { has-rule: { table: nat, chain: OUTPUT, jump: KUBE-SERVICES } }\n",
        )
        .replace("[settle: 1s]", "[settle: 1s, flush: { table: nat }]");
    let scenario = scenario(&text);
    let mut choice = choice(&[], &[]);
    choice.variants = vec!["partial".into()];
    let all = of_both_families();
    let told = plan(&scenario, &choice, &all).into_iter().map(|planned| {
        let Planned::Run(case) = planned else {
            panic!("{} runs", planned.id());
        };
        let json = serde_json::to_value(&*case).expect("a case is JSON");
        let json = json.to_string();
        [
            json.matches("\"ip\"").count(),
            json.matches("\"ip6\"").count(),
        ]
    });
    assert_eq!(told.collect::<Vec<_>>(), [[2, 0], [0, 2]]);
}

/// A cluster with one host that answers, and a Service of each policy.
const BOTH: &str = "\
name: both
about: two families
cluster:
  nodes: 1
  kube-proxy: { version: '1.32' }
  hosts: { db: { nginx: 80 } }
manifests:
  - { apiVersion: v1, kind: Service, metadata: { name: one }, spec: { ports: [{ port: 80 }] } }
  - { apiVersion: v1, kind: Service, metadata: { name: two }, spec: { ipFamilyPolicy: PreferDualStack, ports: [{ port: 80 }] } }
traffic:
  db: { from: node/n1, to: host/db, port: 80, every: 5ms }
  one: { from: node/n1, to: service/default/one, port: 80, every: 5ms }
  two: { from: node/n1, to: service/default/two, port: 80, every: 5ms }
timeline: [flush: { table: nat }, settle: 1s]
promises:
  db: { available: { traffic: db } }
  one: { available: { traffic: one } }
  two: { available: { traffic: two } }
  jump: { has-rule: { table: nat, chain: OUTPUT, jump: KUBE-SERVICES } }
  quiet: { no-log: { agent: kube-proxy, matches: 'Failed' } }
matrix:
  - { iptables: [legacy], ip-family: [IPv6, dual] }
  - { iptables: [nft] }
variants:
  flushed: { expect: { broken: [one, two, quiet, jump] } }
";

fn of_both(choice: &Choice) -> Vec<Case> {
    let all = ["lab", "iptables-legacy", "ip6tables-legacy", "iptables-nft"];
    let more = ["ip6tables-nft", "conntrack", "ipset", "nginx"];
    let all = all.into_iter().chain(more);
    let here = Capabilities(all.map(|it| (it.to_owned(), Ok(()))).collect());
    let planned = plan(&scenario(BOTH), choice, &here).into_iter();
    let case = |planned| match planned {
        Planned::Run(case) => *case,
        Planned::Skip(skipped) => panic!("{}", skipped.reason()),
    };
    planned.map(case).collect()
}

#[test]
fn of_several_matrices_each_has_its_cells_and_a_command_line_changes_all() {
    let ids = |matrix: &[&str]| -> Vec<String> {
        let cases = of_both(&choice(&[], matrix)).into_iter();
        cases.map(|case| case.id()).collect()
    };
    assert_eq!(
        ids(&[]),
        [
            "both/flushed[iptables=legacy,ip-family=IPv6]",
            "both/flushed[iptables=legacy,ip-family=dual]",
            "both/flushed[iptables=nft]",
        ]
    );
    assert_eq!(
        ids(&["ip-family=IPv4"]),
        [
            "both/flushed[iptables=legacy,ip-family=IPv4]",
            "both/flushed[iptables=nft,ip-family=IPv4]",
        ]
    );
}

#[test]
fn in_a_cell_with_both_families_what_is_said_of_the_first_holds_of_each() {
    let case = of_both(&choice(&[], &[])).remove(1);
    assert_eq!(case.cluster.ip_families, [IpFamily::V4, IpFamily::V6]);
    let traffic = case.traffic.iter();
    let traffic: Vec<_> = traffic
        .map(|(name, it)| (name.as_str(), it.family))
        .collect();
    assert_eq!(
        traffic,
        [
            ("db", Some(IpFamily::V4)),
            ("db.ipv6", Some(IpFamily::V6)),
            // It has one address only.
            ("one", None),
            ("two", Some(IpFamily::V4)),
            ("two.ipv6", Some(IpFamily::V6)),
        ]
    );
    let promises: Vec<&str> = case.promises.keys().map(PromiseName::as_str).collect();
    assert_eq!(
        promises,
        [
            "db",
            "db.ipv6",
            "one",
            "two",
            "two.ipv6",
            "jump",
            "jump.ipv6",
            "quiet"
        ]
    );
    let twin = &case.promises[&PromiseName::from("two.ipv6")].claim;
    let is_available =
        matches!(twin, Claim::Available { traffic, .. } if traffic.as_str() == "two.ipv6");
    assert!(is_available, "{twin:?}");
    let expected = ["one", "two", "quiet", "jump", "two.ipv6", "jump.ipv6"];
    let expected = expected.map(Into::into).to_vec();
    assert_eq!(case.expect, Expect::Broken(expected));
    let json = serde_json::to_string(&case).unwrap();
    let count = |family: &str| json.matches(family).count();
    // The rule that is promised, and the rules that are flushed.
    assert_eq!([count("\"ip\""), count("\"ip6\"")], [2, 2]);
}
