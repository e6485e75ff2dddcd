//! Which versions a variant is about, and which are left out with the reason.

use chainbreak_model::{matrix::MatrixKey, names::AgentName, plan::Choice, scenario::Scenario};

use crate::planned::{SCENARIO, cases, choice, kube_proxy, real, scenario, skips, with_pins};

#[test]
fn what_a_variant_is_not_about_is_skipped_with_the_reason() {
    let scenario = scenario(SCENARIO);
    let mut choice = choice(&["kube-proxy=kp"], &[]);
    let full = "is about kube-proxy <1.27, this is 1.32";
    assert_eq!(
        skips(&scenario, &choice),
        [("s/full".to_owned(), full.to_owned())]
    );
    let real = (AgentName::KubeProxy, real("/here/kp"));
    choice.versions.insert(real, "1.20.2".to_owned());
    let partial = "is about kube-proxy >=1.27, this is 1.20.2";
    assert_eq!(
        skips(&scenario, &choice),
        [("s/partial".to_owned(), partial.to_owned())]
    );
    choice.matrix = [MatrixKey::parse_values("calico=v3.30.1").unwrap()].into();
    let calico = "is about calico <v3.30, this is v3.30.1".to_owned();
    let id = "s/full[calico=v3.30.1]".to_owned();
    assert_eq!(skips(&scenario, &choice)[1], (id, calico));
}

/// A variant whose knob is a version of its own, one that says in which others it holds, and one without either.
const KNOBS: &str = "\
variants:
  as-given: { expect: { broken: [quiet] } }
  old: { kube-proxy: { version: '1.26' }, expect: healthy }
  old-enough: { kube-proxy: { version: '1.25' }, only: { kube-proxy: '<1.27' }, expect: healthy }
  old-calico: { calico: { version: v3.27.3 }, expect: healthy }
";

fn knobs() -> Scenario {
    let (shared, _) = SCENARIO.split_once("variants:").expect("it has variants");
    scenario(&format!("{shared}{KNOBS}"))
}

#[test]
fn a_version_that_is_a_variants_knob_is_not_overwritten_by_a_matrix() {
    let choice = choice(&[], &["kube-proxy=1.26.15,1.30", "calico=v3.27.3,v3.27"]);
    let skipped = skips(&knobs(), &choice);
    let why = |variant: &str, cell: &str| {
        let id = format!("s/{variant}[{cell}]");
        let found = skipped.iter().find(|(skipped, _)| *skipped == id);
        found.map(|(_, why)| why.as_str())
    };
    let knob = "says itself that kube-proxy is 1.26, this is 1.30";
    assert_eq!(why("old", "kube-proxy=1.30,calico=v3.27.3"), Some(knob));
    // A patch of it is what the variant is about.
    assert_eq!(why("old", "kube-proxy=1.26.15,calico=v3.27.3"), None);
    let range = "is about kube-proxy <1.27, this is 1.30";
    assert_eq!(
        why("old-enough", "kube-proxy=1.30,calico=v3.27"),
        Some(range)
    );
    assert_eq!(why("old-enough", "kube-proxy=1.26.15,calico=v3.27"), None);
    // A minor version is its last patch.
    let calico = "says itself that calico is v3.27.3, this is v3.27";
    assert_eq!(
        why("old-calico", "kube-proxy=1.30,calico=v3.27"),
        Some(calico)
    );
    assert_eq!(why("old-calico", "kube-proxy=1.30,calico=v3.27.3"), None);
    assert!(!skipped.iter().any(|(id, _)| id.contains("as-given")));
}

#[test]
fn a_real_agent_of_another_version_than_a_variants_knob_is_left_out_with_the_reason() {
    let mut choice = choice(&["kube-proxy=kp"], &[]);
    let real = (AgentName::KubeProxy, real("/here/kp"));
    choice.versions.insert(real.clone(), "v1.34.2".to_owned());
    let knob = "says itself that kube-proxy is 1.26, this is v1.34.2";
    let range = "is about kube-proxy <1.27, this is v1.34.2";
    assert_eq!(
        skips(&knobs(), &choice),
        [
            ("s/old".to_owned(), knob.to_owned()),
            ("s/old-enough".to_owned(), range.to_owned())
        ]
    );
    choice.versions.insert(real, "v1.26.15".to_owned());
    assert_eq!(skips(&knobs(), &choice), []);
}

#[test]
fn a_version_without_the_mode_is_skipped_with_the_reason() {
    let choice = choice(&[], &["mode=nftables", "kube-proxy=1.28,1.30"]);
    for (id, reason) in skips(&scenario(SCENARIO), &choice) {
        let known = reason.contains("has no nftables mode here: it is known from 1.31 on");
        assert!(known || id.contains("alone"), "{id}: {reason}");
    }
}

