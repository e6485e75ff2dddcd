//! A history of the incident as two nodes write it, made of what the agents really send: Felix's cleanup of
//! kube-proxy's chains, kube-proxy's partial sync that fails on it, its full sync that heals.

mod rendered;

use std::{path::Path, sync::Arc, time::Duration};

use chainbreak_model::{
    case::{
        AgentSource, CalicoSpec, Case, Claim, ClusterSpec, Destination, Expect, IptablesVariant,
        KubeProxySpec, Origin, PodOwner, Presence, Promise, ProxyMode, RuleChain, RuleQuery, Step,
        Traffic, Window,
    },
    event::{Command, Event, EventKind, LogEntry, Phase, RulesSeen},
    names::{AgentName, NodeName},
};
use chainbreak_probe::wire::{Connections, Outcome, Protocol, Sample};
use chainbreak_report::{Header, Line, Run};
use indexmap::IndexMap;

pub(crate) use rendered::{junit, printed, summaries, summary, text};

pub(crate) const SVC: &str = "KUBE-SVC-IU46S4VZFN77LK6S";
pub(crate) const SEP: &str = "KUBE-SEP-XAAQ4E3V5J6GEKUJ";
pub(crate) const SEP2: &str = "KUBE-SEP-S7XCV467AW272WRX";

pub(crate) fn header() -> Header {
    Header {
        format: chainbreak_report::FORMAT,
        tool: "chainbreak 0.1.0".to_owned(),
        seed: 7,
        started: "2026-11-21T06:30:00Z".parse().unwrap(),
        host: IndexMap::from([
            ("hostname".to_owned(), "build-7".to_owned()),
            ("kernel".to_owned(), "6.18.0".to_owned()),
        ]),
    }
}

pub(crate) fn case(variant: &str, expect: Expect) -> Case {
    let traffic = Traffic {
        from: Origin::Pod {
            namespace: "default".to_owned(),
            name: "client".to_owned(),
        },
        to: Destination::Service {
            namespace: "test".to_owned(),
            name: "nginx".to_owned(),
        },
        family: None,
        port: 80,
        every: Duration::from_millis(20),
        protocol: Protocol::Tcp,
        connections: Connections::New,
        timeout: Duration::from_secs(1),
    };
    let available = Claim::Available {
        traffic: "shop".into(),
        at_least: 99.9,
        longest_gap: Some(Duration::from_millis(500)),
    };
    let no_log = Claim::NoLog {
        agent: AgentName::KubeProxy,
        matches: "Failed to execute iptables-restore".to_owned(),
    };
    let has_rule = Claim::HasRule {
        rule: jump(),
        presence: Presence {
            always: true,
            absent: false,
            node: None,
        },
    };
    Case {
        scenario: "calico-bpf-cleanup-fights-kube-proxy".into(),
        variant: variant.into(),
        cell: IndexMap::from([("iptables".to_owned(), "legacy".to_owned())]),
        about: Arc::new("Felix deletes kube-proxy's chains.".to_owned()),
        incident: Arc::new(vec!["projectcalico/calico#10538".to_owned()]),
        file: Arc::new("scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml".into()),
        line: Some(42),
        cluster: cluster(),
        manifests: vec![serde_json::json!({
            "kind": "Pod",
            "metadata": { "name": "client" },
            "spec": { "nodeName": "n2" }
        })]
        .into(),
        traffic: Arc::new([("shop".into(), traffic)].into()),
        timeline: Arc::new(vec![Step::Settle(Duration::from_secs(1))]),
        promises: Arc::new(IndexMap::from([
            ("answers".into(), all_along(available)),
            ("no-restore-errors".into(), all_along(no_log)),
            ("jump-stays".into(), all_along(has_rule)),
        ])),
        expect,
        by: None,
        seed: 7,
        repetition: None,
    }
}

pub(crate) fn all_along(claim: Claim) -> Promise {
    Promise {
        claim,
        window: Window::default(),
    }
}

fn cluster() -> ClusterSpec {
    ClusterSpec {
        kubernetes: None,
        kube_proxy: Some(KubeProxySpec {
            mode: ProxyMode::Iptables,
            iptables: IptablesVariant::Legacy,
            version: "1.32".to_owned(),
            source: AgentSource::Model,
            min_sync_period: Duration::from_secs(1),
            sync_period: Duration::from_secs(5),
            full_sync_period: Duration::from_secs(3600),
            config: serde_json::Map::new(),
        }),
        calico: Some(CalicoSpec::new(
            "v3.28.1",
            AgentSource::Model,
            PodOwner::ThirdParty,
        )),
        ..ClusterSpec::new(2, IptablesVariant::Legacy)
    }
}

