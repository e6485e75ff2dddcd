use chainbreak_model::{case::Symptom, names::AgentName};
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    checks::tests::{HEALTHY, evidence, service, without},
    examine,
};

fn likeness(texts: &[&str], signature: &[Sign]) -> Likeness {
    let evidence = evidence(texts);
    let findings = examine(&evidence).findings;
    Likeness::of_signs(&Node::new(&evidence, &findings), signature)
}

/// The signs that are there.
fn there(likeness: &Likeness) -> Vec<&str> {
    likeness.seen.iter().map(|it| it.sign.as_str()).collect()
}

/// Where the first one is.
fn place(likeness: &Likeness) -> &str {
    likeness.seen[0].seen.as_deref().unwrap()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other}"),
    }
}

fn of(which: Which, matches: &str) -> Sign {
    let matches = matches.to_owned();
    Sign::Rule { matches, which }
}

fn rule(matches: &str) -> Sign {
    of(Which::Iptables, matches)
}

fn no(sign: Sign) -> Sign {
    Sign::Not(Box::new(sign))
}

fn logged(matches: &str) -> Sign {
    Sign::Logged {
        agent: AgentName::KubeProxy,
        matches: matches.to_owned(),
    }
}

#[test]
fn what_is_seen_speaks_for_it_what_is_not_against_it_and_what_was_not_attached_is_not_known() {
    let save = without(HEALTHY[0], &["-A PREROUTING", "KUBE-SERVICES"]);
    let signs = [
        Sign::Found(Symptom::JumpMissing),
        rule("^nat KUBE-POSTROUTING .*MASQUERADE"),
        no(rule("cali-")),
        Sign::Found(Symptom::ServicesEmpty),
        no(rule("KUBE-SVC-")),
        Sign::Found(Symptom::NatMapDiffers),
        Sign::Found(Symptom::RestoreFails),
        no(logged("x")),
        Sign::Object(object(json!({ "kind": "Service" }))),
    ];
    let found = likeness(&[&save], &signs);
    let signs = [
        "jump-missing",
        "rule /^nat KUBE-POSTROUTING .*MASQUERADE/",
        "no rule /cali-/",
    ];
    assert_eq!(there(&found), signs);
    let rule = found.seen[1].seen.as_deref().unwrap();
    assert!(
        rule.starts_with("nat KUBE-POSTROUTING -m comment"),
        "{rule}"
    );
    assert_eq!(found.against, ["services-empty", "no rule /KUBE-SVC-/"]);
    let unknown = [
        "nat-map-differs",
        "restore-fails",
        "no entry of kube-proxy /x/",
        "Service with {}",
    ];
    assert_eq!(found.unknown, unknown);
}

#[test]
fn the_last_entry_of_a_log_that_matches_is_told() {
    let line = |second: u8, text: &str| {
        format!("I1129 15:33:{second}.073207       1 proxier.go:806] \"{text}\"\n")
    };
    let log = [line(47, "one"), line(48, "two"), line(49, "three")].concat();
    let found = likeness(&[&log], &[logged("one|two"), logged("four")]);
    assert_eq!(place(&found), line(48, "two").trim_end());
    assert_eq!(found.against, ["entry of kube-proxy /four/"]);
}

#[test]
fn a_rule_that_counts_is_not_known_only_where_it_is_there_without_counters() {
    let save = |counters: &str| {
        format!(
            "*filter\n:FORWARD ACCEPT [0:0]\n{counters}-A FORWARD -s 10.0.0.0/8 -j DROP\nCOMMIT\n"
        )
    };
    let counted = |matches| [of(Which::Counted, matches)];
    let drops = counted("-j DROP");
    assert_eq!(likeness(&[&save("")], &drops).unknown.len(), 1);
    assert_eq!(likeness(&[&save("[0:0] ")], &drops).against.len(), 1);
    let found = likeness(&[&save("[3:180] ")], &drops);
    assert_eq!(
        place(&found),
        "filter FORWARD -s 10.0.0.0/8 -j DROP: 3 packets"
    );
    assert_eq!(likeness(&[&save("")], &counted("ACCEPT")).against.len(), 1);
}

#[test]
fn that_a_rule_is_not_there_is_known_only_of_tables_that_were_listed() {
    let (save, nft) = (HEALTHY[0], HEALTHY[3]);
    let signs = [
        no(rule("^nat AWS-SNAT-CHAIN")),
        no(of(Which::Nft, "^calico ")),
    ];
    assert_eq!(
        likeness(&[save], &signs).unknown,
        ["no rule of nftables /^calico /"]
    );
    assert_eq!(
        likeness(&[nft], &signs).unknown,
        ["no rule /^nat AWS-SNAT-CHAIN/"]
    );
    let found = likeness(&[nft], &[of(Which::Nft, "^kube-proxy services$")]);
    assert_eq!(place(&found), "kube-proxy services");
}

