//! From a scenario to cases: who plays an agent, which cells there are, which versions are left out.

use std::{collections::BTreeMap, io, path::Path};

use chainbreak_model::{
    agents::AgentChoice,
    case::{AgentSource, Capabilities, Case, Expect, IpFamily},
    list,
    matrix::MatrixKey,
    names::{AgentName, PromiseName, TrafficName},
    plan,
    plan::{Choice, Exclude, Planned, is_used, merged, real_agents},
    read,
    scenario::Scenario,
};

const SCENARIO: &str = "\
name: s
about: two agents
cluster:
  nodes: 1
  kube-proxy: { version: '1.32' }
  calico: { version: v3.28.1 }
timeline: [settle: 1s]
promises:
  quiet: { no-log: { agent: kube-proxy, matches: 'Failed' } }
variants:
  partial: { only: { kube-proxy: '>=1.27' }, expect: { broken: [quiet] } }
  full: { only: { kube-proxy: '<1.27', calico: '<v3.30' }, expect: healthy }
  alone: { kube-proxy: none, expect: healthy }
";

fn scenario(text: &str) -> Scenario {
    let open = |_: &Path| Err(io::Error::from(io::ErrorKind::NotFound));
    read(Path::new("/scenarios/s.yaml"), text.as_bytes(), &open)
        .unwrap_or_else(|error| panic!("{}", error.plain()))
}

fn choice(agents: &[&str], matrix: &[&str]) -> Choice {
    let agent = |text: &&str| AgentChoice::parse(text, Path::new("/here")).expect("a choice");
    let key = |text: &&str| MatrixKey::parse_values(text).expect("a matrix");
    Choice {
        backend: "lab".to_owned(),
        agents: agents.iter().map(agent).collect(),
        matrix: matrix.iter().map(key).collect(),
        ..Choice::default()
    }
}

fn real(path: &str) -> AgentSource {
    AgentSource::Path(path.into())
}

fn planned(scenario: &Scenario, choice: &Choice) -> Vec<Planned> {
    let here = ["lab", "iptables-legacy", "conntrack"].map(|it| (it.to_owned(), Ok(())));
    plan(scenario, choice, &Capabilities(BTreeMap::from(here)))
}

fn cases(scenario: &Scenario, choice: &Choice) -> Vec<Case> {
    let runs = planned(scenario, choice).into_iter();
    let cases = runs.filter_map(|planned| match planned {
        Planned::Run(case) => Some(*case),
        Planned::Skip(_) => None,
    });
    cases.collect()
}

fn skips(scenario: &Scenario, choice: &Choice) -> Vec<(String, String)> {
    let all = planned(scenario, choice).into_iter();
    let skips = all.filter_map(|planned| match planned {
        Planned::Run(_) => None,
        Planned::Skip(skipped) => Some((skipped.id.clone(), skipped.reason())),
    });
    skips.collect()
}

#[test]
fn a_source_is_the_model_or_a_path_from_the_scenarios_folder() {
    let text = SCENARIO
        .replace("'1.32' }", "'1.32', source: ./bin/kube-proxy }")
        .replace("v3.28.1 }", "v3.28.1, source: /opt/calico }");
    let text = text.replace(
        "alone: { kube-proxy: none,",
        "alone: { calico: { source: model },",
    );
    let cases = cases(&scenario(&text), &choice(&[], &[]));
    let source = |case: usize, agent| cases[case].cluster.source(agent).cloned();
    let kube_proxy = Some(real("/scenarios/bin/kube-proxy"));
    assert_eq!(source(0, AgentName::KubeProxy), kube_proxy);
    assert_eq!(source(0, AgentName::Felix), Some(real("/opt/calico")));
    assert_eq!(cases[1].variant.as_str(), "alone");
    assert_eq!(source(1, AgentName::KubeProxy), kube_proxy);
    assert_eq!(source(1, AgentName::Felix), Some(AgentSource::Model));
}

#[test]
fn a_chosen_agent_replaces_the_scenarios_and_the_one_for_a_version_comes_first() {
    let text = SCENARIO.replace("'1.32' }", "'1.32', source: kube-proxy }");
    let agents = [
        "kube-proxy@1.30=a",
        "kube-proxy=b",
        "felix=calico",
        "kube-proxy=model",
    ];
    let choice = choice(&agents, &["kube-proxy=1.30.4,1.32"]);
    let cases = cases(&scenario(&text), &choice);
    let sources = cases.iter().map(|case| {
        let source = |agent| case.cluster.source(agent).cloned();
        (source(AgentName::KubeProxy), source(AgentName::Felix))
    });
    let felix = Some(real("/here/calico"));
    assert_eq!(
        sources.collect::<Vec<_>>(),
        [
            (Some(real("/here/a")), felix.clone()),
            (Some(AgentSource::Model), felix.clone()),
            (None, felix)
        ]
    );
}

