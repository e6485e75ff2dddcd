//! Bad input: every mistake at once, each where it stands, and never a panic.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use chainbreak_model::{Diagnostics, case::Step, read, scenario::Scenario};
use proptest::prelude::*;

const GOOD: &str = "\
name: good
about: nothing is wrong here
cluster:
  nodes: 2
  kube-proxy: { version: '1.32', sync-period: 5s }
  calico: { version: v3.28.1 }
  felix: { bpfEnabled: true }
  hosts: [outside]
manifests: [objects.yaml]
traffic:
  shop: { from: pod/client, to: service/test/web, port: 80, every: 5ms }
timeline:
  - settle: 1s
  - churn: { deployment: test/web, replicas: [3, 2], every: 2s, for: 4s }
promises:
  answers: { available: { traffic: shop, at-least: 99.9%, longest-gap: 500ms } }
  quiet: { no-log: { agent: kube-proxy, matches: 'Failed' } }
variants:
  incident: { expect: { broken: [answers] } }
  fixed: { felix: { bpfEnabled: false }, expect: healthy }
";

const OBJECTS: &str = "\
apiVersion: v1
kind: Pod
metadata: { name: client }
spec:
  containers: [{ name: client, image: busybox }]
---
apiVersion: apps/v1
kind: Deployment
metadata: { namespace: test, name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      containers: [{ name: nginx, image: nginx }]
---
apiVersion: v1
kind: Service
metadata: { namespace: test, name: web }
spec:
  selector: { app: web }
  ports: [{ name: http, port: 80 }]
";

fn reads(scenario: &[u8], objects: &str) -> Result<Scenario, Diagnostics> {
    let open = |path: &Path| match path.to_str() {
        Some("scenarios/objects.yaml") => Ok(objects.as_bytes().to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    read(Path::new("scenarios/bad.yaml"), scenario, &open)
}

/// What is said of a scenario.
fn said(scenario: impl AsRef<[u8]>) -> String {
    reads(scenario.as_ref(), OBJECTS)
        .expect_err("it is bad")
        .plain()
}

/// What is said of the good scenario with a text in it replaced.
fn said_of(good: &str, bad: &str) -> String {
    assert!(GOOD.contains(good), "{good}");
    said(GOOD.replace(good, bad))
}

/// What is said of the good manifests with a text in them replaced.
fn said_of_objects(good: &str, bad: &str) -> String {
    assert!(OBJECTS.contains(good), "{good}");
    reads(GOOD.as_bytes(), &OBJECTS.replace(good, bad))
        .expect_err("it is bad")
        .plain()
}

#[test]
fn the_good_scenario_is_good() {
    reads(GOOD.as_bytes(), OBJECTS).unwrap_or_else(|error| panic!("{}", error.plain()));
}

#[test]
fn objects_written_into_a_scenario_and_lists_of_objects_are_read() {
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}", {
        let objects = OBJECTS
            .split("---\n")
            .map(|object| object.trim_end().replace('\n', "\n    "));
        objects.fold(String::new(), |text, object| text + "  - " + &object + "\n")
    });
    let of_list = reads(GOOD.as_bytes(), &list).unwrap_or_else(|error| panic!("{}", error.plain()));
    let of_file =
        reads(GOOD.as_bytes(), OBJECTS).unwrap_or_else(|error| panic!("{}", error.plain()));
    assert_eq!(of_list, of_file);
    let inline = GOOD.replace(
        "[objects.yaml]",
        "[objects.yaml, { apiVersion: v1, kind: ConfigMap, metadata: { name: c }, data: { k: v } }]",
    );
    let inline =
        reads(inline.as_bytes(), OBJECTS).unwrap_or_else(|error| panic!("{}", error.plain()));
    let manifests = &inline.variants[0].run.manifests;
    assert_eq!(manifests.len(), 1 + 3 + 1, "the namespace test is added");
    assert_eq!(manifests[0]["metadata"]["name"], "test");
    assert_eq!(manifests[4]["data"]["k"], "v");
}

