//! The scenarios that we ship, and the example of the language's documentation.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use chainbreak_model::{
    agents::AgentChoice,
    case::{Capabilities, Case, Expect, IptablesVariant},
    list, load, plan as plan_cases,
    plan::{Choice, Planned},
    read,
};

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios/kube-proxy")
        .join(name)
}

fn laboratory() -> Capabilities {
    let here = [
        "lab",
        "iptables-legacy",
        "ipset",
        "iptables-nft",
        "nginx",
        "conntrack",
        "nft",
    ];
    Capabilities(
        here.into_iter()
            .map(|name| (name.to_owned(), Ok(())))
            .collect(),
    )
}

fn without_nft() -> Capabilities {
    let mut all = laboratory();
    all.0.retain(|name, _| name != "nft");
    all
}

fn choice() -> Choice {
    Choice {
        backend: "lab".to_owned(),
        ..Choice::default()
    }
}

fn cases(file: &str) -> Vec<Planned> {
    let scenario = load(&shipped(file)).unwrap_or_else(|error| panic!("{}", error.plain()));
    plan_cases(&scenario, &choice(), &laboratory())
}

fn run(planned: &[Planned], id: &str) -> Case {
    let case = planned.iter().find(|planned| planned.id().ends_with(id));
    match case {
        Some(Planned::Run(case)) => Case::clone(case),
        other => panic!("{id} should run: {other:?}"),
    }
}

#[test]
fn the_outage_is_planned_in_every_variant_on_both_iptables() {
    let planned = cases("calico-bpf-cleanup-fights-kube-proxy.yaml");
    let ids: Vec<String> = planned.iter().map(Planned::id).collect();
    insta::assert_snapshot!(ids.join("\n"));
    let nft = run(&planned, "/bpf-off[iptables=nft]");
    assert_eq!(nft.cluster.iptables, IptablesVariant::Nft);
    assert_eq!(
        nft.cluster.kube_proxy.unwrap().iptables,
        IptablesVariant::Nft
    );
    assert_eq!(nft.cluster.felix["bpfEnabled"], false);
    assert_eq!(
        nft.cluster.felix["iptablesRefreshInterval"], "2s",
        "the rest is the scenario's"
    );
    let broken = run(&planned, "/api-moves[iptables=legacy]");
    assert!(matches!(broken.expect, Expect::Broken(names) if names.len() == 4));
}

#[test]
fn a_variant_that_needs_what_is_not_here_is_skipped_with_the_reason() {
    let open = |path: &Path| std::fs::read(shipped(path.to_str().unwrap()));
    let scenario = read(Path::new("example.yaml"), EXAMPLE.as_bytes(), &open).unwrap();
    let planned = plan_cases(&scenario, &choice(), &laboratory());
    let removed = planned
        .iter()
        .find(|planned| planned.id().contains("kube-proxy-removed"));
    let Some(Planned::Skip(skipped)) = removed else {
        panic!("{removed:?}")
    };
    assert_eq!(
        skipped.reason(),
        "bpf-service-nat: Felix's model has no eBPF programs, a real Felix has\nchainbreak run --allow-ebpf --agent felix=PATH"
    );
}

#[test]
fn a_models_programs_that_are_to_work_take_nft() {
    let skipped = |capabilities: &Capabilities| {
        let scenario = load(&shipped("calico-bpf-cleanup-fights-kube-proxy.yaml"));
        let planned = plan_cases(&scenario.unwrap(), &choice(), capabilities);
        let mut removed = planned
            .into_iter()
            .filter(|it| it.id().contains("kube-proxy-removed"));
        match removed.next() {
            Some(Planned::Skip(skipped)) => Some(skipped.reason()),
            Some(Planned::Run(_)) => None,
            None => panic!("there is no such case"),
        }
    };
    assert_eq!(skipped(&laboratory()), None);
    let without = skipped(&without_nft());
    assert_eq!(
        without.as_deref(),
        Some("nft: the backend lab does not have it")
    );
}

#[test]
fn a_real_felix_answers_services_where_its_programs_can_be_loaded() {
    let mut choice = choice();
    let real = AgentChoice::parse("felix=/opt/calico-felix", Path::new("/")).unwrap();
    choice.agents.push(real);
    let files = [
        "calico-bpf-cleanup-fights-kube-proxy.yaml",
        "silent-outage-without-an-error-line.yaml",
        "../felix/services-die-after-the-way-back-from-ebpf.yaml",
    ];
    let scenarios = files.map(|file| load(&shipped(file)).unwrap());
    let skipped = |ebpf: &Result<(), String>, id: &str| {
        let mut capabilities = without_nft();
        capabilities.0.insert("ebpf".to_owned(), ebpf.clone());
        let mut planned = scenarios
            .iter()
            .flat_map(|it| plan_cases(it, &choice, &capabilities));
        let case = planned.find(|it| it.id().contains(id));
        match case {
            Some(Planned::Skip(skipped)) => Some(skipped.reason()),
            Some(Planned::Run(_)) => None,
            None => panic!("there is no {id}"),
        }
    };
    let (removed, on, off) = (
        "kube-proxy-removed",
        "kube-proxy/cleanup-disabled",
        "kube-proxy/bpf-off",
    );
    assert_eq!(skipped(&Ok(()), removed), None);
    let refused = Err("not allowed".to_owned());
    let why = skipped(&refused, removed);
    assert_eq!(why.as_deref(), Some("ebpf: not allowed"));
    let why = skipped(&refused, on);
    assert_eq!(
        why.as_deref(),
        Some("ebpf: not allowed"),
        "it begins with programs"
    );
    assert_eq!(skipped(&refused, off), None, "it loads none");
    let why = skipped(&Ok(()), "/quiet-cluster[");
    let working = "is about a node whose eBPF programs do not work, a real Felix's do";
    assert_eq!(why.as_deref(), Some(working));
    let back = skipped(&Ok(()), "way-back-from-ebpf/quiet-cluster");
    let back = back.expect("it leaves programs behind");
    assert!(back.starts_with("ebpf-lists: "), "{back}");
}

