//! Faults on the kernel: each is seen while it is there, by a command of the scenario itself that would
//! fail, and seen to be gone after that.

use nix::sys::signal::Signal;

use crate::ground::{Ground, Running, exits};

const FAULTS: &str = include_str!("ground/faults.yaml");

fn args(variant: &str) -> [&str; 7] {
    [
        "run",
        "faults.yaml",
        "--variant",
        variant,
        "--out",
        "out",
        "-v",
    ]
}

#[test]
fn every_fault_is_there_in_its_time_and_gone_after_it() {
    let ground = Ground::new();
    ground.write("faults.yaml", FAULTS);
    let ran = ground.chainbreak(&args("one-after-the-other"));
    exits(&ran, 0);
    let history = ground.history();
    // What third parties do to rules is in the history as what agents do.
    for (who, argv) in [
        ("admin", r#"["iptables-restore","#),
        (
            "admin",
            r#"["iptables","-w","10","-t","nat","-F","KUBE-SERVICES"]"#,
        ),
        ("istio", r#"["iptables","-w","5","-t","nat","-N","ISTIO"]"#),
    ] {
        let recorded =
            |line: &str| line.contains(&format!(r#""who":"{who}""#)) && line.contains(argv);
        assert!(history.lines().any(recorded), "{who} {argv}");
    }
}

#[test]
fn a_check_that_fails_is_no_verdict() {
    let ground = Ground::new();
    ground.write(
        "faults.yaml",
        FAULTS.replace("eth0/rp_filter)\" = 2", "eth0/rp_filter)\" = 1"),
    );
    exits(&ground.chainbreak(&args("one-after-the-other")), 11);
}

#[test]
fn ctrl_c_undoes_what_still_holds_the_last_first() {
    let ground = Ground::new();
    ground.write("faults.yaml", FAULTS);
    let mut run = Running::start(&ground.command(&args("held")));
    run.reads("loses 10% of the packets");
    run.signal(Signal::SIGINT);
    let (status, said, _) = run.ends();
    assert_eq!(status.code(), Some(11), "{said}");
    let history = ground.history();
    let at = |text: &str| {
        history
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {history}"))
    };
    let lossless = at("node/n1 loses no packets any more");
    assert!(lossless < at("start kube-proxy on n1"), "{history}");
}