#[test]
fn files_that_are_no_scenario() {
    let mut invalid = GOOD.as_bytes().to_vec();
    invalid[20] = 0xff;
    insta::assert_snapshot!("empty", said(""));
    insta::assert_snapshot!("only_a_comment", said("# nothing\n---\n"));
    insta::assert_snapshot!("a_list", said("- a\n- b\n"));
    insta::assert_snapshot!("prose", said("Dear reader: this is: not YAML\n"));
    insta::assert_snapshot!("binary", said(b"\x7fELF\x01\x00\x00\x02"));
    insta::assert_snapshot!("tab", said_of("  nodes: 2", "\tnodes: 2"));
    insta::assert_snapshot!("unclosed", said_of("[objects.yaml]", "[objects.yaml"));
    insta::assert_snapshot!("invalid_utf8", said(invalid));
    insta::assert_snapshot!("two_documents", said(format!("{GOOD}---\nname: second\n")));
    insta::assert_snapshot!("tag", said_of("name: good", "name: !!binary good"));
    insta::assert_snapshot!(
        "duplicate_key",
        said_of("about: nothing", "name: again\nabout: nothing")
    );
}

#[test]
fn names_that_nothing_has() {
    insta::assert_snapshot!("unknown_field", said_of("timeline:", "timelin:"));
    insta::assert_snapshot!("unknown_pod", said_of("pod/client", "pod/clinet"));
    insta::assert_snapshot!("pod_of_a_deployment", said_of("pod/client", "pod/test/web"));
    insta::assert_snapshot!(
        "unknown_service",
        said_of("service/test/web", "service/web/test")
    );
    insta::assert_snapshot!("unknown_port", said_of("port: 80,", "port: 8080,"));
    insta::assert_snapshot!(
        "no_node_port",
        said_of("service/test/web", "node-port/n1/test/web")
    );
    insta::assert_snapshot!("unknown_node", said_of("pod/client", "node/n3"));
    insta::assert_snapshot!("unknown_host", said_of("pod/client", "host/outsid"));
    insta::assert_snapshot!("unknown_traffic", said_of("traffic: shop", "traffic: shpo"));
    insta::assert_snapshot!("unknown_promise", said_of("[answers]", "[answres]"));
    insta::assert_snapshot!(
        "unknown_deployment",
        said_of("test/web, replicas", "test/wbe, replicas")
    );
    insta::assert_snapshot!(
        "unknown_agent",
        said_of("agent: kube-proxy", "agent: kubeproxy")
    );
    insta::assert_snapshot!(
        "unknown_felix_field",
        said_of("bpfEnabled: true", "bpfEnable: true")
    );
    insta::assert_snapshot!("missing_file", said_of("objects.yaml", "object.yaml"));
}

#[test]
fn values_out_of_range() {
    insta::assert_snapshot!("percentage", said_of("99.9%", "101%"));
    insta::assert_snapshot!("no_percentage", said_of("99.9%", "0.999"));
    insta::assert_snapshot!("zero_distance", said_of("every: 5ms", "every: 0ms"));
    insta::assert_snapshot!("no_time", said_of("every: 5ms", "every: 5"));
    insta::assert_snapshot!("too_long", said_of("settle: 1s", "settle: 100h"));
    insta::assert_snapshot!("nodes", said_of("nodes: 2", "nodes: 0"));
    insta::assert_snapshot!("regex", said_of("'Failed'", "'Failed ('"));
    insta::assert_snapshot!("old_version", said_of("'1.32'", "'1.19'"));
    insta::assert_snapshot!("port", said_of("port: 80,", "port: 80000,"));
    insta::assert_snapshot!(
        "old_mode",
        said_of("version: '1.32'", "version: '1.30', mode: nftables")
    );
    insta::assert_snapshot!("periods", said_of("sync-period: 5s", "min-sync-period: 1m"));
    insta::assert_snapshot!(
        "real_full_sync_period",
        said_of(
            "sync-period: 5s",
            "source: /kube-proxy, full-sync-period: 5s"
        )
    );
}

#[test]
fn families_that_a_cluster_or_a_service_does_not_have() {
    let cluster = |families| said_of("nodes: 2", &format!("nodes: 2\n  ip-families: {families}"));
    insta::assert_snapshot!("families", cluster("[IPv6, ipv4]"));
    insta::assert_snapshot!("family_twice", cluster("[IPv6, IPv6]"));
    insta::assert_snapshot!("no_family", cluster("[]"));
    insta::assert_snapshot!(
        "family_of_traffic",
        said_of("port: 80, every", "port: 80, family: IPv6, every")
    );
    let both = GOOD.replace("nodes: 2", "nodes: 2\n  ip-families: [IPv4, IPv6]");
    let both = both.replace("port: 80, every", "port: 80, family: IPv6, every");
    insta::assert_snapshot!("family_of_a_service", said(both));
    insta::assert_snapshot!(
        "matrix_of_families",
        said_of(
            "timeline:",
            "matrix: { ip-family: [IPv4, both] }\ntimeline:"
        )
    );
}

