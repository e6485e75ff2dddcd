//! Mutants: what is changed, and that a verdict tells each from the case.

use std::path::Path;

use chainbreak_model::{
    case::{Capabilities, Case, Expect, Step},
    event::{Event, EventKind, LogEntry, Phase},
    judge,
    mutation::{on_healthy_ground, opposites, without_faults},
    names::{AgentName, NodeName},
    plan::{Choice, Planned},
    read,
    verdict::CaseVerdict,
};

const SCENARIO: &str = r"
name: mutated
about: what is changed
cluster: { nodes: 1, kube-proxy: { version: '1.32' }, calico: { version: v3.28.1 } }
manifests: []
traffic: {}
timeline:
  - settle: 1s
  - slow: { agent: kube-proxy, command: iptables-restore, by: 1s, for: 2s }
  - mark: later
  - felix: { bpfEnabled: true }
promises:
  quiet: { no-log: { agent: kube-proxy, matches: 'Failed' } }
  loud: { has-log: { agent: kube-proxy, matches: 'Failed' } }
variants:
  incident: { expect: { broken: [quiet] } }
  fixed: { calico: { version: v3.29.1 }, expect: healthy }
";

fn case(variant: &str) -> Case {
    let open = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let scenario = read(Path::new("mutated.yaml"), SCENARIO.as_bytes(), &open)
        .unwrap_or_else(|error| panic!("{}", error.plain()));
    let choice = Choice {
        backend: "lab".to_owned(),
        ..Choice::default()
    };
    let here =
        ["lab", "iptables-legacy", "conntrack", "ipset"].map(|name| (name.to_owned(), Ok(())));
    let planned = chainbreak_model::plan(&scenario, &choice, &Capabilities(here.into()));
    let mut found = planned.into_iter().filter_map(|planned| match planned {
        Planned::Run(case) => Some(*case),
        Planned::Skip(_) => None,
    });
    found
        .find(|it| it.variant.as_str() == variant)
        .expect("the variant runs")
}

#[test]
fn an_incident_is_tried_without_each_of_its_faults_and_with_all_else() {
    let incident = case("incident");
    let mutants = without_faults(&incident);
    let what: Vec<&str> = mutants.iter().map(|it| it.what.as_str()).collect();
    let words = "without step 2, iptables-restore of kube-proxy 1s later";
    assert_eq!(what[0], words);
    assert_eq!(what[1], "without step 4, change of FelixConfiguration");
    assert_eq!(what.len(), 2);
    for mutant in &mutants {
        assert_eq!(mutant.case.timeline.len(), incident.timeline.len() - 1);
        assert_eq!(mutant.case.expect, incident.expect);
        let mark = |step: &Step| matches!(step, Step::Mark(_));
        assert!(
            mutant.case.timeline.iter().any(mark),
            "promises refer to it"
        );
    }
    assert!(without_faults(&case("fixed")).is_empty());
}

#[test]
fn an_incident_is_tried_on_the_ground_of_each_healthy_variant_with_its_own_promises() {
    let (incident, fixed) = (case("incident"), case("fixed"));
    let promises = Case {
        variant: "promises-only".into(),
        expect: Expect::Healthy,
        by: None,
        ..incident.clone()
    };
    let elsewhere = Case {
        scenario: "another".into(),
        ..fixed.clone()
    };
    let all = [incident.clone(), elsewhere, promises, fixed.clone()];
    let mutants = on_healthy_ground(&incident, &all);
    let what: Vec<&str> = mutants.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(what, ["on the ground of fixed"]);
    let mutant = &mutants[0].case;
    assert_eq!(mutant.cluster, fixed.cluster);
    assert_ne!(mutant.cluster, incident.cluster);
    assert_eq!(mutant.promises, incident.promises);
    assert_eq!(mutant.expect, incident.expect);
    assert!(on_healthy_ground(&fixed, &all).is_empty());
}

#[test]
fn of_a_variants_cells_the_one_like_the_cases_is_its_ground() {
    let cell = |case: Case, variant: &str, value: &str, nodes| {
        let cell = [("iptables".to_owned(), value.to_owned())].into();
        let mut case = Case {
            cell,
            variant: variant.into(),
            ..case
        };
        case.cluster.nodes = nodes;
        case
    };
    let incident = cell(case("incident"), "incident", "nft", 1);
    let legacy = cell(case("fixed"), "fixed", "legacy", 2);
    let nft = cell(case("fixed"), "fixed", "nft", 3);
    for cells in [[legacy.clone(), nft.clone()], [nft, legacy.clone()]] {
        let mutants = on_healthy_ground(&incident, &cells);
        assert_eq!((mutants.len(), mutants[0].case.cluster.nodes), (1, 3));
    }
    let mutants = on_healthy_ground(&incident, &[legacy]);
    assert_eq!(mutants[0].case.cluster.nodes, 2, "another cell is fine");
}

#[test]
fn a_history_as_expected_is_as_none_of_the_opposites_expect() {
    let entry = LogEntry {
        agent: AgentName::KubeProxy,
        node: NodeName::from("n1"),
        text: "Failed to execute iptables-restore".to_owned(),
    };
    let whats = [
        EventKind::Phase(Phase::Judging),
        EventKind::Log(entry),
        EventKind::Phase(Phase::Judged),
    ];
    let times = [1_000_000, 2_000_000, 5_000_000];
    let history = times.into_iter().zip(whats);
    let history: Vec<Event> = history.map(|(at_us, what)| Event { at_us, what }).collect();
    let incident = case("incident");
    assert_eq!(judge(&incident, &history).case, CaseVerdict::AsExpected);
    let opposites = opposites(&incident);
    let what: Vec<&str> = opposites.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(what, ["quiet expected kept", "loud expected broken"]);
    assert_eq!(opposites[0].case.expect, Expect::Healthy);
    for mutant in &opposites {
        let verdict = judge(&mutant.case, &history);
        assert_eq!(verdict.case, CaseVerdict::NotAsExpected, "{}", mutant.what);
    }
}
