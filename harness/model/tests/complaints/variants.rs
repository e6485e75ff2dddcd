//! Variants and matrices that say nothing, or of what nobody can be.

use crate::good::said_of;

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
    insta::assert_snapshot!(
        "unknown_culprit",
        said_of("broken: [answers]", "broken: [answers], by: felx")
    );
    insta::assert_snapshot!(
        "healthy_by_somebody",
        said_of("expect: healthy", "expect: { by: felix }")
    );
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
            "matrix: [{ iptables: [nft] }, { mode: [userspace] }, nft]\ntimeline:"
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