#[test]
fn variants_and_promises_that_say_nothing() {
    let fixed = "{ felix: { bpfEnabled: false }, expect: healthy }";
    insta::assert_snapshot!(
        "overrides_nothing",
        said_of(fixed, "{ felix: { bpfEnabled: true }, expect: healthy }")
    );
    insta::assert_snapshot!("same_as_another", said_of(fixed, "{ expect: healthy }"));
    insta::assert_snapshot!("expects_nothing", said_of(fixed, "{ kube-proxy: none }"));
    insta::assert_snapshot!("empty_broken", said_of("broken: [answers]", "broken: []"));
    insta::assert_snapshot!("odd_expect", said_of("expect: healthy", "expect: fine"));
    insta::assert_snapshot!("two_kinds", said_of("{ no-log:", "{ has-log: {}, no-log:"));
    insta::assert_snapshot!(
        "felix_without_calico",
        said_of("  calico: { version: v3.28.1 }\n", "")
    );
    insta::assert_snapshot!(
        "mistake_in_a_variant",
        said_of(
            fixed,
            "{ traffic: { shop: { every: 5 } }, expect: healthy }"
        )
    );
    insta::assert_snapshot!(
        "matrix",
        said_of(
            "timeline:",
            "matrix: { iptable: [nft], kube-proxy: [1.30, 1.30, x], calico: [] }\ntimeline:"
        )
    );
    insta::assert_snapshot!(
        "matrices",
        said_of(
            "timeline:",
            "matrix: [{ iptables: [nft] }, { mode: [ipvs] }, nft]\ntimeline:"
        )
    );
    insta::assert_snapshot!(
        "matrix_of_kubernetes",
        said_of(
            "timeline:",
            "matrix: { kubernetes: [1.9], kube-proxy: [1.30], dataplane: [ebpf] }\ntimeline:"
        )
    );
    insta::assert_snapshot!("no_matrix", said_of("timeline:", "matrix: []\ntimeline:"));
}

#[test]
fn agents_that_nobody_can_be_and_versions_that_are_no_range() {
    insta::assert_snapshot!(
        "image",
        said_of(
            "{ version: v3.28.1 }",
            "{ version: v3.28.1, source: 'image:' }"
        )
    );
    insta::assert_snapshot!(
        "empty_source",
        said_of("{ version: v3.28.1 }", "{ version: v3.28.1, source: '' }")
    );
    insta::assert_snapshot!(
        "only",
        said_of(
            "fixed: {",
            "fixed: { only: { kube-proxy: 1.27, calico: '>=3.28', felix: '>=v3.28' },"
        )
    );
    insta::assert_snapshot!(
        "only_of_nobody",
        said_of(
            "fixed: {",
            "fixed: { kube-proxy: none, only: { kube-proxy: '>=1.27' },"
        )
    );
}

#[test]
fn commands_that_nobody_runs_are_not_slowed() {
    let slow = |step: &str| said_of("  - settle: 1s\n", &format!("  - slow: {step}\n"));
    insta::assert_snapshot!(
        "slow",
        slow("{ agent: kube-prox, command: iptable-restore, by: 500, for: 2h }")
    );
    insta::assert_snapshot!(
        "slow_at_no_point",
        slow("{ agent: felix, command: taking-changes, by: 1s, for: 1s }")
    );
    insta::assert_snapshot!(
        "slow_nobody",
        said_of(
            "fixed: { ",
            "fixed: { kube-proxy: none, timeline: [{ slow: { agent: kube-proxy, command: nft, by: 1s, for: 1s } }], "
        )
    );
}

