//! Who changed what, told from commands.

use chainbreak_netfilter::{Change, ChangeKind, Family, changes, committed};
use proptest::prelude::*;

const NOFLUSH: [&str; 2] = ["iptables-restore", "--noflush"];
/// What Felix on the nft backend writes to remove kube-proxy's service chain (Calico v3.28.1,
/// `felix/iptables/table.go`): a second transaction deletes what the first unlinked.
const FELIX_CLEANUP: &str = "*nat\n\
    :KUBE-SERVICES - -\n\
    :KUBE-SVC-IU46S4VZFN77LK6S - -\n\
    -D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
    -R cali-PREROUTING 1 -m comment --comment \"cali:6gwbT8clXdHdC1b1\" --jump cali-fip-dnat\n\
    -D cali-PREROUTING 2\n\
    COMMIT\n\
    *nat\n\
    :KUBE-SERVICES - -\n\
    --delete-chain KUBE-SERVICES\n\
    --delete-chain KUBE-SVC-IU46S4VZFN77LK6S\n\
    COMMIT\n";

fn kinds<'a>(changes: &'a [Change], chain: &str) -> Vec<&'a ChangeKind> {
    changes
        .iter()
        .filter(|change| change.chain == chain)
        .map(|change| &change.kind)
        .collect()
}

#[test]
fn felix_deletes_the_jump_and_the_chains() {
    let changes = changes(&NOFLUSH, FELIX_CLEANUP).unwrap();
    assert!(
        changes
            .iter()
            .all(|c| c.table == "nat" && c.family == Family::V4)
    );
    assert_eq!(
        kinds(&changes, "KUBE-SERVICES"),
        [
            &ChangeKind::ChainDeclared,
            &ChangeKind::ChainDeclared,
            &ChangeKind::ChainDeleted
        ]
    );
    let unlinking: Vec<_> = changes
        .iter()
        .filter(|c| c.unlinks("nat", "PREROUTING", "KUBE-SERVICES"))
        .collect();
    assert_eq!(unlinking.len(), 1);
    assert!(changes[0].empties("nat", "KUBE-SERVICES"));
    assert!(!changes[0].empties("filter", "KUBE-SERVICES"));
    let own = kinds(&changes, "cali-PREROUTING");
    assert!(
        matches!(own[0], ChangeKind::RuleReplaced { number: 1, target: Some(t), .. } if t == "cali-fip-dnat")
    );
    assert_eq!(own[1], &ChangeKind::RuleDeletedAt { number: 2 });
}

#[test]
fn a_failed_restore_keeps_the_tables_before_the_failing_line() {
    let partial = include_str!("data/partial-sync.restore");
    let legacy = "iptables-restore v1.8.9 (legacy): Couldn't load target \
        `KUBE-SVC-IU46S4VZFN77LK6S':No such file or directory\n\nError occurred at line: 20\n";
    let nft = "iptables-nft-restore v1.8.9 (nf_tables): Chain 'KUBE-SVC-IU46S4VZFN77LK6S' does not \
        exist\nError occurred at line: 22\n";
    for stderr in [legacy, nft] {
        let kept = committed(&NOFLUSH, partial, 2, stderr).unwrap();
        assert!(
            !kept.is_empty() && kept.iter().all(|change| change.table == "filter"),
            "{stderr}"
        );
    }
    let busy = "line 10: CHAIN_DEL failed (Device or resource busy): chain KUBE-SERVICES";
    let kept = committed(&NOFLUSH, FELIX_CLEANUP, 4, busy).unwrap();
    assert!(
        kept.iter()
            .any(|change| change.unlinks("nat", "PREROUTING", "KUBE-SERVICES"))
    );
    assert!(
        kept.iter()
            .all(|change| change.kind != ChangeKind::ChainDeleted)
    );
    let lock = "Another app is currently holding the xtables lock. Stopped waiting after 5s.";
    assert_eq!(committed(&NOFLUSH, partial, 4, lock), Ok(Vec::new()));
    assert_eq!(
        committed(&NOFLUSH, partial, 0, ""),
        changes(&NOFLUSH, partial)
    );
}

#[test]
fn single_commands_change_one_chain() {
    let change = |argv: &str| {
        let argv: Vec<&str> = argv.split(' ').collect();
        let changes = changes(&argv, "").unwrap();
        changes
            .into_iter()
            .map(|change| (change.table, change.chain, change.kind))
            .next()
    };
    let nat = |chain: &str, kind| Some(("nat".to_owned(), chain.to_owned(), kind));
    let (text, target) = (
        "-j KUBE-SERVICES".to_owned(),
        Some("KUBE-SERVICES".to_owned()),
    );
    let deleted = ChangeKind::RuleDeleted {
        text: text.clone(),
        target: target.clone(),
    };
    assert_eq!(
        change("iptables -t nat -D PREROUTING -j KUBE-SERVICES"),
        nat("PREROUTING", deleted)
    );
    let added = ChangeKind::RuleAdded { text, target };
    assert_eq!(
        change("iptables -w 5 -I OUTPUT -t nat -j KUBE-SERVICES"),
        nat("OUTPUT", added)
    );
    assert_eq!(
        change("iptables -t nat -N X"),
        nat("X", ChangeKind::ChainCreated)
    );
    assert_eq!(
        change("iptables -t nat -X X"),
        nat("X", ChangeKind::ChainDeleted)
    );
    assert_eq!(
        change("iptables -t nat -F"),
        nat("", ChangeKind::ChainFlushed)
    );
    assert_eq!(
        change("iptables -w 5 -W 100000 -C OUTPUT -t nat -j KUBE-SERVICES"),
        None
    );
    assert_eq!(change("iptables-save -t nat"), None);
}