#[test]
fn a_finding_is_not_there_only_where_it_would_have_been_found() {
    let known = |texts: &[&str]| {
        let signs = Symptom::ALL.map(|(_, symptom)| Sign::Found(symptom));
        likeness(texts, &signs).against
    };
    let of_saves = [
        "jump-missing",
        "services-empty",
        "service-leads-nowhere",
        "felix-cleans-up",
    ];
    assert_eq!(known(&[HEALTHY[0]]), of_saves);
    let of_nft = [
        "service-leads-nowhere",
        "chains-missing",
        "elements-missing",
        "felix-cleans-up",
    ];
    assert_eq!(known(&[HEALTHY[3]]), of_nft);
    let log = "I1129 15:33:47.073207       1 proxier.go:806] \"one\"\n";
    let of_kube_proxy = [
        "restore-fails",
        "kernel-lacks",
        "mode-refused",
        "api-unreachable",
        "port-taken",
        "lock-held",
    ];
    assert_eq!(known(&[log]), of_kube_proxy);
}

#[test]
fn an_object_has_what_a_part_of_it_says() {
    let [it, slice] = service(
        ("test", "web"),
        "10.96.1.0",
        ("http", 80, 80),
        &["10.20.1.2"],
    );
    let texts = [it.to_string(), slice.to_string()];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let sees = |spec: Value| {
        let part = json!({ "kind": "Service", "spec": spec });
        let found = likeness(&texts, &[Sign::Object(object(part))]);
        found
            .seen
            .first()
            .is_some_and(|it| it.seen.as_deref() == Some("test/web"))
    };
    assert!(sees(json!({ "clusterIP": "10.96.1.0" })));
    assert!(sees(json!({ "ports": [{ "port": 80 }] })));
    assert!(!sees(json!({ "ports": [{ "port": 81 }] })));
    assert!(sees(json!({ "clusterIP": null })));
    assert!(!sees(json!({ "externalTrafficPolicy": null })));
    assert!(!sees(
        json!({ "clusterIP": "10.96.1.0", "type": "NodePort" })
    ));
}

#[test]
fn any_of_several_is_enough_and_that_none_is_there_is_known_only_if_each_is() {
    let any = |signs: &[Sign]| Sign::Any(signs.to_vec());
    let (here, gone) = (rule("KUBE-SVC-"), rule("cali-"));
    let found = likeness(
        &[HEALTHY[0]],
        &[
            any(&[gone.clone(), logged("x"), here]),
            any(&[gone.clone(), logged("x")]),
            any(&[gone.clone(), gone]),
        ],
    );
    assert_eq!(there(&found), ["rule /KUBE-SVC-/"]);
    assert_eq!([&found.unknown, &found.against].map(Vec::len), [1, 1]);
    assert_eq!(found.weight, 1, "of what is there");
}

#[test]
fn how_something_is_set_up_makes_no_node_like_an_incident_and_a_sign_counts_once() {
    let save = without(HEALTHY[0], &["-A PREROUTING", "KUBE-SERVICES"]);
    let of = |signs: &[Sign]| likeness(&[&save], signs);
    let jump = || Sign::Found(Symptom::JumpMissing);
    assert!(!of(&[]).is_likely());
    assert!(!of(&[rule("KUBE-SVC-"), rule("KUBE-SEP-"), rule("KUBE-MARK-MASQ")]).is_likely());
    assert!(!of(&[no(rule("cali-"))]).is_likely());
    assert!(of(&[jump()]).is_likely());
    assert_eq!(of(&[jump(), Sign::Any(vec![jump()])]).weight, 3);
    // As much is not known as is.
    assert!(!of(&[jump(), logged("x")]).is_likely());
    assert!(of(&[jump(), rule("KUBE-SVC-"), logged("x")]).is_likely());
    assert!(!of(&[jump(), rule("cali-")]).is_likely());
    assert!(of(&[jump(), rule("cali-")]).is_worth_a_word());
}

#[test]
fn what_less_speaks_against_is_liker_then_what_more_speaks_for() {
    let save = without(HEALTHY[0], &["-A PREROUTING", "KUBE-SERVICES"]);
    let rank = |signs: &[Sign]| likeness(&[&save], signs).rank();
    let jump = || Sign::Found(Symptom::JumpMissing);
    let more = rank(&[jump(), rule("KUBE-SVC-")]);
    let less = rank(&[jump()]);
    let in_doubt = rank(&[jump(), rule("KUBE-SVC-"), logged("x")]);
    let against = rank(&[jump(), rule("KUBE-SVC-"), rule("cali-")]);
    assert!(more < less && less < in_doubt && in_doubt < against);
}
