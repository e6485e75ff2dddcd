use serde_json::json;

use super::*;

fn config(env: &[(&str, &str)]) -> Config {
    let env = env
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()));
    Config {
        version: "v3.28.1".parse().unwrap(),
        node_name: "n1".to_owned(),
        env: env.collect(),
        ipv6: false,
        programs: false,
        seed: 1,
    }
}

fn resolve(spec: Json, env: &[(&str, &str)]) -> (Result<Params, Unusable>, Vec<String>) {
    let Json::Object(spec) = spec else {
        panic!("a spec is an object")
    };
    let mut log = Vec::new();
    let params = Params::resolve(&spec, &config(env), &mut log);
    (
        params,
        log.into_iter().map(|line| line.build().text).collect(),
    )
}

fn params(spec: Json, env: &[(&str, &str)]) -> Params {
    resolve(spec, env).0.unwrap()
}

#[test]
fn an_empty_configuration_gives_felix_defaults() {
    let params = params(json!({}), &[]);
    assert!(!params.is("BPFEnabled"));
    assert!(params.is("BPFKubeProxyIptablesCleanupEnabled"));
    assert!(params.is("BPFHostConntrackBypass"));
    assert_eq!(params.word("ChainInsertMode"), "insert");
    assert_eq!(params.word("DefaultEndpointToHostAction"), "DROP");
    assert_eq!(params.time("IptablesRefreshInterval").as_secs(), 180);
    assert_eq!(
        params.time("IptablesPostWriteCheckIntervalSecs").as_secs(),
        5
    );
    assert_eq!(params.number("IptablesMarkMask"), 0xffff_0000);
    assert_eq!(params.list("InterfacePrefix"), ["cali"]);
}

#[test]
fn the_api_is_read_and_the_environment_wins() {
    let spec = json!({
        "bpfEnabled": true,
        "iptablesRefreshInterval": "2s",
        "iptablesPostWriteCheckInterval": "1s",
        "chainInsertMode": "Append",
        "defaultEndpointToHostAction": "Return",
    });
    let params = params(
        spec,
        &[
            ("FELIX_BPFENABLED", "false"),
            ("felix_IptablesRefreshInterval", "0"),
        ],
    );
    assert!(!params.is("BPFEnabled"));
    assert_eq!(params.time("IptablesRefreshInterval"), Duration::ZERO);
    assert_eq!(
        params.time("IptablesPostWriteCheckIntervalSecs").as_secs(),
        1
    );
    assert_eq!(params.word("ChainInsertMode"), "append");
    assert_eq!(params.word("DefaultEndpointToHostAction"), "RETURN");
}

#[test]
fn an_invalid_value_falls_back_or_keeps_felix_from_starting() {
    let (params, log) = resolve(json!({"bpfEnabled": "perhaps"}), &[]);
    assert!(!params.unwrap().is("BPFEnabled"));
    assert!(
        log[0].starts_with("Replacing invalid value with default default=false error="),
        "{log:?}"
    );
    let (params, log) = resolve(json!({"chainInsertMode": "Middle"}), &[]);
    assert!(params.is_err());
    assert!(
        log[0].starts_with("Invalid (required) config value."),
        "{log:?}"
    );
}

#[test]
fn any_change_of_value_needs_a_restart_but_the_few_that_do_not() {
    let empty = params(json!({}), &[]);
    let restart = |spec: Json| empty.changes(&params(spec, &[])).1;
    assert!(restart(
        json!({"bpfKubeProxyIptablesCleanupEnabled": false})
    ));
    assert!(
        restart(json!({"bpfLogLevel": "Debug"})),
        "also for what the model does not act on"
    );
    assert!(
        !restart(json!({"bpfKubeProxyIptablesCleanupEnabled": true})),
        "the default, spelled out"
    );
    assert!(!restart(json!({"clusterType": "k8s"})));
    let shadowed = [("FELIX_BPFENABLED", "true")];
    let change =
        params(json!({}), &shadowed).changes(&params(json!({"bpfEnabled": false}), &shadowed));
    assert!(!change.1, "the environment hides the change");
}

#[test]
fn a_change_is_logged_as_felix_logs_it() {
    let old = params(json!({"bpfEnabled": true}), &[]);
    let (lines, _) = old.changes(&params(json!({"bpfEnabled": false}), &[]));
    let lines: Vec<String> = lines.into_iter().map(|line| line.build().text).collect();
    assert_eq!(
        lines,
        [
            "Configuration value changed; change DOES require Felix to restart. \
          key=\"BPFEnabled\" newValue=\"false\" oldValue=\"true\""
        ]
    );
}