#[test]
fn networks_that_cannot_be() {
    let hosts = |hosts: &str| said_of("hosts: [outside]", &format!("hosts: {{ {hosts} }}"));
    insta::assert_snapshot!(
        "host",
        hosts(
            "n1: {}, outside: { address: [], nginx: 0, addresses: [10.1], routes: [\
             { to: 10.1.2.3/16, via: n2 }, { to: 10.1.0.0/16, via: node/n3 }, \
             { to: 10.1.0.0/16, via: 'fd00::1' }, { to: all, via: host/outsid }, { to: 10.1.0.0/16 }] }"
        )
    );
    insta::assert_snapshot!(
        "silent_host",
        said_of("to: service/test/web", "to: host/outside")
    );
    insta::assert_snapshot!(
        "sysctls",
        said_of(
            "  nodes: 2",
            "  nodes: 2\n  sysctls: { kernel.panic: 1, net.ipv4.ip_forward: [1] }"
        )
    );
    insta::assert_snapshot!(
        "cni",
        said_of(
            "  nodes: 2",
            "  nodes: 2\n  cni: { profile: aws, randomize-snat: random, external-snat: maybe, vpc-cidrs: [10.1.2.3/16] }"
        )
    );
    insta::assert_snapshot!(
        "cni_beside_calico",
        said_of("  nodes: 2", "  nodes: 2\n  cni: { profile: aws-vpc }")
    );
}

#[test]
fn kube_proxys_settings_are_those_that_kube_proxy_has() {
    let with = |config: &str| {
        let settings = format!("version: '1.32', config: {{ {config} }}");
        said_of("version: '1.32'", &settings)
    };
    for (config, said) in [
        ("clusterCidr: ''", "config has no field \"clusterCidr\""),
        (
            "clusterCIDR: pods",
            "clusterCIDR is a network, not \"pods\"",
        ),
        (
            "detectLocalMode: Bridge",
            "detectLocalMode cannot be \"Bridge\"",
        ),
        (
            "detectLocalMode: BridgeInterface",
            "needs detectLocal.bridgeInterface",
        ),
        (
            "nodePortAddresses: [10.0.0.300/8]",
            "nodePortAddresses is a network",
        ),
        (
            "iptables: { masqueradeBit: 40 }",
            "masqueradeBit is a whole number from 0 to 31",
        ),
        (
            "conntrack: { tcpBeLiberal: 1 }",
            "tcpBeLiberal is true or false",
        ),
        ("conntrack: { udpTimeout: 5 }", "udpTimeout is a time"),
    ] {
        let text = with(config);
        assert!(text.contains(said), "{config}: {text}");
    }
    let hint = with("clusterCidr: ''");
    assert!(hint.contains("clusterCIDR"), "{hint}");
}

#[test]
fn settings_that_are_the_machines_and_settings_that_are_not() {
    let with = |settings: &str| said_of("  nodes: 2\n", &format!("  nodes: 2\n  {settings}\n"));
    insta::assert_snapshot!(
        "sysctl_of_the_machine",
        with("sysctls: { net.netfilter.nf_conntrack_max: 1000 }")
    );
    insta::assert_snapshot!(
        "host_sysctl_of_a_namespace",
        with("host-sysctls: { net.ipv4.ip_forward: 1 }")
    );
    insta::assert_snapshot!(
        "host_sysctl_out_of_range",
        with("host-sysctls: { net.netfilter.nf_conntrack_max: 0 }")
    );
}

#[test]
fn steps_that_cannot_be_played() {
    insta::assert_snapshot!(
        "marked_twice",
        said_of("  - settle: 1s", "  - mark: broken\n  - mark: broken")
    );
    insta::assert_snapshot!("odd_mark", said_of("  - settle: 1s", "  - mark: It breaks"));
    let faults = [
        "sysctl: { at: node/n3, set: { vm.swappiness: 1 } }",
        "fill-conntrack: { entries: all }",
        "link-down: { at: host/outsid, interface: much-too-long-a-name }",
        "loss: { at: pod/client, share: 0% }",
        "craft: { traffic: shpo, segment: out-of-windw, from: node/n1 }",
        "craft: { traffic: shop, segment: stray-handshake, from: pod/client }",
        "route: { at: node/n1, to: 10.20.0.0/33 }",
        "lock: { node: n1, until: 3s }",
        "stop: { agent: kubelet, for: 3 }",
        "restart: { agent: felix, for: 3s }",
        "flush: { table: KUBE-SVC, family: inet }",
        "delete-rule: { table: nat, chain: KUBE-SERVICES, matches: '(' }",
        "run: { as: The Admin, command: [] }",
        "apply: [{ apiVersion: v1, kind: StatefulSet, metadata: { name: web } }]",
        "delete: { kind: Service, namespace: test, name: wbe }",
    ];
    let faults = faults.map(|fault| format!("  - {fault}\n")).concat();
    insta::assert_snapshot!("faults", said_of("  - settle: 1s\n", &faults));
}