#[test]
fn an_upgrade_that_a_cell_or_a_chosen_agent_cannot_make_is_skipped_with_the_reason() {
    let upgrading = SCENARIO
        .replace("[settle: 1s]", "[upgrade: { kube-proxy: '1.31' }]")
        .replace("  alone: { kube-proxy: none, expect: healthy }\n", "");
    // With an `only:` the variant says itself from which versions.
    let from_any = scenario(&upgrading);
    let upgrading = scenario(&upgrading.replace("only: { kube-proxy: '>=1.27' }, ", ""));
    let reasons_of = |upgrading: &Scenario, agents: &[&str], matrix: &[&str]| {
        let skipped = skips(upgrading, &choice(agents, matrix)).into_iter();
        let all = skipped.filter(|(id, _)| id.contains("partial"));
        all.map(|(_, why)| why).collect::<Vec<_>>()
    };
    let reasons = |agents: &[&str], matrix: &[&str]| reasons_of(&upgrading, agents, matrix);
    assert_eq!(reasons(&[], &[]), [""; 0]);
    assert_eq!(
        reasons_of(&from_any, &[], &["kube-proxy=1.29,1.31"]),
        ["upgrades kube-proxy to 1.31, which it is already"]
    );
    assert_eq!(
        reasons(&[], &["kube-proxy=1.29,1.32"]),
        ["upgrades kube-proxy from 1.32, this is 1.29"]
    );
    assert_eq!(reasons(&[], &["calico=v3.30.1"]), [""; 0]);
    assert_eq!(
        reasons(&["kube-proxy=/opt/kube-proxy"], &[]),
        ["upgrades kube-proxy to 1.31, this is a real one, of which only one version is given"]
    );
}

#[test]
fn a_minor_version_is_its_newest_pinned_patch_now_and_later_and_keeps_its_name() {
    let text = SCENARIO
        .replace("[settle: 1s]", "[upgrade: { kube-proxy: '1.31' }]")
        .replace("'>=1.27' }", "'>=1.20' }")
        .replace("  alone: { kube-proxy: none, expect: healthy }\n", "");
    let choice = with_pins(choice(&[], &["kube-proxy=1.24,1.32,1.32.2"]));
    let cases = cases(&scenario(&text), &choice);
    let said: Vec<(String, &str)> = cases.iter().map(|it| (it.id(), kube_proxy(it).0)).collect();
    let id = |cell: &str| format!("s/partial[kube-proxy={cell}]");
    // Of 1.24 none is pinned: it is its last patch, and the model knows that.
    let expected = [
        (id("1.24"), "1.24"),
        (id("1.32"), "1.32.13"),
        (id("1.32.2"), "1.32.2"),
    ];
    let partial = |it: &&(String, &str)| it.0.contains("partial");
    assert_eq!(
        said.iter().filter(partial).cloned().collect::<Vec<_>>(),
        expected
    );
    let steps: Vec<String> = cases
        .iter()
        .map(|it| format!("{:?}", it.timeline))
        .collect();
    assert!(steps.iter().all(|it| it.contains("1.31.4")), "{steps:?}");
}

#[test]
fn a_minor_version_of_calico_is_its_newest_pinned_patch_too_now_and_later() {
    let text = SCENARIO
        .replace("[settle: 1s]", "[upgrade: { calico: v3.31 }]")
        .replace("'>=1.27' }", "'>=1.27', calico: '>=v3.28' }");
    let choice = with_pins(choice(&[], &["calico=v3.28,v3.28.1,v3.29"]));
    let cases = cases(&scenario(&text), &choice).into_iter();
    let said: Vec<(String, String)> = cases
        .filter(|it| it.variant.as_str() == "partial")
        .map(|it| {
            assert!(format!("{:?}", it.timeline).contains("v3.31.5"));
            let version = it.cluster.version(AgentName::Felix).unwrap_or_default();
            (it.cell["calico"].clone(), version.to_owned())
        })
        .collect();
    let pair = |cell: &str, version: &str| (cell.to_owned(), version.to_owned());
    // Of v3.29 none is pinned.
    let expected = [
        pair("v3.28", "v3.28.5"),
        pair("v3.28.1", "v3.28.1"),
        pair("v3.29", "v3.29"),
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_range_knows_which_patch_a_minor_version_is() {
    let text = SCENARIO.replace("'>=1.27' }", "'<1.32.14' }");
    let of_partial = |choice: &Choice| {
        let skips = skips(&scenario(&text), choice).into_iter();
        skips.filter(|(id, _)| id == "s/partial").count()
    };
    assert_eq!(of_partial(&choice(&[], &[])), 1);
    assert_eq!(of_partial(&with_pins(choice(&[], &[]))), 0);
}
