//! Promises about the chains that kube-proxy has for a service.

use std::{io, path::Path};

use chainbreak_model::{
    case::{Capabilities, Claim, Promise, RuleBackend, RuleChain, RuleQuery},
    plan,
    plan::{Choice, Planned},
    read,
    scenario::Scenario,
};

const SCENARIO: &str = "\
name: chains
about: what kube-proxy calls after a service
cluster: { nodes: 1, kube-proxy: { version: '1.32' } }
manifests:
  - apiVersion: v1
    kind: Service
    metadata: { namespace: test, name: nginx }
    spec: { ports: [{ name: http, port: 80 }, { name: metrics, port: 8125, protocol: UDP }] }
  - apiVersion: v1
    kind: Service
    metadata: { name: web }
    spec: { ports: [{ port: 80 }] }
timeline: [settle: 1s]
promises:
  it: PROMISE
variants:
  only: { expect: healthy }
";

/// A scenario with that promise, or what is said of it.
fn scenario(promise: &str) -> Result<Scenario, String> {
    let scenario = SCENARIO.replace("PROMISE", promise);
    let open = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let scenario = read(Path::new("chains.yaml"), scenario.as_bytes(), &open);
    scenario.map_err(|diagnostics| diagnostics.plain())
}

/// The promise, or what is said of it.
fn promise(text: &str) -> Result<Promise, String> {
    Ok(scenario(text)?.variants[0].run.promises[0].clone())
}

fn has_rule(fields: &str) -> Promise {
    promise(&format!("{{ has-rule: {{ {fields} }} }}")).unwrap_or_else(|said| panic!("{said}"))
}

fn query(promise: &Promise) -> &RuleQuery {
    match &promise.claim {
        Claim::HasRule { rule, .. } => rule,
        other => panic!("{other:?}"),
    }
}

fn said_of(fields: &str) -> String {
    promise(&format!("{{ has-rule: {{ {fields} }} }}")).expect_err("it is a mistake")
}

#[test]
fn a_services_chain_has_the_name_that_kube_proxy_gives_it() {
    let rules = [
        (
            "service: test/nginx:http, chain: service",
            "nat KUBE-SVC-IU46S4VZFN77LK6S",
        ),
        (
            "service: test/nginx:http, chain: local, backend: legacy",
            "nat KUBE-SVL-IU46S4VZFN77LK6S (legacy)",
        ),
        (
            "service: test/nginx:http, chain: external, matches: MASQ",
            "nat KUBE-EXT-IU46S4VZFN77LK6S /MASQ/",
        ),
        (
            "service: test/nginx:http, chain: firewall, table: nat",
            "nat KUBE-FW-IU46S4VZFN77LK6S",
        ),
        // A port over UDP, and one without a name in the namespace default.
        (
            "service: test/nginx:metrics, chain: service",
            "nat KUBE-SVC-YWHW4HF4RQQC7A3O",
        ),
        (
            "service: web, chain: service",
            "nat KUBE-SVC-LOLE4ISW44XBNF3G",
        ),
        (
            "backend: nftables, service: test/nginx:http, chain: service",
            "kube-proxy service-3DQLO4TQ-test/nginx/tcp/http (nftables)",
        ),
        (
            "backend: nftables, service: test/nginx:http, chain: firewall, family: ip6",
            "kube-proxy firewall-3DQLO4TQ-test/nginx/tcp/http (ip6, nftables)",
        ),
    ];
    for (fields, name) in rules {
        assert_eq!(query(&has_rule(fields)).to_string(), name, "{fields}");
    }
}

#[test]
fn a_counter_counts_the_packets_of_a_services_chain() {
    let rule = "{ service: test/nginx:http, chain: external }";
    let promise = promise(&format!("{{ counter: {{ rule: {rule}, at-least: 1 }} }}"));
    let promise = promise.unwrap_or_else(|said| panic!("{said}"));
    let Claim::Counter { counter, .. } = &promise.claim else {
        panic!("{promise:?}")
    };
    assert_eq!(
        counter.to_string(),
        "packets of nat KUBE-EXT-IU46S4VZFN77LK6S"
    );
}