#[test]
fn an_object_can_be_deleted_that_was_declared_or_applied_before() {
    let steps = "  - apply: [{ apiVersion: v1, kind: ConfigMap, metadata: { name: late } }]
  - delete: { kind: ConfigMap, name: late }
  - delete: { kind: Service, namespace: test, name: web }
";
    let good = GOOD.replace("  - settle: 1s\n", steps);
    let scenario =
        reads(good.as_bytes(), OBJECTS).unwrap_or_else(|error| panic!("{}", error.plain()));
    let Step::Delete(service) = &scenario.variants[0].run.timeline[2] else {
        panic!("{:?}", scenario.variants[0].run.timeline);
    };
    assert_eq!(
        (service.api_version.as_str(), service.kind.as_str()),
        ("v1", "Service")
    );
    assert_eq!(
        (service.namespace.as_deref(), service.name.as_str()),
        (Some("test"), "web")
    );
    let early = GOOD.replace(
        "  - settle: 1s\n",
        steps.split_inclusive('\n').nth(1).unwrap(),
    );
    insta::assert_snapshot!("deleted_too_early", said(early));
}

/// What is said of a promise about the good scenario, whose timeline marks `broken` and then `healed`.
fn said_of_promise(promise: &str) -> String {
    let marked = GOOD.replace(
        "  - settle: 1s\n",
        "  - settle: 1s\n  - mark: broken\n  - settle: 1s\n  - mark: healed\n",
    );
    let (known, _) = marked
        .split_once("  quiet:")
        .expect("the good scenario has it");
    let (_, variants) = marked.split_once("variants:").expect("it has variants");
    said(format!("{known}  quiet: {promise}\nvariants:{variants}"))
}

#[test]
fn promises_that_nothing_can_break_prove_nothing() {
    let promises = [
        (
            "percent_nothing",
            "{ available: { traffic: shop, at-least: 0% } }",
        ),
        (
            "log_everything",
            "{ no-log: { agent: felix, matches: 'x*' } }",
        ),
        (
            "rule_everything",
            "{ has-rule: { table: nat, chain: X, matches: '' , backend: nft } }",
        ),
        (
            "at_least_0",
            "{ counter: { conntrack: drop, at-least: 0 } }",
        ),
        ("resets_0", "{ resets: { traffic: shop, at-least: 0 } }"),
        (
            "every_address",
            "{ source: { traffic: shop, is: 0.0.0.0/0 } }",
        ),
        (
            "every_port",
            "{ source-ports: { traffic: shop, within: 1-65535 } }",
        ),
        ("one_endpoint", "{ balance: { traffic: shop, over: 1 } }"),
        (
            "empty_window",
            "{ available: { traffic: shop, from: healed, until: broken } }",
        ),
        (
            "no_recovery",
            "{ recovers: { traffic: shop, after: healed, within: 1s, until: healed } }",
        ),
        (
            "late_recovery",
            "{ recovers: { traffic: shop, after: healed, within: 4s } }",
        ),
        (
            "long_gap",
            "{ available: { traffic: shop, at-least: 0%, longest-gap: 1m, from: broken } }",
        ),
    ];
    for (name, promise) in promises {
        insta::assert_snapshot!(name, said_of_promise(promise));
    }
    let kept = GOOD
        .replace("every: 5ms", "every: 5ms, connections: kept")
        .replace(
            "{ no-log: { agent: kube-proxy, matches: 'Failed' } }",
            "{ balance: { traffic: shop, over: 2 } }",
        );
    insta::assert_snapshot!("balance_of_one", said(kept));
}

#[test]
fn promises_of_what_is_not_there() {
    let promises = [
        (
            "unknown_mark",
            "{ has-log: { agent: felix, matches: x, from: brokn } }",
        ),
        ("unknown_kind", "{ sources: { traffic: shop } }"),
        (
            "rule_of_nowhere",
            "{ has-rule: { table: kube-proxy, chain: a b, node: n3, family: v4, backend: ebtables } }",
        ),
        (
            "no_set",
            "{ has-element: { table: kube-proxy, element: x, always: maybe } }",
        ),
        ("no_counter", "{ counter: { at: node/n1, at-most: 0 } }"),
        (
            "two_counters",
            "{ counter: { conntrack: drop, snmp: Tcp.OutRsts, at-least: 1 } }",
        ),
        ("no_bound", "{ counter: { conntrack: drops } }"),
        (
            "odd_snmp",
            "{ counter: { snmp: OutRsts, at-least: 3, at-most: 2 } }",
        ),
        ("nobodys_address", "{ source: { traffic: shop, is: n1 } }"),
        (
            "no_ports",
            "{ source-ports: { traffic: shop, within: 60999-32768 } }",
        ),
        (
            "no_probability",
            "{ balance: { traffic: shop, over: 2, p-at-least: 1 } }",
        ),
        ("no_end", "{ recovers: { traffic: shop, after: broken } }"),
    ];
    for (name, promise) in promises {
        insta::assert_snapshot!(name, said_of_promise(promise));
    }
}

