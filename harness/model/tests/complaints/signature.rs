//! `signature:`.

use crate::good::{GOOD, OBJECTS, reads, said};

fn signed(signs: &str) -> String {
    GOOD.replace("cluster:\n", &format!("signature: [{signs}]\ncluster:\n"))
}

#[test]
fn signs_are_of_findings_logs_rules_and_objects() {
    let signs = "jump-missing, { kube-proxy-logs: 'load target' }, { felix-logs: panic }, { nft-rule: '^kube-proxy ' }, { rule: 'nat POSTROUTING .*MASQUERADE' }, \
        { counted: '-j DROP' }, { object: { kind: Service, spec: { type: NodePort } } }, { felix: { bpfEnabled: true } }, \
        { any: [restore-fails, { rule: cali- }] }, { not: nat-map-differs }, { not: { counted: cali- } }";
    let read = reads(signed(signs).as_bytes(), OBJECTS).unwrap();
    let told: Vec<String> = read.signature.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    jump-missing
    entry of kube-proxy /load target/
    entry of felix /panic/
    rule of nftables /^kube-proxy /
    rule /nat POSTROUTING .*MASQUERADE/
    rule with packets /-j DROP/
    Service with {"spec":{"type":"NodePort"}}
    FelixConfiguration with {"bpfEnabled":true}
    restore-fails or rule /cali-/
    no nat-map-differs
    no rule with packets /cali-/
    "#);
}

#[test]
fn what_is_no_sign() {
    insta::assert_snapshot!("no_symptom", said(signed("jump-mising")));
    insta::assert_snapshot!("no_sign", said(signed("{ rules: cali- }")));
    insta::assert_snapshot!("no_expression_of_a_rule", said(signed("{ rule: '(' }")));
    insta::assert_snapshot!(
        "no_sign_of_a_sign",
        said(signed("{ any: [{ not: jump-missing }] }"))
    );
    insta::assert_snapshot!(
        "two_signs_in_one",
        said(signed("{ not: jump-missing, rule: cali- }"))
    );
    insta::assert_snapshot!(
        "no_object",
        said(signed("{ object: { spec: { type: NodePort } } }"))
    );
}
