//! JUnit as its readers take it.

use std::{
    io::{ErrorKind, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use crate::history::{ROUNDS, all_broken, case, junit, run};
use chainbreak_model::{
    case::{Expect, Fault, Promise, Step, Window},
    event::{Event, EventKind},
    names::AgentName,
};
use chainbreak_report::{Ended, Line, Run, Skipped};
use indexmap::IndexMap;

fn ended(mut run: Run) -> Run {
    run.add(Line::Ended(Ended::Complete), Path::new(""))
        .unwrap();
    run
}

/// Validates against the schema of Jenkins' xunit plugin, the strictest of the readers, with what others want beside it.
pub(crate) fn validate(xml: &str) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reports/schemas/junit-10.xsd");
    let child = Command::new("xmllint")
        .args(["--noout", "--nonet", "--schema"])
        .args([schema.as_os_str(), "-".as_ref()])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("xmllint is missing: install the package libxml2-utils")
        }
        child => child.unwrap(),
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(xml.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{xml}");
}

/// What a reader finds at an `XPath`.
fn xpath(xml: &str, path: &str) -> String {
    let mut child = Command::new("xmllint")
        .args(["--nonet", "--xpath", path, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("xmllint, of the package libxml2-utils");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(xml.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

#[test]
fn a_report_of_every_outcome_is_valid_and_says_what_a_reader_needs() {
    let mut run = run(vec![
        (
            case("default-cleanup", all_broken()),
            crate::history::history(ROUNDS),
        ),
        (
            case("cleanup-disabled", Expect::Healthy),
            crate::history::history(&[]),
        ),
        (
            case("bpf-off", Expect::Healthy),
            crate::history::history(&ROUNDS[..2]),
        ),
    ]);
    let reason = "no nft: install the package nftables".to_owned();
    run.add(
        Line::Skipped(Skipped {
            id: "s/other".to_owned(),
            reason,
        }),
        Path::new(""),
    )
    .unwrap();
    let run = ended(run);
    let xml = junit(&run);
    validate(&xml);
    assert_eq!(xpath(&xml, "count(//testcase)"), "10");
    assert_eq!(xpath(&xml, "count(//failure)"), "3");
    assert_eq!(xpath(&xml, "string(//testsuite[3]/@failures)"), "3");
    assert_eq!(xpath(&xml, "string(//testsuite[4]/@skipped)"), "1");
    let message = xpath(&xml, "string((//failure)[1]/@message)");
    assert!(message.starts_with("services dead on n2 for 3.2 s from 4.82 s: jump PREROUTING"));
    let broken = xpath(&xml, "string(//testsuite[1]/testcase[1]/system-out)");
    assert!(
        broken.starts_with("broken as expected: services dead on n2"),
        "{broken}"
    );
    insta::assert_snapshot!(xml);
}

#[test]
fn properties_stand_once_in_a_suite_and_in_no_test_case() {
    let mut run = run(vec![(
        case("bpf-off", Expect::Healthy),
        crate::history::history(&ROUNDS[..1]),
    )]);
    // The host says what a fact of the case says as well.
    let felix = "model v3.28.1 (no binary given)";
    run.header.host.insert("felix".to_owned(), felix.to_owned());
    let xml = junit(&ended(run));
    validate(&xml);
    let all: Vec<String> = xpath(&xml, "//testsuite/properties/property/@name")
        .lines()
        .map(|name| name.trim().to_owned())
        .collect();
    let expected = [
        "kube-proxy",
        "felix",
        "chainbreak",
        "seed",
        "hostname",
        "kernel",
        "outcome",
    ];
    assert_eq!(all, expected.map(|name| format!("name=\"{name}\"")));
    assert_eq!(xpath(&xml, "count(//properties)"), "1");
    for value in ["model 1.32 (no binary given)", felix, "build-7"] {
        let (first, more) = xml.split_once("<testcase ").unwrap();
        assert!(first.contains(value), "{value}: {first}");
        assert!(!more.contains(value), "{value}: {more}");
    }
}

#[test]
fn a_test_case_says_where_its_variant_stands_also_if_others_write_like_one() {
    let mut case = case("v", Expect::Healthy);
    let mut events = crate::history::history(&[]);
    let said = "]]> <testcase name=\"mine\"> <![CDATA[ <testcase x";
    let text = format!("{said}\n{said}");
    let trouble = EventKind::Trouble { text };
    events.push(crate::history::event(15_100_000, trouble));
    let xml = junit(&ended(run(vec![(case.clone(), events.clone())])));
    validate(&xml);
    assert_eq!(xpath(&xml, "count(//testcase)"), "4");
    let file = "@file='scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml'";
    let here = format!("count(//testcase[{file}][@line='42'])");
    assert_eq!(xpath(&xml, &here), "4");
    assert_eq!(xpath(&xml, "string((//error)[1]/@message)"), said);
    let body = xpath(&xml, "string((//error)[1])");
    assert!(body.starts_with(&format!("{said}\n")), "{body}");
    // A run of before says no line.
    case.line = None;
    let xml = junit(&ended(run(vec![(case, events)])));
    validate(&xml);
    assert_eq!(xpath(&xml, &format!("count(//testcase[{file}])")), "4");
    assert_eq!(xpath(&xml, "count(//testcase/@line)"), "0");
}

/// A case with promises about an upgrade, after it, and from it to another mark.
fn upgraded() -> Run {
    let mut upgraded = case("upgraded", Expect::Broken(vec!["after".into()]));
    let fault = Fault::Upgrade {
        to: [(AgentName::KubeProxy, "1.33".to_owned())].into(),
        node: None,
        kubernetes: false,
    };
    let duration = None;
    upgraded.timeline = Arc::new(vec![
        Step::Mark("new".into()),
        Step::Fault { fault, duration },
        Step::Mark("new.over".into()),
    ]);
    let answers = upgraded.promises[0].clone();
    let at = |from: &str, until: Option<&str>| Promise {
        window: Window {
            from: Some(from.into()),
            until: until.map(Into::into),
        },
        ..answers.clone()
    };
    let mut promises: IndexMap<_, _> = [
        ("meanwhile".into(), at("new", Some("new.over"))),
        ("after".into(), at("new.over", None)),
        ("from-then-on".into(), at("new", None)),
    ]
    .into();
    promises[2].window.until = Some("later".into());
    upgraded.promises = Arc::new(promises);
    let mut events = crate::history::history(&ROUNDS[..1]);
    for (at_us, name) in [
        (1_100_000, "new"),
        (1_900_000, "new.over"),
        (2_000_000, "later"),
    ] {
        let name = name.into();
        events.push(crate::history::event(at_us, EventKind::Mark { name }));
    }
    ended(run(vec![(upgraded, events)]))
}

#[test]
fn what_is_promised_of_an_upgrade_stands_in_suites_that_are_named_for_it() {
    let xml = junit(&upgraded());
    validate(&xml);
    let id = "calico-bpf-cleanup-fights-kube-proxy/upgraded[iptables=legacy]";
    for (number, name, promise) in [
        (
            1,
            format!("{id} during upgrade kube-proxy 1.32 → 1.33"),
            "meanwhile",
        ),
        (
            2,
            format!("{id} after upgrade kube-proxy 1.32 → 1.33"),
            "after",
        ),
        (3, id.to_owned(), "from-then-on"),
    ] {
        let of = |what: &str| xpath(&xml, &format!("string(//testsuite[{number}]{what})"));
        assert_eq!(of("/@name"), name);
        assert_eq!(of("/testcase/@classname"), name);
        assert_eq!(of("/testcase/@name"), promise);
        assert_eq!(of("/@failures"), "0");
    }
    let kept = xpath(&xml, "string(//testsuite[1]/testcase/system-out)");
    assert!(kept.contains("100.00 % answered (40 of 40)"), "{kept}");
    let times = |of: &str| xpath(&xml, of).split_whitespace().collect::<String>();
    let own = r#"time="0.8"time="13.1"time="0.9""#;
    assert_eq!(times("//testcase/@time"), own);
    assert_eq!(times("//testsuite/@time"), own.replace("0.8", "15.4"));
}

#[test]
fn an_interrupted_run_gives_a_valid_report_with_an_error_for_what_is_missing() {
    let mut events = crate::history::history(ROUNDS);
    events.truncate(40);
    let mut run = run(vec![
        (case("default-cleanup", all_broken()), events),
        (case("cleanup-disabled", Expect::Healthy), Vec::new()),
    ]);
    let killed = junit(&run);
    run.add(
        Line::Ended(Ended::Interrupted("SIGTERM".to_owned())),
        Path::new(""),
    )
    .unwrap();
    let stopped = junit(&run);
    for xml in [&killed, &stopped] {
        validate(xml);
        assert_eq!(xpath(xml, "count(//failure)"), "0");
        assert_eq!(
            xpath(xml, "string(//testsuite[@name='chainbreak']/@errors)"),
            "1"
        );
    }
    let message = "string(//testsuite[@name='chainbreak']//error/@message)";
    assert_eq!(
        xpath(&stopped, message),
        "the run was interrupted by SIGTERM"
    );
    let message = "string(//testsuite[2]//skipped[@type='not begun'][1]/@message)";
    assert_eq!(xpath(&stopped, message), "the case has not begun");
}

#[test]
fn nothing_that_the_world_says_can_break_the_report() {
    let nasty = "\u{1b}[31mred\u{1b}[0m \0 \u{1} \u{fffe} ]]> ]]]]>> <&\"'> [[ATTACHMENT|a]] \r\n\u{85} é 漢 🦀 \
                 <testsuite id=\"0\" </testsuites> &#0;";
    let fact = EventKind::Fact {
        name: nasty.to_owned(),
        value: nasty.to_owned(),
    };
    let mut events = crate::history::history(ROUNDS);
    events.insert(
        0,
        Event {
            at_us: 0,
            what: fact,
        },
    );
    events.push(Event {
        at_us: 14_500_000,
        what: EventKind::Trouble {
            text: nasty.to_owned(),
        },
    });
    for event in &mut events {
        if let EventKind::Log(entry) = &mut event.what {
            entry.text.push_str(nasty);
        }
    }
    let mut case = case(nasty, Expect::Healthy);
    case.file = Arc::new(nasty.into());
    case.cell.insert("k".to_owned(), nasty.to_owned());
    let id = case.id();
    let mut run = run(vec![(case, events)]);
    run.header
        .host
        .insert("hostname".to_owned(), nasty.to_owned());
    run.add(
        Line::Artifact {
            case: id.clone(),
            path: nasty.to_owned(),
        },
        Path::new(""),
    )
    .unwrap();
    run.add(
        Line::Skipped(Skipped {
            id: nasty.to_owned(),
            reason: nasty.to_owned(),
        }),
        Path::new(""),
    )
    .unwrap();
    let xml = junit(&ended(run));
    validate(&xml);
    assert_eq!(xpath(&xml, "count(//testsuite)"), "2");
    let out = xpath(&xml, "string(//testcase[2]/system-out)");
    assert!(out.contains("[[ATTACHMENT|red ] ]> ] ]] ]>>"), "{out}");
    let property = xpath(&xml, "string((//property)[1]/@value)");
    assert!(property.starts_with("red ]]> ]]]]>> <&\"'>"), "{property}");
    assert!(xpath(&xml, "string((//error)[1])").contains("]]> ]]]]>> <&\"'>"));
}

#[test]
fn no_two_test_cases_have_the_same_class_and_name() {
    let cell = |value: &str| {
        let mut case = case("default-cleanup", all_broken());
        case.cell.insert("iptables".to_owned(), value.to_owned());
        (case, crate::history::history(&ROUNDS[..1]))
    };
    let xml = junit(&ended(run(vec![cell("legacy"), cell("nft")])));
    let of = |attribute: &str| -> Vec<String> {
        xpath(&xml, &format!("//testcase/@{attribute}"))
            .lines()
            .map(str::to_owned)
            .collect()
    };
    let mut names: Vec<_> = of("classname").into_iter().zip(of("name")).collect();
    assert_eq!(names.len(), 6);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 6);
}

#[test]
fn a_test_case_has_the_time_of_its_promise_and_a_suite_that_of_the_case() {
    let xml = junit(&ended(run(vec![(
        case("v", Expect::Healthy),
        crate::history::history(&[]),
    )])));
    assert_eq!(xpath(&xml, "string(//testsuite/@time)"), "15.4");
    assert_eq!(xpath(&xml, "count(//testcase[@time='14'])"), "3");
}

#[test]
fn trouble_is_an_error_whose_message_is_its_first_line_and_whose_body_is_the_rest() {
    let text = "cannot use /opt/kp as kube-proxy: it is for aarch64, this machine is x86_64\nELF 64-bit\n  machine 183";
    let text = text.to_owned();
    let event = crate::history::event(0, EventKind::Trouble { text });
    let (text, times) = ("GET /apis/x/v1 by kube-proxy/v1 on n1".to_owned(), None);
    let unknown = crate::history::event(0, EventKind::UnknownRequest { text, times });
    let xml = junit(&ended(run(vec![(
        case("v", Expect::Healthy),
        vec![event, unknown],
    )])));
    validate(&xml);
    assert_eq!(
        xpath(&xml, "string((//error)[1]/@message)"),
        "cannot use /opt/kp as kube-proxy: it is for aarch64, this machine is x86_64"
    );
    let body = xpath(&xml, "string((//error)[1])");
    assert!(body.starts_with("ELF 64-bit\n  machine 183\n"), "{body}");
    let asked = xpath(&xml, "string(//property[@name='unknown-request']/@value)");
    assert_eq!(asked, "GET /apis/x/v1 by kube-proxy/v1 on n1");
}