pub(crate) fn jump() -> RuleQuery {
    RuleQuery {
        table: "nat".to_owned(),
        chain: RuleChain::Named("PREROUTING".to_owned()),
        jump: Some("KUBE-SERVICES".to_owned()),
        ..RuleQuery::default()
    }
}

pub(crate) fn all_broken() -> Expect {
    Expect::Broken(vec![
        "answers".into(),
        "no-restore-errors".into(),
        "jump-stays".into(),
    ])
}

pub(crate) fn event(at_us: u64, what: EventKind) -> Event {
    Event { at_us, what }
}

pub(crate) fn command(node: &str, at_us: u64, who: &str, argv: &[&str], input: &str) -> Event {
    event(
        at_us,
        EventKind::Command(Command {
            who: who.to_owned(),
            node: node.into(),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            input: input.to_owned(),
            exit: 0,
            stderr: String::new(),
            took_us: 8_000,
            named: Vec::new(),
        }),
    )
}

pub(crate) const RESTORE: [&str; 7] = [
    "iptables-restore",
    "-w",
    "5",
    "-W",
    "100000",
    "--noflush",
    "--counters",
];

/// Felix's cleanup, nat and filter side by side.
pub(crate) fn cleanup(node: &str, at_us: u64) -> Vec<Event> {
    let nat = format!(
        "*nat\n:KUBE-SERVICES - -\n:KUBE-NODEPORTS - -\n:{SVC} - -\n:{SEP} - -\n:{SEP2} - -\n\
         -D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
         -D OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
         --delete-chain KUBE-SERVICES\n--delete-chain KUBE-NODEPORTS\n--delete-chain {SVC}\n\
         --delete-chain {SEP}\n--delete-chain {SEP2}\nCOMMIT\n"
    );
    let filter = "*filter\n:KUBE-FORWARD - -\n-D FORWARD -m comment --comment \"kubernetes forwarding rules\" \
                  -j KUBE-FORWARD\n--delete-chain KUBE-FORWARD\nCOMMIT\n";
    let argv = [
        "iptables-legacy-restore",
        "--noflush",
        "--verbose",
        "--wait",
        "10",
        "--wait-interval",
        "50000",
    ];
    vec![
        command(node, at_us, "felix", &argv, &nat),
        command(node, at_us + 2_000, "felix", &argv, filter),
    ]
}

/// A partial sync of kube-proxy that jumps to a chain that is gone, and what it logs.
pub(crate) fn failing_sync(node: &str, at_us: u64) -> Vec<Event> {
    let input = format!(
        "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -m comment --comment \"test/nginx:http cluster IP\" \
         -m tcp -p tcp -d 10.96.10.10 --dport 80 -j {SVC}\nCOMMIT\n"
    );
    let mut failed = command(node, at_us, "kube-proxy", &RESTORE, &input);
    if let EventKind::Command(command) = &mut failed.what {
        command.exit = 2;
        command.stderr = format!(
            "Ignoring deprecated --wait-interval option.\niptables-restore v1.8.9 (legacy): \
             Couldn't load target `{SVC}':No such file or directory\n\nError occurred at line: 3\n"
        );
    }
    let text = format!(
        "E1121 06:30:05.020000       1 proxier.go:1564] \"Failed to execute iptables-restore\" err=<\n\
         \texit status 2: Ignoring deprecated --wait-interval option.\n\tiptables-restore v1.8.9 (legacy): \
         Couldn't load target `{SVC}':No such file or directory\n\tError occurred at line: 3\n\
         \tTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n > ipFamily=\"IPv4\""
    );
    let entry = LogEntry {
        agent: AgentName::KubeProxy,
        node: node.into(),
        text,
    };
    vec![failed, event(at_us + 1_000, EventKind::Log(entry))]
}