#[test]
fn a_chain_is_called_after_the_namespace_that_a_case_has_in_the_end() {
    let promise = has_rule("service: test/nginx:http, chain: service, absent: true");
    let text = serde_json::to_string(&promise).unwrap();
    assert_eq!(serde_json::from_str::<Promise>(&text).unwrap(), promise);
    let moved = text.replace(r#""namespace":"test""#, r#""namespace":"run-test""#);
    let mut moved = query(&serde_json::from_str::<Promise>(&moved).unwrap()).clone();
    assert_eq!(moved.chain_name(), "KUBE-SVC-NR65SNKNNE56AA5S");
    moved.backend = Some(RuleBackend::Nftables);
    assert_eq!(
        moved.chain_name(),
        "service-MSH3SHBV-run-test/nginx/tcp/http"
    );
}

#[test]
fn a_history_from_before_services_were_named_is_read() {
    let text = r#"{ "table": "nat", "chain": "KUBE-SVC-IU46S4VZFN77LK6S", "jump": null }"#;
    let query: RuleQuery = serde_json::from_str(text).unwrap();
    assert_eq!(
        query.chain,
        RuleChain::Named("KUBE-SVC-IU46S4VZFN77LK6S".to_owned())
    );
    let written = serde_json::to_value(&query).unwrap();
    assert_eq!(written["chain"], "KUBE-SVC-IU46S4VZFN77LK6S");
}

#[test]
fn a_chain_of_a_service_that_is_not_there_is_a_mistake() {
    let mistakes = [
        (
            "service: test/ngnix:http, chain: service",
            "unknown service \"test/ngnix\"",
            "did you mean \"test/nginx\"?",
        ),
        (
            "service: nginx:http, chain: service",
            "unknown service \"default/nginx\"",
            "there are: test/nginx, default/web",
        ),
        (
            "service: test/nginx:htp, chain: service",
            "service test/nginx has no port \"htp\"",
            "did you mean \"test/nginx:http\"?",
        ),
        (
            "service: test/nginx, chain: service",
            "service test/nginx has no port without a name",
            "did you mean \"test/nginx:http\"?",
        ),
        (
            "service: web:http, chain: service",
            "service default/web has no port \"http\"",
            "did you mean \"default/web\"?",
        ),
        (
            "service: test/nginx:http, chain: KUBE-SVC-IU46S4VZFN77LK6S",
            "a service's chain cannot be \"KUBE-SVC-IU46S4VZFN77LK6S\"",
            "there are: service, local, external, firewall",
        ),
        // As a variant's overrides may leave it behind.
        (
            "backend: nftables, table: nat, service: test/nginx:http, chain: service",
            "chains of services are in the table kube-proxy",
            "leave it out",
        ),
        (
            "backend: nftables, family: inet, service: test/nginx:http, chain: service",
            "kube-proxy has a table of each family, and none for both",
            "write `family: ip` or `family: ip6`",
        ),
    ];
    for (fields, message, hint) in mistakes {
        let said = said_of(fields);
        let place = said.lines().next().unwrap();
        assert!(place.starts_with("chains.yaml:15:"), "{said}");
        assert!(place.ends_with(message), "{said}");
        assert!(
            said.contains(hint) && said.contains("\n1 mistake "),
            "{said}"
        );
    }
}

#[test]
fn what_a_promise_cannot_find_in_renamed_namespaces_is_skipped_there_with_the_reason() {
    let reason = |backend: &str, promise: &str| {
        let scenario = scenario(promise).unwrap_or_else(|said| panic!("{said}"));
        let choice = Choice {
            backend: backend.to_owned(),
            ..Choice::default()
        };
        match plan(&scenario, &choice, &Capabilities::default()).swap_remove(0) {
            Planned::Run(case) => case.id(),
            Planned::Skip(skipped) => skipped.reason(),
        }
    };
    let hash = "{ has-rule: { table: nat, chain: KUBE-SVC-IU46S4VZFN77LK6S, absent: true } }";
    let text = "{ no-log: { agent: kube-proxy, matches: 'test/nginx:http' } }";
    let service = "{ has-rule: { service: test/nginx:http, chain: service, absent: true } }";
    for (promise, named) in [
        (hash, "KUBE-SVC-IU46S4VZFN77LK6S"),
        (text, "the namespace test"),
    ] {
        let said = reason("cluster", promise);
        let why = format!("promise it names {named}, which is called otherwise");
        assert!(said.starts_with(&why), "{said}");
        assert!(!reason("kind", promise).contains("called otherwise"));
    }
    assert!(!reason("cluster", service).contains("called otherwise"));
}
