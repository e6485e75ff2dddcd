//! Who plays an agent: a model, or a real one of which version.

use chainbreak_model::{
    case::{AgentSource, Case},
    names::AgentName,
    plan::{is_used, real_agents},
};

use crate::planned::{SCENARIO, cases, choice, kube_proxy, real, scenario, skips, with_pins};

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
