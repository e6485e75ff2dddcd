//! Steps that cannot be played.

use chainbreak_model::case::Step;

use crate::good::{GOOD, OBJECTS, reads, said, said_of};

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
        "recreate: { agent: kube-proxy, api: direct }",
        "reboot: { node: n1, begin: [kube-proxy, kube-proxy], after: 3s }",
        "reboot: { begin: [kubelet] }",
        "reboot: { begin: [] }",
        "flush: { table: KUBE-SVC, family: inet }",
        "delete-rule: { table: nat, chain: KUBE-SERVICES, matches: '(' }",
        "run: { as: The Admin, command: [] }",
        "apply: [{ apiVersion: v1, kind: StatefulSet, metadata: { name: web } }]",
        "delete: { kind: Service, namespace: test, name: wbe }",
        "api: moove",
    ];
    let faults = faults.map(|fault| format!("  - {fault}\n")).concat();
    insta::assert_snapshot!("faults", said_of("  - settle: 1s\n", &faults));
}

#[test]
fn a_step_cannot_begin_before_those_before_it_are_over() {
    let steps = |steps: &str| said_of("  - settle: 1s\n", steps);
    let early = steps("  - settle: 2s\n  - { at: 1s, mark: later }\n");
    assert!(early.contains("the steps before it take 2s"), "{early}");
    let after_another = steps("  - { at: 3s, mark: later }\n  - { at: 2s, settle: 1s }\n");
    assert!(after_another.contains("take 3s"), "{after_another}");
    let no_time = steps("  - { at: later, settle: 1s }\n");
    assert!(no_time.contains("at is a time, not \"later\""), "{no_time}");
    let steps = "  - settle: 1s\n  - { at: 2s, name: rest, settle: 1s }\n";
    let scenario = GOOD.replace("  - settle: 1s\n", steps);
    let read = reads(scenario.as_bytes(), OBJECTS).unwrap();
    let timeline = &read.variants.values().next().unwrap().run.timeline;
    let at = timeline
        .iter()
        .position(|it| matches!(it, Step::At(_)))
        .unwrap();
    assert!(
        matches!(timeline[at + 1], Step::Mark(_)),
        "its name begins with it"
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