#[test]
fn a_choice_that_no_case_has_the_agent_for_is_found() {
    let scenario = scenario(SCENARIO);
    let mut choice = choice(
        &["kube-proxy@1.20=a", "kube-proxy@1.31=a", "felix@v3.28=a"],
        &["kube-proxy=1.20.15,1.32"],
    );
    // The first is used for what it was chosen for, whatever the program turns out to be.
    let program = (AgentName::KubeProxy, real("/here/a"));
    choice.versions.insert(program, "1.31.0".to_owned());
    let used = |at: usize| is_used(&choice.agents[at], &scenario, &choice);
    assert_eq!([used(0), used(1), used(2)], [true, false, true]);
}

#[test]
fn a_real_agents_version_is_its_own_and_named_where_the_matrix_varies_it() {
    let scenario = scenario(SCENARIO);
    let mut choice = choice(
        &["kube-proxy@1.20=kp", "felix=calico"],
        &["kube-proxy=1.20,1.32"],
    );
    choice.variants = vec!["partial".into(), "full".into()];
    let agents: Vec<_> = real_agents(&scenario, &choice).into_iter().collect();
    assert_eq!(
        agents,
        [
            (AgentName::KubeProxy, real("/here/kp")),
            (AgentName::Felix, real("/here/calico"))
        ]
    );
    choice
        .versions
        .insert(agents[0].clone(), "1.20.2".to_owned());
    choice
        .versions
        .insert(agents[1].clone(), "v3.25.0".to_owned());
    let cases = cases(&scenario, &choice);
    let ids: Vec<String> = cases.iter().map(Case::id).collect();
    assert_eq!(
        ids,
        ["s/partial[kube-proxy=1.32]", "s/full[kube-proxy=1.20.2]"]
    );
    let version = |case: usize, agent| cases[case].cluster.version(agent).map(str::to_owned);
    assert_eq!(version(0, AgentName::KubeProxy).as_deref(), Some("1.32"));
    assert_eq!(version(1, AgentName::KubeProxy).as_deref(), Some("1.20.2"));
    assert_eq!(version(0, AgentName::Felix).as_deref(), Some("v3.25.0"));
}

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
        let all = ["lab", "iptables-legacy", "ip6tables-legacy", "conntrack"];
        let all = Capabilities(all.map(|it| (it.to_owned(), Ok(()))).into());
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
    let all = ["lab", "iptables-legacy", "ip6tables-legacy", "conntrack"];
    let all = Capabilities(all.map(|it| (it.to_owned(), Ok(()))).into());
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
    let more = ["ip6tables-nft", "conntrack", "nginx"];
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
    let about = |name: &str| {
        case.promises[&PromiseName::from(name)]
            .claim
            .traffic()
            .map(TrafficName::as_str)
    };
    assert_eq!(about("two.ipv6"), Some("two.ipv6"));
    let expected = ["one", "two", "quiet", "jump", "two.ipv6", "jump.ipv6"];
    let expected = expected.map(Into::into).to_vec();
    assert_eq!(case.expect, Expect::Broken(expected));
    let json = serde_json::to_string(&case).unwrap();
    let count = |family: &str| json.matches(family).count();
    // The rule that is promised, and the rules that are flushed.
    assert_eq!([count("\"ip\""), count("\"ip6\"")], [2, 2]);
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
fn two_players_of_one_version_are_two_cases() {
    let scenario = scenario(SCENARIO);
    let mut choice = choice(
        &["kube-proxy@1.30=a", "kube-proxy@1.31=b"],
        &["kube-proxy=1.30,1.31"],
    );
    choice.variants = vec!["partial".into()];
    for path in ["/here/a", "/here/b"] {
        let program = (AgentName::KubeProxy, real(path));
        choice.versions.insert(program, "1.31.0".to_owned());
    }
    let cases = cases(&scenario, &choice);
    let players: Vec<_> = cases
        .iter()
        .map(|case| (case.id(), case.cluster.source(AgentName::KubeProxy)))
        .collect();
    assert_eq!(
        players,
        [
            (
                "s/partial[kube-proxy=1.31.0]".to_owned(),
                Some(&real("/here/a"))
            ),
            (
                "s/partial[kube-proxy=1.31→1.31.0]".to_owned(),
                Some(&real("/here/b"))
            )
        ]
    );
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

/// A choice with releases that are pinned.
fn with_pins(choice: Choice) -> Choice {
    let pinned = ["1.30.4", "1.31.4", "1.32.2", "1.32.13"];
    Choice {
        pinned: pinned.map(str::to_owned).to_vec(),
        ..choice
    }
}

fn kube_proxy(case: &Case) -> (&str, &AgentSource) {
    let spec = case.cluster.kube_proxy.as_ref().expect("a kube-proxy");
    (&spec.version, &spec.source)
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
fn a_range_knows_which_patch_a_minor_version_is() {
    let text = SCENARIO.replace("'>=1.27' }", "'<1.32.14' }");
    let of_partial = |choice: &Choice| {
        let skips = skips(&scenario(&text), choice).into_iter();
        skips.filter(|(id, _)| id == "s/partial").count()
    };
    assert_eq!(of_partial(&choice(&[], &[])), 1);
    assert_eq!(of_partial(&with_pins(choice(&[], &[]))), 0);
}

#[test]
fn what_is_to_be_built_can_be_upgraded_and_has_the_modes_of_its_release() {
    let text = SCENARIO
        .replace("[settle: 1s]", "[upgrade: { kube-proxy: '1.31' }]")
        .replace("  alone: { kube-proxy: none, expect: healthy }\n", "");
    let build = with_pins(choice(&["kube-proxy=build"], &[]));
    let cases = cases(&scenario(&text), &build);
    assert_eq!(kube_proxy(&cases[0]), ("1.32.13", &AgentSource::Build));
    let nftables = choice(&["kube-proxy=build"], &["mode=nftables", "kube-proxy=1.30"]);
    for (id, reason) in skips(&scenario(SCENARIO), &with_pins(nftables)) {
        let known = reason.contains("kube-proxy 1.30.4 has no nftables mode here");
        assert!(known || id.contains("alone"), "{id}: {reason}");
    }
}

#[test]
fn an_image_by_version_has_it_one_by_name_says_it_and_neither_is_upgraded() {
    let image = |name: Option<&str>| AgentSource::Image(name.map(str::to_owned));
    let by_version = with_pins(choice(&["kube-proxy=image"], &[]));
    assert_eq!(
        kube_proxy(&cases(&scenario(SCENARIO), &by_version)[0]),
        ("1.32.13", &image(None))
    );
    assert!(real_agents(&scenario(SCENARIO), &by_version).is_empty());
    let mut by_name = choice(&["kube-proxy=image:host/x:1"], &[]);
    let named = (AgentName::KubeProxy, image(Some("host/x:1")));
    let asked = real_agents(&scenario(SCENARIO), &by_name);
    assert_eq!(
        asked.into_iter().collect::<Vec<_>>(),
        std::slice::from_ref(&named)
    );
    by_name.versions.insert(named, "1.30.1".to_owned());
    assert_eq!(
        kube_proxy(&cases(&scenario(SCENARIO), &by_name)[0]),
        ("1.30.1", &image(Some("host/x:1")))
    );
    let upgrading = SCENARIO
        .replace("[settle: 1s]", "[upgrade: { kube-proxy: '1.31' }]")
        .replace("  alone: { kube-proxy: none, expect: healthy }\n", "");
    let said = skips(&scenario(&upgrading), &by_version);
    let (_, reason) = said.iter().find(|(id, _)| id.contains("partial")).unwrap();
    assert!(reason.contains("in the root of its image"), "{reason}");
}

#[test]
fn a_real_one_without_the_mode_is_skipped_with_the_reason_before_it_runs() {
    let mut choice = choice(&["kube-proxy=/opt/kube-proxy"], &["mode=nftables"]);
    let program = (AgentName::KubeProxy, real("/opt/kube-proxy"));
    choice.versions.insert(program, "1.28.15".to_owned());
    let said = skips(&scenario(SCENARIO), &choice);
    let partial = said.iter().find(|(id, _)| id.contains("partial"));
    let (_, reason) = partial.expect("it is skipped");
    assert!(
        reason.contains("kube-proxy 1.28.15 has no nftables mode here"),
        "{reason}"
    );
}

#[test]
fn where_a_real_one_of_each_version_is_at_hand_it_replaces_the_model_that_nobody_chose() {
    let upgrading = SCENARIO
        .replace("[settle: 1s]", "[upgrade: { kube-proxy: '1.31' }]")
        .replace("  alone: { kube-proxy: none, expect: healthy }\n", "");
    let source = |text: &str, agents: &[&str], here: &[&str]| {
        let mut choice = with_pins(choice(agents, &[]));
        for version in here {
            choice
                .at_hand
                .add(AgentName::KubeProxy, version, AgentSource::Build);
        }
        kube_proxy(&cases(&scenario(text), &choice)[0]).1.clone()
    };
    assert_eq!(source(SCENARIO, &[], &["1.32.13"]), AgentSource::Build);
    assert_eq!(source(SCENARIO, &[], &["1.32.2"]), AgentSource::Model);
    assert_eq!(
        source(SCENARIO, &["kube-proxy=model"], &["1.32.13"]),
        AgentSource::Model
    );
    // Half of an upgrade is none.
    assert_eq!(source(&upgrading, &[], &["1.32.13"]), AgentSource::Model);
    assert_eq!(
        source(&upgrading, &[], &["1.31.4", "1.32.13"]),
        AgentSource::Build
    );
}

#[test]
fn a_real_cluster_has_to_have_the_version_that_it_is_upgraded_to() {
    let upgrade = "[upgrade: { kube-proxy: '1.33', calico: v3.29.7 }]";
    let upgrading = scenario(
        &SCENARIO
            .replace("[settle: 1s]", upgrade)
            .replace("  alone: { kube-proxy: none, expect: healthy }\n", ""),
    );
    let choice = Choice {
        real_clusters: true,
        ..choice(&[], &[])
    };
    let skipped = skips(&upgrading, &choice);
    let (_, why) = &skipped[0];
    for need in ["kubernetes-1.32", "kubernetes-1.33", "calico-upgrade"] {
        assert!(why.contains(need), "{why}");
    }
}

const AROUND: &str = "\
name: s
about: what is around a cluster
cluster:
  nodes: 2
  kube-proxy: { version: '1.32' }
  hosts:
    db: { nginx: 80, routes: [{ to: 10.20.1.0/24, via: HOP }] }
manifests:
  - { apiVersion: v1, kind: Service, metadata: { name: web }, spec: { type: TYPE, ports: [{ port: 80 }] } }
  - apiVersion: v1
    kind: Pod
    metadata: { name: client, annotations: { k8s.v1.cni.cncf.io/networks: 'NETWORKS' } }
    spec: { nodeName: n1, containers: [{ name: c, image: 'nginx:1.27' }] }
traffic:
  out: { from: pod/client, to: host/db, port: 80, every: 20ms }
  within: { from: host/db, to: pod/default/client, port: 80, every: 20ms }
timeline: [settle: 1s]
promises:
  seen: { source: { traffic: SEEN, is: client } }
variants:
  v: { expect: healthy }
";

/// Hosts are had where their backend has them; what they and pods cannot have on a real cluster is named, each by itself.
#[test]
fn what_a_real_cluster_lacks_around_its_nodes_is_named() {
    let choice = Choice {
        real_clusters: true,
        ..choice(&[], &[])
    };
    let lab = [
        ("HOP", "node/n1", "10.0.3.5", "underlay-addresses"),
        ("TYPE", "ClusterIP", "LoadBalancer", "load-balancers"),
        (
            "NETWORKS",
            "",
            r#"[{"name": "underlay", "ips": ["10.0.3.5/32"]}]"#,
            "further-interfaces",
        ),
        ("SEEN", "out", "within", "telling-servers"),
    ];
    let why = |lacking: Option<&str>| {
        let text = lab
            .iter()
            .fold(AROUND.to_owned(), |text, (word, has, lacks, need)| {
                let chosen = if lacking == Some(*need) { lacks } else { has };
                text.replace(word, chosen)
            });
        let text = text.replace(", annotations: { k8s.v1.cni.cncf.io/networks: '' }", "");
        skips(&scenario(&text), &choice)[0].1.clone()
    };
    let had = why(None);
    assert!(had.contains("off-cluster-hosts"), "{had}");
    for (_, _, _, need) in lab {
        assert!(!had.contains(need), "{need}: {had}");
        let why = why(Some(need));
        assert!(why.contains(need), "{need}: {why}");
    }
}