#[test]
fn manifests_that_kubernetes_would_refuse() {
    insta::assert_snapshot!(
        "kind",
        said_of_objects("kind: Deployment", "kind: StatefulSet")
    );
    insta::assert_snapshot!("api_version", said_of_objects("apps/v1", "apps/v1beta1"));
    insta::assert_snapshot!(
        "manifest_field",
        said_of_objects("replicas: 2", "replica: 2")
    );
    insta::assert_snapshot!(
        "pinned_nowhere",
        said_of_objects(
            "containers: [{ name: client,",
            "nodeName: n7\n  containers: [{ name: client,"
        )
    );
    insta::assert_snapshot!(
        "deep_field",
        said_of_objects("image: nginx", "imgae: nginx")
    );
    insta::assert_snapshot!(
        "wrong_types",
        said_of_objects("replicas: 2", "replicas: two\n  paused: 3")
    );
    insta::assert_snapshot!(
        "selector",
        said_of_objects("labels: { app: web }", "labels: { app: wbe }")
    );
    insta::assert_snapshot!(
        "no_name",
        said_of_objects("metadata: { name: client }", "metadata: {}")
    );
    insta::assert_snapshot!(
        "bad_name",
        said_of_objects("name: client }\n", "name: Client_1 }\n")
    );
    insta::assert_snapshot!(
        "twice",
        said_of_objects(
            "namespace: test, name: web }\nspec:\n  selector: { app: web }\n",
            "namespace: test, name: web }\nspec:\n  ports: [{ port: 80 }]\n---\napiVersion: v1\nkind: Service\nmetadata: { namespace: test, name: web }\nspec:\n"
        )
    );
    insta::assert_snapshot!(
        "unable",
        said_of_objects("[{ name: nginx, image: nginx }]", UNABLE)
    );
    insta::assert_snapshot!(
        "status",
        said_of_objects(
            "  ports: [{ name: http, port: 80 }]\n",
            "  ports: [{ name: http, port: 80 }]\nstatus:\n  loadBalancer: { ingress: [{ ip: 192.0.2.1 }] }\n"
        )
    );
    insta::assert_snapshot!(
        "no_object",
        reads(GOOD.as_bytes(), "").expect_err("it is bad").plain()
    );
}

#[test]
fn networks_that_nobody_could_wire() {
    let pool =
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: { name: p }\nspec: {}\n---\n";
    let pool = reads(GOOD.as_bytes(), &format!("{pool}{OBJECTS}")).expect_err("it is bad");
    insta::assert_snapshot!("no_cidr", pool.plain());
    let overlay = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: { name: p }\n\
                   spec: { cidr: 10.9.1.0/16, vxlanMode: Alway, ipipMode: Always, natOutgoing: 1, nodeselector: all() }\n---\n";
    let overlay = reads(GOOD.as_bytes(), &format!("{overlay}{OBJECTS}")).expect_err("it is bad");
    insta::assert_snapshot!("overlay", overlay.plain());
    let overlapping = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: { name: p }\n\
                       spec: { cidr: 10.9.0.0/20 }\n---\n";
    let second = overlapping.replace("name: p", "name: q");
    let overlapping = reads(GOOD.as_bytes(), &format!("{overlapping}{second}{OBJECTS}"));
    insta::assert_snapshot!(
        "overlapping_pools",
        overlapping.expect_err("it is bad").plain()
    );
    let annotated = |annotations: &str| {
        let good = "metadata: { name: client }";
        let bad = format!("metadata:\n  name: client\n  annotations:\n{annotations}");
        said_of_objects(good, &bad)
    };
    insta::assert_snapshot!(
        "pod_network",
        annotated("    k8s.v1.cni.cncf.io/networks: underlay")
    );
    insta::assert_snapshot!(
        "unknown_pool",
        annotated("    cni.projectcalico.org/ipv4pools: '[\"overlay\"]'")
    );
}

