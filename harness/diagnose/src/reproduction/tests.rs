use chainbreak_model::read;

use super::*;
use crate::{
    checks::tests::{HEALTHY, evidence, without},
    examine,
};

fn scenario(texts: &[&str]) -> Result<String, String> {
    let evidence = evidence(texts);
    let found = examine(&evidence).findings;
    let reproduction = Reproduction::of(&evidence, &found)?;
    let text = reproduction.scenario("as-found");
    let file = std::path::Path::new("as-found.yaml");
    let no_manifests = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
    let read = read(file, text.as_bytes(), &no_manifests);
    assert!(read.is_ok(), "{text}\n{:?}", read.err());
    Ok(text)
}

#[test]
fn what_is_written_is_a_scenario_and_says_that_nothing_is_lost_where_nothing_is_found() {
    for text in HEALTHY {
        let written = scenario(&[text]).unwrap();
        assert!(
            written.contains("as-found: { expect: healthy }"),
            "{written}"
        );
    }
    let nothing = scenario(&["net.ipv4.ip_forward = 0\n"]);
    assert!(nothing.unwrap_err().contains("kube-proxy's rules"));
}

#[test]
fn a_jump_that_is_missing_is_deleted_and_a_restart_is_tried() {
    let cut = without(HEALTHY[0], &["-A PREROUTING", "-j KUBE-SERVICES"]);
    let written = scenario(&[&cut]).unwrap();
    for part in [
        "service/test/nginx",
        "- delete-rule: { node: n1, table: nat, chain: PREROUTING, matches: '-j KUBE-SERVICES'",
        "broken: [pod-0-is-answered",
        "kube-proxy-restarted:",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
    assert!(!written.contains("broken: [node-0"), "{written}");
}

#[test]
fn releases_and_settings_that_were_attached_are_the_scenarios() {
    let objects = "{\"kind\": \"List\", \"items\": [\
        {\"kind\": \"Pod\", \"spec\": {\"containers\": [{\"image\": \"registry.k8s.io/kube-proxy:v1.33.4-eks-1\"}, {\"image\": \"calico/node:v3.29.7\"}]}}, \
        {\"kind\": \"FelixConfiguration\", \"metadata\": {\"name\": \"default\"}, \"spec\": {\"bpfEnabled\": true}}]}";
    let written = scenario(&[HEALTHY[3], objects]).unwrap();
    for part in [
        "kube-proxy: { mode: nftables, version: \"1.33.4\" }",
        "calico: { version: v3.29.7, programs: work }",
        "felix: {\"bpfEnabled\":true}",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
}

#[test]
fn what_no_step_brings_about_is_named() {
    let counted = "cpu=0  \tfound=3 invalid=7 insert=0 insert_failed=2 drop=2 early_drop=0 error=0 search_restart=0\n";
    let written = scenario(&[HEALTHY[0], counted]).unwrap();
    assert!(
        written.contains("No step brings about: conntrack-insert-failed"),
        "{written}"
    );
}

#[test]
fn of_a_strangers_dump_nothing_but_plain_names_and_values_is_written() {
    let spec = "{\"logFilePath\": \"/etc/passwd\", \"dataplaneDriver\": \"sh\", \"logSeverityScreen\": \"Info\", \"bpfEnabled\": false}";
    let objects = format!(
        "{{\"kind\": \"List\", \"items\": [\
         {{\"kind\": \"FelixConfiguration\", \"metadata\": {{\"name\": \"default\"}}, \"spec\": {spec}}}, \
         {{\"kind\": \"Service\", \"metadata\": {{\"namespace\": \"a }}\\n  - run\", \"name\": \"web\"}}, \"spec\": {{\"clusterIP\": \"10.96.0.9\", \"ports\": [{{\"port\": 80}}]}}}}]}}"
    );
    let written = scenario(&[HEALTHY[0], &objects]).unwrap();
    assert!(
        written.contains("felix: {\"bpfEnabled\":false,\"logSeverityScreen\":\"Info\"}"),
        "{written}"
    );
    assert!(!written.contains("run"), "{written}");
}

#[test]
fn where_one_of_several_faults_is_not_mended_by_a_restart_none_is_tried() {
    let cut = without(HEALTHY[0], &["-A PREROUTING", "-j KUBE-SERVICES"]);
    let written = scenario(&[&cut, "net.ipv4.ip_forward = 0\n"]).unwrap();
    assert!(written.contains("net.ipv4.ip_forward: 0"), "{written}");
    assert!(!written.contains("kube-proxy-restarted"), "{written}");
}

const BLIND: &str = "{\"kind\": \"List\", \"items\": [\
    {\"kind\": \"Pod\", \"spec\": {\"containers\": [{\"image\": \"calico/node:v3.32.1\"}]}}, \
    {\"kind\": \"FelixConfiguration\", \"metadata\": {\"name\": \"default\"}, \"spec\": {\"bpfEnabled\": true}}, \
    {\"kind\": \"Service\", \"metadata\": {\"namespace\": \"default\", \"name\": \"kubernetes\"}, \"spec\": {\"clusterIP\": \"10.96.0.1\", \"ports\": [{\"name\": \"https\", \"port\": 443}]}}, \
    {\"kind\": \"EndpointSlice\", \"metadata\": {\"namespace\": \"default\", \"labels\": {\"kubernetes.io/service-name\": \"kubernetes\"}}, \
     \"ports\": [{\"name\": \"https\", \"port\": 6443}], \"endpoints\": [{\"addresses\": [\"10.0.0.9\"]}]}]}";

#[test]
fn a_map_that_leads_to_an_api_that_moved_is_brought_about_and_the_apis_own_address_is_tried() {
    let map = include_str!("../../../netfilter/tests/data/felix.nat");
    let written = scenario(&[HEALTHY[0], map, BLIND]).unwrap();
    for part in [
        "calico: { version: v3.32.1, api: service, programs: work }",
        "- api: move",
        "\"release\":\"second\"",
        "felix-asks-the-api-directly:",
        "- recreate: { agent: felix, api: direct }",
        "broken: [pod-0-is-answered, node-0-is-answered",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
    // There it finds the API again.
    let older = BLIND.replace("v3.32.1", "v3.28.1");
    let written = scenario(&[HEALTHY[0], map, &older]).unwrap();
    assert!(!written.contains("api: move"), "{written}");
    assert!(
        written.contains("No step brings about: nat-map-differs"),
        "{written}"
    );
    // Of the Services that differ alone, and where Felix has deleted jumps it is no step to do that.
    let web = BLIND.replace("]}]}]}", "]}]}, \
        {\"kind\": \"Service\", \"metadata\": {\"namespace\": \"shop\", \"name\": \"cart\"}, \"spec\": {\"clusterIP\": \"10.96.1.0\", \"ports\": [{\"port\": 80}]}}, \
        {\"kind\": \"EndpointSlice\", \"metadata\": {\"namespace\": \"shop\", \"labels\": {\"kubernetes.io/service-name\": \"cart\"}}, \
         \"ports\": [{\"port\": 80}], \"endpoints\": [{\"addresses\": [\"10.20.1.9\"]}]}]}");
    assert_ne!(web, BLIND);
    let cut = without(HEALTHY[0], &["-A PREROUTING", "-j KUBE-SERVICES"]);
    let written = scenario(&[&cut, map, &web]).unwrap();
    assert!(
        written.contains("to: service/shop/cart") && !written.contains("service/test/"),
        "{written}"
    );
    assert!(
        written.contains("felix-asks-the-api-directly") && !written.contains("delete-rule"),
        "{written}"
    );
}
