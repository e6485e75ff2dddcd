//! What the arguments of iptables mean.

use chainbreak_netfilter::{Command, Family, Invocation, Rule, words};

fn single(line: &str) -> (String, Command) {
    let argv: Vec<_> = words(line).collect();
    match Invocation::parse(&argv) {
        Ok(Invocation::Single { table, command, .. }) => (table, command),
        other => panic!("{line}: {other:?}"),
    }
}

fn x() -> String {
    "X".to_owned()
}

#[test]
fn options_may_stand_anywhere_and_be_long_or_short() {
    let rule = r#"-m comment --comment "kubernetes service portals" -j KUBE-SERVICES"#;
    let expected = Command::Insert {
        chain: "PREROUTING".to_owned(),
        number: 1,
        rule: Rule::new(rule),
    };
    for line in [
        format!("iptables -w 5 -W 100000 -I PREROUTING -t nat {rule}"),
        format!("/usr/sbin/iptables-nft -t nat --insert PREROUTING 1 {rule}"),
        format!("xtables-legacy-multi iptables --table=nat --wait -IPREROUTING {rule}"),
        format!("iptables-legacy {rule} -tnat -w5 -I PREROUTING"),
    ] {
        assert_eq!(
            single(&line),
            ("nat".to_owned(), expected.clone()),
            "{line}"
        );
    }
}

#[test]
fn every_command_on_rules_is_known() {
    let (chain, rule) = (x(), Rule::new("-j DROP"));
    let number = 2;
    let append = Command::Append { chain, rule };
    assert_eq!(single("iptables -A X -j DROP").1, append);
    let (chain, rule) = (x(), Rule::new("! -s 10.0.0.0/8 -j DROP"));
    let delete = Command::Delete { chain, rule };
    assert_eq!(single("iptables -D X ! -s 10.0.0.0/8 -j DROP").1, delete);
    let chain = x();
    let delete = Command::DeleteNumber { chain, number };
    assert_eq!(single("iptables --delete X 2").1, delete);
    let (chain, rule) = (x(), Rule::new("-j DROP"));
    let replace = Command::Replace {
        chain,
        number,
        rule,
    };
    assert_eq!(single("iptables -R X 2 -j DROP").1, replace);
    let (chain, rule) = (x(), Rule::new("-j DROP"));
    let insert = Command::Insert {
        chain,
        number,
        rule,
    };
    assert_eq!(single("iptables --insert X 2 -j DROP").1, insert);
    for look in ["-C X -j DROP", "-S X", "-nvL X", "-Z", "--version"] {
        let argv: Vec<_> = look.split(' ').collect();
        let line = format!("iptables {}", argv.join(" "));
        assert_eq!(single(&line).1, Command::NoChange, "{look}");
    }
}

#[test]
fn every_command_on_chains_is_known() {
    let chain = || Some(x());
    let cases = [
        ("-F", Command::Flush { chain: None }),
        ("--flush X", Command::Flush { chain: chain() }),
        ("-X", Command::DeleteChain { chain: None }),
        ("--delete-chain X", Command::DeleteChain { chain: chain() }),
        ("-X X -t nat", Command::DeleteChain { chain: chain() }),
        ("-N X -t nat", Command::NewChain { chain: x() }),
        (
            "-P X DROP",
            Command::Policy {
                chain: x(),
                policy: "DROP".to_owned(),
            },
        ),
        (
            "-E X Y",
            Command::Rename {
                chain: x(),
                to: "Y".to_owned(),
            },
        ),
    ];
    for (line, command) in cases {
        assert_eq!(single(&format!("iptables {line}")).1, command, "{line}");
    }
}

#[test]
fn a_comment_that_looks_like_a_command_is_a_comment() {
    let rule = Rule::new("-m comment --comment -F -j DROP");
    let (_, command) = single("iptables -A X -m comment --comment -F -j DROP");
    assert_eq!(command, Command::Append { chain: x(), rule });
}

#[test]
fn restores_tell_what_stays() {
    let kube_proxy = "iptables-restore -w 5 -W 100000 --noflush --counters";
    let felix = "ip6tables-nft-restore --noflush --verbose --wait 10 --wait-interval 50000";
    for (line, family) in [(kube_proxy, Family::V4), (felix, Family::V6)] {
        let argv: Vec<_> = line.split(' ').collect();
        let (only, test) = (None, false);
        let expected = Invocation::Restore {
            family,
            noflush: true,
            only,
            test,
        };
        assert_eq!(Invocation::parse(&argv), Ok(expected));
    }
    let (family, only) = (Family::V4, Some("nat".to_owned()));
    let expected = Invocation::Restore {
        family,
        noflush: false,
        only,
        test: true,
    };
    let argv = ["iptables-restore", "-T", "nat", "--test"];
    assert_eq!(Invocation::parse(&argv), Ok(expected));
}

#[test]
fn other_programs_are_refused() {
    assert!(Invocation::parse(&["nft", "-f", "-"]).is_err());
    assert!(Invocation::parse(&["iptables", "-t", "nat"]).is_err());
    assert!(Invocation::parse::<&str>(&[]).is_err());
    let save = Invocation::parse(&["iptables-save", "-t", "nat"]);
    assert_eq!(save, Ok(Invocation::NoChange));
}