/// A pod that asks for what Kubernetes has and the lab has not; the last mount alone is kept, as every
/// container sees its node's files.
const UNABLE: &str = "
      - name: nginx
        image: nginx
        readinessProbe: { httpGet: { path: /, port: 80 } }
        lifecycle: { postStart: { exec: { command: [sync] } } }
        envFrom: [{ configMapRef: { name: c } }]
        env:
        - { name: KEPT, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
        - { name: KEY, valueFrom: { configMapKeyRef: { name: c, key: k } } }
        - { name: ARCH, valueFrom: { fieldRef: { fieldPath: spec.arch } } }
        ports: [{ containerPort: 80, hostPort: 8080 }]
        volumeMounts:
        - { name: conf, mountPath: /etc/nginx }
        - { name: lock, mountPath: /run/xtables.lock }
      initContainers: [{ name: first, image: busybox }]
      volumes:
      - { name: conf, configMap: { name: c } }
      - { name: lock, hostPath: { path: /run/xtables.lock } }";

#[test]
fn every_mistake_of_a_file_is_said_at_once() {
    let bad = GOOD
        .replace("about:", "abuot:")
        .replace("pod/client", "pod/clinet")
        .replace("99.9%", "999%")
        .replace("settle: 1s", "settle: never")
        .replace("[answers]", "[answer]")
        .replace("version: '1.32'", "version: latest");
    let objects = OBJECTS
        .replace("ports:", "port:")
        .replace("image: busybox", "imag: busybox");
    let diagnostics = reads(bad.as_bytes(), &objects).expect_err("it is bad");
    insta::assert_snapshot!(diagnostics.plain());
    let mut fancy = String::new();
    miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor())
        .with_width(100)
        .render_report(&mut fancy, &diagnostics)
        .unwrap();
    insta::assert_snapshot!("for_terminals", fancy);
}

/// No file takes longer than this to refuse, on any machine we test on: each is read in time linear
/// in its bounded size.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn huge_deep_and_exploding_files_are_refused_in_bounded_time() {
    let bomb: String = (0..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
        let next = i + 1;
        text + &format!("a{next}: &a{next} [*a{i}, *a{i}, *a{i}]\n")
    });
    let keys = |count: usize| {
        (0..count).fold(String::new(), |text, i| {
            text + &format!(
                "k{i}: 1
"
            )
        })
    };
    let garbage: Vec<u8> = (0..10_000_000_u64)
        .map(|i| i.wrapping_mul(0x9e37_79b9).to_be_bytes()[5])
        .collect();
    let files: Vec<Vec<u8>> = vec![
        garbage.clone(),
        garbage
            .iter()
            .take(2_000_000)
            .map(|byte| byte % 94 + 32)
            .collect(),
        vec![b'a'; 10_000_000],
        vec![b'a'; 2_000_000],
        vec![b'['; 2_000_000],
        b"- ".repeat(1_000_000),
        b"a: {".repeat(500_000),
        b"a:\n".repeat(600_000),
        b"? ".repeat(1_000_000),
        b"'".repeat(2_000_000),
        b"\n".repeat(2_000_000),
        b"# \n".repeat(600_000),
        b"--- \n".repeat(400_000),
        keys(150_000).into_bytes(),
        format!("{GOOD}{}", keys(150_000)).into_bytes(),
        format!(
            "{GOOD}{}",
            (0..60_000).fold(String::new(), |text, i| text
                + &format!("  v{i}: {{ expect: healthy }}\n"))
        )
        .into_bytes(),
        bomb.into_bytes(),
        b"a: &a [*a]\n".to_vec(),
        b"*a\n".to_vec(),
    ];
    for file in files {
        let start = Instant::now();
        let said = said(&file);
        let head = String::from_utf8_lossy(&file[..file.len().min(12)]).into_owned();
        assert!(
            start.elapsed() < PATIENCE,
            "{head:?} took {:?}",
            start.elapsed()
        );
        assert!(said.len() < 50_000, "{head:?} says {} bytes", said.len());
    }
}

