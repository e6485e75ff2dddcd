//! Names that nothing has, and values that no field takes.

use crate::good::said_of;

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
