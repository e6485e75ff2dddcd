//! Clusters that cannot be: their families, their networks, their settings.

use chainbreak_model::case::{ApiWay, Bpffs, Programs};

use crate::good::{GOOD, OBJECTS, reads, said, said_of};

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

/// The kernel lets nobody set it back.
#[test]
fn no_node_sets_what_stays_set_on_the_whole_machine() {
    let spellings = [
        "net.netfilter.nf_hooks_lwtunnel",
        "net.netfilter/nf_hooks_lwtunnel",
        "net.netfilter./nf_hooks_lwtunnel",
    ];
    for name in spellings {
        let sysctls = format!("  nodes: 2\n  sysctls: {{ {name}: 1 }}");
        let said = said_of("  nodes: 2", &sysctls);
        let words = format!("{name} is the whole machine's, and cannot be set back");
        assert!(said.contains(&words), "{said}");
    }
}

#[test]
fn felixs_surroundings_are_those_that_felix_has() {
    let with = |calico: &str| said_of("version: v3.28.1", &format!("version: v3.28.1, {calico}"));
    for (calico, said) in [
        ("api: servic", "api cannot be \"servic\""),
        ("bpffs: pod", "bpffs cannot be \"pod\""),
        (
            "env: { FELIX_INTERFACEPREFX: eni }",
            "did you mean FELIX_INTERFACEPREFIX?",
        ),
        (
            "env: { felix_loglevel: x }",
            "is not the name of a variable",
        ),
        ("env: { 1X: x }", "is not the name of a variable"),
    ] {
        assert!(with(calico).contains(said), "{calico}: {}", with(calico));
    }
    let good = "env: { FELIX_BPFENABLED: 'true', FELIX_TYPHAADDR: '', GODEBUG: x }, api: service, programs: work, bpffs: none";
    let good = GOOD.replace("version: v3.28.1", &format!("version: v3.28.1, {good}"));
    let read = reads(good.as_bytes(), OBJECTS).expect("it is good");
    let calico = read
        .variants
        .values()
        .next()
        .and_then(|it| it.run.cluster.calico.clone());
    let calico = calico.expect("there is one");
    assert_eq!(calico.api, ApiWay::Service);
    assert_eq!(calico.programs, Some(Programs::Work));
    assert_eq!(calico.bpffs, Bpffs::Own);
    assert_eq!(calico.env["FELIX_BPFENABLED"], "true");
}