/// A scenario with some of its bytes, lines or words changed.
fn mutated() -> impl Strategy<Value = String> {
    let words = prop_oneof![
        Just(String::new()),
        Just("&a *a".to_owned()),
        Just("none".to_owned()),
        Just("null".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("{ broken: [x] }".to_owned()),
        Just("<<: *a".to_owned()),
        Just("é\u{feff}🦀\u{85}".to_owned()),
        "[ -~\t\n]{0,8}",
    ];
    proptest::collection::vec((any::<prop::sample::Index>(), 0..24_usize, words), 1..4).prop_map(
        |edits| {
            let mut text: Vec<char> = GOOD.chars().collect();
            for (at, length, word) in edits {
                let at = at.index(text.len());
                let end = (at + length).min(text.len());
                text.splice(at..end, word.chars());
            }
            text.into_iter().collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Rendering is exercised as well: spans must lie within their files.
    #[test]
    fn mutated_scenarios_never_panic(scenario in mutated(), objects in mutated()) {
        for (scenario, objects) in [(scenario.as_str(), OBJECTS), (GOOD, objects.as_str())] {
            if let Err(diagnostics) = reads(scenario.as_bytes(), objects) {
                let fancy = format!("{:?}", miette::Report::new(diagnostics.clone()));
                prop_assert!(diagnostics.iter().count() > 0);
                prop_assert!(!diagnostics.plain().is_empty() && !fancy.is_empty());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Err(diagnostics) = reads(&bytes, OBJECTS) {
            prop_assert!(!diagnostics.plain().is_empty());
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Err(diagnostics) = reads(GOOD.as_bytes(), &text) {
            prop_assert!(!diagnostics.plain().is_empty());
        }
    }
}

#[test]
fn upgrades_and_switches_that_nothing_can_come_of_are_said() {
    let step = |step: &str| said_of("- settle: 1s", step);
    let said = [
        step("- upgrade: { node: n1 }"),
        step("- upgrade: { kube-proxy: v1.33, calico: '3.29' }"),
        step("- upgrade: { kube-proxy: '1.32', node: n3 }"),
        step("- upgrade: { felix: v3.29.7 }"),
        step("- upgrade: { calico: v3.29.7 }\n  - upgrade: { calico: v3.29.7, node: n2 }"),
        step("- switch: { dataplane: bpf }"),
        step("- switch: { dataplane: ebpf }"),
        step(
            "- switch: { dataplane: iptables }\n  - felix: { bpfEnabled: true }\n  - switch: { dataplane: bpf }",
        ),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn an_upgrade_of_what_is_not_there_or_to_what_has_no_such_mode_is_said() {
    let upgrade = "timeline:\n  - upgrade: { kube-proxy: '1.30', calico: v3.29.7 }";
    let with = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        said(GOOD.replace("timeline:", upgrade).replace(from, to))
    };
    let said = [
        with(
            "kube-proxy: { version",
            "kube-proxy: { mode: nftables, version",
        ),
        with(
            "  calico: { version: v3.28.1 }\n  felix: { bpfEnabled: true }\n",
            "",
        ),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn promises_about_steps_that_have_no_name_or_no_end_are_said() {
    let steps = "- settle: 1s\n  - name: new\n    upgrade: { calico: v3.29.7 }\n  - mark: later";
    let promise = |window: &str| {
        let answers = "longest-gap: 500ms }";
        let windowed = format!("longest-gap: 500ms, {window} }}");
        let good = GOOD.replace("- settle: 1s", steps);
        assert!(good.contains(answers));
        good.replace(answers, &windowed)
    };
    for good in [
        "during: new",
        "after: new",
        "after: later",
        "after: new, until: later",
        "until: new",
    ] {
        let read = reads(promise(good).as_bytes(), OBJECTS);
        read.unwrap_or_else(|error| panic!("{}", error.plain()));
    }
    let said = [
        said(promise("during: later")),
        said(promise("during: neww")),
        said(promise("after: neww")),
        said(promise("after: later, until: new")),
        said(promise("during: new, from: later, until: later")),
        said(promise("after: new, from: later")),
        said_of(
            "- settle: 1s",
            "- name: frozen\n    pause: { agent: felix, for: 1s }",
        ),
        said_of("- settle: 1s", "- name: one\n    mark: two"),
        said_of("- settle: 1s", "- name: one\n    settle: 1s\n  - mark: one"),
        said_of("- settle: 1s", "- name: Über\n    settle: 1s"),
        said_of("- settle: 1s", "- name: alone"),
        said_of("- settle: 1s", "- name: one\n    settle: 1s\n    felix: {}"),
    ];
    insta::assert_snapshot!(said.join("\n"));
}