/// A full sync of kube-proxy: jumps ensured one by one, then everything restored.
pub(crate) fn full_sync(node: &str, at_us: u64) -> Vec<Event> {
    let portals = [
        "-m",
        "comment",
        "--comment",
        "kubernetes service portals",
        "-j",
        "KUBE-SERVICES",
    ];
    let ensure = |chain: &'static str, at_us| {
        let argv: Vec<&str> = ["iptables", "-w", "5", "-I", chain, "-t", "nat"]
            .into_iter()
            .chain(portals)
            .collect();
        command(node, at_us, "kube-proxy", &argv, "")
    };
    let input = format!(
        "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:{SVC} - [0:0]\n:{SEP} - [0:0]\n\
         :{SEP2} - [0:0]\n-A KUBE-SERVICES -m comment --comment \"test/nginx:http cluster IP\" -m tcp -p tcp \
         -d 10.96.10.10 --dport 80 -j {SVC}\n-A {SVC} -j {SEP}\n-A {SEP} -j DNAT --to-destination \
         10.20.10.127:80\n-A {SEP2} -j DNAT --to-destination 10.20.11.179:80\nCOMMIT\n"
    );
    vec![
        ensure("PREROUTING", at_us - 40_000),
        ensure("OUTPUT", at_us - 30_000),
        command(node, at_us, "kube-proxy", &RESTORE, &input),
    ]
}

pub(crate) fn sample(at_us: u64, answered: bool) -> Event {
    let outcome = if answered {
        Outcome::Answered {
            backend: "nginx-1".to_owned(),
            seen_as: None,
            local: "10.20.2.2:40000".parse().unwrap(),
        }
    } else {
        Outcome::TimedOut
    };
    let took_us = if answered { 800 } else { 1_000_000 };
    event(
        at_us,
        EventKind::Sample {
            traffic: "shop".into(),
            sample: Sample {
                at_us,
                took_us,
                late_us: None,
                outcome,
            },
        },
    )
}

fn rules(node: &str, at_us: u64, count: usize) -> Event {
    let query = "jump-stays".into();
    event(
        at_us,
        EventKind::Rules(RulesSeen {
            node: node.into(),
            query,
            count,
        }),
    )
}

/// `(cut, healed)` of each round, in microseconds.
pub(crate) type Rounds<'a> = &'a [(u64, u64)];

/// Judging lasts from 1 s to 15 s; a request every 20 ms from the client on n2.
pub(crate) fn history(rounds: Rounds<'_>) -> Vec<Event> {
    let fact = |name: &str, value: &str| {
        event(
            0,
            EventKind::Fact {
                name: name.to_owned(),
                value: value.to_owned(),
            },
        )
    };
    let mut events = vec![
        fact("kube-proxy", "model 1.32 (no binary given)"),
        fact("felix", "model v3.28.1 (no binary given)"),
        event(0, EventKind::Phase(Phase::Raising)),
    ];
    for node in ["n1", "n2"] {
        events.extend(full_sync(node, 300_000));
        events.push(rules(node, 310_000, 1));
        let text = "I1121 06:30:00.3 1 proxier.go:822] \"SyncProxyRules complete\"".to_owned();
        let entry = LogEntry {
            agent: AgentName::KubeProxy,
            node: NodeName::from(node),
            text,
        };
        events.push(event(310_000, EventKind::Log(entry)));
    }
    events.push(event(1_000_000, EventKind::Phase(Phase::Judging)));
    for step in 0..6 {
        let text = format!("scale test/nginx to {}", 2 + (step + 1) % 2);
        events.push(event(
            2_000_000 + step * 2_000_000,
            EventKind::Step { text },
        ));
    }
    for &(cut, healed) in rounds {
        for (node, later) in [("n1", 5_000), ("n2", 0)] {
            events.extend(cleanup(node, cut + later));
            events.push(rules(node, cut + later + 9_000, 0));
            events.extend(failing_sync(node, cut + later + 210_000));
            events.extend(full_sync(node, healed + later));
            events.push(rules(node, healed + later, 1));
        }
    }
    for at_us in (1_000_000..15_000_000).step_by(20_000) {
        let lost = rounds
            .iter()
            .any(|&(cut, healed)| (cut..healed).contains(&at_us));
        events.push(sample(at_us, !lost));
    }
    events.push(event(15_000_000, EventKind::Phase(Phase::Judged)));
    events.push(event(15_400_000, EventKind::Phase(Phase::Destroyed)));
    events
}

pub(crate) const ROUNDS: Rounds<'static> = &[
    (2_510_000, 4_010_000),
    (4_810_000, 8_010_000),
    (8_910_000, 10_010_000),
    (10_960_000, 12_010_000),
    (12_910_000, 14_010_000),
];

pub(crate) fn run(cases: Vec<(Case, Vec<Event>)>) -> Run {
    let mut run = Run::new(header());
    for (case, events) in cases {
        let id = case.id();
        run.add(Line::Planned(Box::new(case)), Path::new(""))
            .unwrap();
        for event in events {
            let case = id.clone();
            run.add(Line::Event { case, event }, Path::new("")).unwrap();
        }
    }
    run
}