#[test]
fn a_case_goes_to_its_worker_and_comes_back_the_same() {
    for planned in cases("calico-bpf-cleanup-fights-kube-proxy.yaml") {
        let text = serde_json::to_string(&planned).unwrap();
        assert_eq!(serde_json::from_str::<Planned>(&text).unwrap(), planned);
    }
}

#[test]
fn a_matrix_of_the_command_line_replaces_the_scenarios() {
    let scenario = load(&shipped("silent-outage-without-an-error-line.yaml"))
        .unwrap_or_else(|error| panic!("{}", error.plain()));
    let (key, values) = chainbreak_model::matrix::MatrixKey::parse_values("iptables=nft").unwrap();
    let mut choice = choice();
    choice.matrix.insert(key, values);
    choice.filters.push("bpf-off".to_owned());
    choice.seed = Some(7);
    assert_eq!(
        list(&scenario, &choice),
        ["silent-outage-without-an-error-line/bpf-off[iptables=nft]"]
    );
    let planned = plan_cases(&scenario, &choice, &laboratory());
    assert_eq!(run(&planned, "bpf-off[iptables=nft]").seed, 7);
}

/// The example of the design, word for word but for the manifest beside it.
const EXAMPLE: &str = r#"# yaml-language-server: $schema=../scenario.schema.json
name: calico-bpf-cleanup-fights-kube-proxy
about: >
  Felix in eBPF mode deletes kube-proxy's chains while kube-proxy still runs. kube-proxy's next partial sync jumps to a chain
  that is gone, iptables-restore fails, and services stop answering until a full sync, again and again.
incident: [projectcalico/calico#10538]
cluster:
  nodes: 2
  kube-proxy: { mode: iptables, iptables: legacy, version: "1.32", min-sync-period: 1s, sync-period: 5s }
  calico: { version: v3.28.1, pods: third-party }      # a third-party CNI owns the pods' interfaces
  felix: { bpfEnabled: true, iptablesRefreshInterval: 2s, iptablesPostWriteCheckInterval: 1s }
manifests: [nginx.yaml]
traffic:
  shop: { from: pod/client, to: service/test/nginx, port: 80, every: 5ms, connections: new }
timeline:
  - settle: 1s
  - churn: { deployment: test/nginx, replicas: [3, 2], every: 2s, for: 12s }
promises:
  answers: { available: { traffic: shop, at-least: 99.9%, longest-gap: 500ms } }
  no-restore-errors: { no-log: { agent: kube-proxy, matches: 'Failed to execute iptables-restore' } }
  jump-stays: { has-rule: { table: nat, chain: PREROUTING, jump: KUBE-SERVICES, always: true } }
variants:
  default-cleanup: { expect: { broken: [answers, no-restore-errors, jump-stays] } }
  cleanup-disabled: { felix: { bpfKubeProxyIptablesCleanupEnabled: false }, expect: healthy }
  bpf-off: { felix: { bpfEnabled: false }, expect: healthy }
  kube-proxy-removed: { kube-proxy: none, needs: [bpf-service-nat], expect: healthy }
"#;

#[test]
fn the_example_of_the_design_reads_word_for_word() {
    let open = |path: &Path| std::fs::read(shipped(path.to_str().unwrap()));
    let scenario = read(Path::new("example.yaml"), EXAMPLE.as_bytes(), &open)
        .unwrap_or_else(|error| panic!("{}", error.plain()));
    let planned = plan_cases(&scenario, &choice(), &laboratory());
    let mut case = run(&planned, "/cleanup-disabled");
    case.manifests = Arc::default();
    insta::assert_snapshot!(serde_json::to_string_pretty(&case).unwrap());
}

#[test]
fn the_example_of_the_documentation_reads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenario-language.md");
    let page = std::fs::read_to_string(folder).unwrap();
    let blocks = page
        .split("```yaml\n")
        .filter_map(|part| part.split("```").next());
    let example = blocks
        .filter(|block| block.starts_with("name:"))
        .last()
        .unwrap();
    let open = |path: &Path| std::fs::read(shipped(path.to_str().unwrap()));
    read(Path::new("example.yaml"), example.as_bytes(), &open)
        .unwrap_or_else(|error| panic!("{}", error.plain()));
}