#[test]
fn a_restore_without_noflush_replaces_its_tables() {
    let changes = changes(
        &["iptables-restore"],
        "*nat\n:PREROUTING DROP [0:0]\nCOMMIT\n",
    )
    .unwrap();
    assert_eq!(changes[0].kind, ChangeKind::TableReplaced);
    assert!(changes[0].empties("nat", "KUBE-SVC-ANY"));
    assert!(matches!(&changes[2].kind, ChangeKind::PolicySet { policy } if policy == "DROP"));
}

#[test]
fn a_section_without_commit_changes_nothing() {
    assert_eq!(changes(&NOFLUSH, "*nat\n:X - -\n"), Ok(Vec::new()));
}

proptest! {
    #[test]
    fn no_input_makes_the_reader_panic(
        lines in proptest::collection::vec("[*:#\\[-]?(A|-?-[A-Z]|COMMIT|nat)?[ -~]{0,20}", 0..8),
        argv in proptest::collection::vec("-{0,2}[a-zA-Z0-9=]{0,6}|[ -~é]{0,4}", 0..6),
    ) {
        let input = format!("*nat\n{}\nCOMMIT\n", lines.join("\n"));
        drop(changes(&NOFLUSH, &input));
        let argv: Vec<String> = std::iter::once("iptables".to_owned()).chain(argv).collect();
        drop(changes(&argv, ""));
        drop(committed(&NOFLUSH, &input, 1, &argv.join("line ")));
    }
}

#[test]
fn nft_deletes_a_table_empties_a_map_and_adds_what_leads_to_a_service() {
    let deleted = changes(&["nft", "delete", "table", "ip", "kube-proxy"], "").unwrap();
    assert_eq!(deleted.len(), 1);
    assert!(deleted[0].empties("kube-proxy", "services"), "{deleted:?}");
    assert!(!deleted[0].empties("nat", "services"));
    let flushed = changes(&["nft", "flush map ip kube-proxy service-ips"], "").unwrap();
    assert!(
        flushed[0].empties("kube-proxy", "service-ips"),
        "{flushed:?}"
    );
    assert!(!flushed[0].empties("kube-proxy", "services"));

    let input = "flush chain ip kube-proxy service-X-a/b/tcp/\n\
         add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips\n\
         add element ip kube-proxy service-ips { 10.96.0.1 . tcp . 80 : goto service-X-a/b/tcp/ }\n\
         delete element ip kube-proxy service-ips { 10.96.0.2 . tcp . 80 }\n\
         add map ip6 kube-proxy service-ips { type ipv6_addr : verdict ; }\n\
         add table ip kube-proxy { comment \"rules for kube-proxy\" ; }\n\
         table inet other { chain x { } }\n";
    let told = changes(&["/usr/sbin/nft", "-f", "-"], input).unwrap();
    let kinds: Vec<&ChangeKind> = told.iter().map(|it| &it.kind).collect();
    assert_eq!(kinds[0], &ChangeKind::ChainFlushed);
    assert!(matches!(
        kinds[1],
        ChangeKind::RuleAdded { target: None, .. }
    ));
    let goto = "service-X-a/b/tcp/";
    assert!(matches!(kinds[2], ChangeKind::RuleAdded { target: Some(to), .. } if to == goto));
    assert!(matches!(kinds[3], ChangeKind::RuleDeleted { .. }));
    assert_eq!(kinds[4], &ChangeKind::ChainCreated);
    assert_eq!((told[4].family, told.len()), (Family::V6, 5), "{told:#?}");
}

#[test]
fn an_nft_that_only_looks_or_failed_changed_nothing() {
    for argv in [
        &["nft", "--json", "list", "table", "ip", "kube-proxy"][..],
        &["nft", "--check", "-f", "-"],
        &["nft", "-f", "/etc/nftables.conf"],
    ] {
        let told = changes(argv, "delete table ip kube-proxy\n").unwrap();
        assert_eq!(told, [], "{argv:?}");
    }
    let argv = ["nft", "-f", "-"];
    let failed = committed(&argv, "delete table ip kube-proxy\n", 1, "Error: …").unwrap();
    assert_eq!(failed, []);
}

#[test]
fn a_flush_of_the_ruleset_empties_the_tables_of_both() {
    let told = changes(&["nft", "flush", "ruleset"], "").unwrap();
    for table in ["nat", "filter", "kube-proxy"] {
        assert!(
            told.iter().any(|it| it.empties(table, "PREROUTING")),
            "{table}"
        );
    }
}
