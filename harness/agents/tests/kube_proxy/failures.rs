//! Failed syncs: what is said, and what comes next.

use chainbreak_agents::{kube_proxy::Config, step::Output};

use crate::{
    desk::{Desk, HOUR, Invented, SECOND, failed},
    objects::{config, nginx, slice},
};

/// What iptables-restore says of a target that is not there.
const MISSING: &str = "Ignoring deprecated --wait-interval option.\niptables-restore v1.8.9 (legacy): \
                       Couldn't load target `KUBE-SVC-IU46S4VZFN77LK6S':No such file or directory\n\n\
                       Error occurred at line: 22\nTry `iptables-restore -h' or 'iptables-restore \
                       --help' for more information.\n";

fn synced(version: &str) -> Desk<Invented> {
    Desk::synced(config(version), Invented::default(), nginx())
}

fn churn(desk: &mut Desk<Invented>) {
    let ip = format!("10.20.3.{}", desk.now.as_secs() % 250);
    desk.tell_later(slice("other", &[(&ip, "n1")]));
}

fn fail(desk: &mut Desk<Invented>, part: &'static str, output: Output) {
    desk.kernel.outputs.insert(part, output);
}

#[test]
fn a_failed_partial_sync_makes_the_next_one_full_and_the_one_after_partial() {
    for version in ["1.27", "1.32", "1.33", "1.34"] {
        let mut desk = synced(version);
        fail(&mut desk, "iptables-restore", failed(2, MISSING));
        churn(&mut desk);
        assert_eq!(
            desk.logs
                .iter()
                .filter(|it| it.text.contains("Sync failed"))
                .count(),
            1
        );
        desk.kernel.outputs.clear();
        desk.forget();
        desk.pass(30 * SECOND);
        assert_eq!(
            (desk.restores().len(), desk.ensured()),
            (1, 14),
            "{version}"
        );
        assert!(
            desk.last_restore()
                .contains("\n:KUBE-SVC-IU46S4VZFN77LK6S - [0:0]\n")
        );
        desk.forget();
        churn(&mut desk);
        assert_eq!((desk.restores().len(), desk.ensured()), (1, 0), "{version}");
    }
}

#[test]
fn a_full_sync_that_fails_is_repeated_in_full_every_sync_period() {
    let mut desk = synced("1.32");
    fail(
        &mut desk,
        "iptables-restore",
        failed(
            4,
            "Another app is currently holding the xtables lock. Stopped waiting after 5s.\n",
        ),
    );
    churn(&mut desk);
    desk.forget();
    let start = desk.now;
    desk.pass(91 * SECOND);
    let times: Vec<u64> = desk
        .restore_times()
        .iter()
        .map(|at| at.saturating_sub(start).as_secs())
        .collect();
    assert_eq!(times, [30, 60, 90]);
    assert_eq!(desk.ensured(), 3 * 14);
}

#[test]
fn a_jump_that_cannot_be_made_fails_the_sync_before_anything_is_written() {
    let lock = failed(
        4,
        "Another app is currently holding the xtables lock. Stopped waiting after 5s.\n",
    );
    let mut kernel = Invented::default();
    kernel.outputs.insert("-C INPUT -t filter", lock);
    let mut desk = Desk::synced(config("1.32"), kernel, nginx());
    assert!(desk.restores().is_empty());
    assert!(
        desk.said().contains(
            "Error proxier.go:872] \"Failed to ensure chain jumps\" err=<\n\terror checking rule: exit \
             status 4: Another app is currently holding the xtables lock. Stopped waiting after 5s.\n \
             > ipFamily=\"IPv4\" table=\"filter\" srcChain=\"INPUT\" dstChain=\"KUBE-EXTERNAL-SERVICES\"\n"
        ),
        "{}",
        desk.said()
    );
    desk.kernel.outputs.clear();
    desk.pass(30 * SECOND);
    assert_eq!(desk.restores().len(), 1);
}

#[test]
fn a_failed_save_leaves_stale_chains_and_does_not_fail_the_sync() {
    let mut desk = synced("1.32");
    fail(&mut desk, "iptables-save", failed(1, "no"));
    desk.tell_later(crate::objects::service_gone("nginx"));
    assert!(!desk.last_restore().contains("-X "));
    let text = "\"Failed to execute iptables-save: stale chains will not be deleted\" err=\"exit status 1\"";
    assert!(desk.said().contains(text), "{}", desk.said());
    assert!(!desk.said().contains("Sync failed"));
    desk.kernel.outputs.clear();
    churn(&mut desk);
    assert!(
        desk.last_restore()
            .contains("-X KUBE-SVC-IU46S4VZFN77LK6S\n")
    );
}

/// From 1.34 on the sync at the start is nobody's to repeat but the next event's.
#[test]
fn a_failed_first_sync_is_repeated_after_the_sync_period_until_1_33_only() {
    for (version, repeated) in [
        ("1.26", true),
        ("1.32", true),
        ("1.33", true),
        ("1.34", false),
    ] {
        let mut kernel = Invented::default();
        kernel.outputs.insert("iptables-restore", failed(1, "no\n"));
        let mut desk = Desk::synced(config(version), kernel, nginx());
        desk.kernel.outputs.clear();
        desk.forget();
        desk.pass(60 * SECOND);
        assert_eq!(desk.restores().len(), usize::from(repeated), "{version}");
        desk.pass(HOUR);
        assert_ne!(desk.restores().len(), 0, "{version}");
    }
}

#[test]
fn without_iptables_kube_proxy_exits() {
    let mut kernel = Invented::default();
    kernel
        .outputs
        .insert("--version", failed(127, "No such file or directory"));
    let desk = Desk::new(config("1.32"), kernel);
    assert_eq!(
        desk.exited.as_deref(),
        Some("iptables is not available on this host: exit status 127: No such file or directory")
    );
}

#[test]
fn the_lines_of_1_20_are_plain_text() {
    let mut desk = synced("1.20.2");
    fail(&mut desk, "iptables-restore", failed(2, MISSING));
    desk.forget();
    churn(&mut desk);
    assert_eq!(
        desk.said(),
        format!(
            "Info proxier.go:861] Syncing iptables rules\n\
             Error proxier.go:1595] Failed to execute iptables-restore: exit status 2 ({MISSING})\n\
             Info proxier.go:1598] Closing local ports after iptables-restore failure\n\
             Info proxier.go:866] Sync failed; retrying in 30s\n\
             Info proxier.go:825] syncProxyRules took 0s\n"
        )
    );
}

#[test]
fn the_lines_from_1_24_have_keys_and_the_error_stands_between_angles() {
    let tabbed = MISSING.trim_end().replace('\n', "\n\t");
    for (version, restore, family) in [("1.28", "1546", ""), ("1.32", "1564", " ipFamily=\"IPv4\"")]
    {
        let mut desk = synced(version);
        fail(&mut desk, "iptables-restore", failed(2, MISSING));
        desk.forget();
        churn(&mut desk);
        let said = desk.said();
        let error = format!(
            "Error proxier.go:{restore}] \"Failed to execute iptables-restore\" err=<\n\texit status 2: \
             {tabbed}\n >{family}\n"
        );
        assert!(said.contains(&error), "{version}: {said}");
        assert!(
            said.contains(&format!("] \"Sync failed\"{family} retryingTime=\"30s\"\n")),
            "{said}"
        );
        assert!(said.ends_with(&format!(
            "] \"SyncProxyRules complete\"{family} elapsed=\"0s\"\n"
        )));
    }
}

#[test]
fn a_successful_sync_counts_what_it_wrote_as_the_incident_s_log_does() {
    let desk = synced("1.32");
    assert!(
        desk.said().ends_with(
            "Info proxier.go:828] \"Syncing iptables rules\" ipFamily=\"IPv4\"\n\
             Info proxier.go:1547] \"Reloading service iptables data\" ipFamily=\"IPv4\" numServices=1 \
             numEndpoints=2 numFilterChains=6 numFilterRules=4 numNATChains=7 numNATRules=13\n\
             Info proxier.go:822] \"SyncProxyRules complete\" ipFamily=\"IPv4\" elapsed=\"0s\"\n"
        ),
        "{}",
        desk.said()
    );
}

#[test]
fn from_1_33_the_line_says_whether_the_sync_is_full() {
    let mut desk = synced("1.33");
    churn(&mut desk);
    let said = desk.said();
    let lines: Vec<&str> = said.lines().filter(|it| it.contains("Syncing")).collect();
    assert_eq!(
        lines,
        ["true", "false"].map(|full| format!(
            "Info proxier.go:815] \"Syncing iptables rules\" ipFamily=\"IPv4\" fullSync={full}"
        ))
    );
}

/// Seen with 1.28.15 and 1.36.1: the form that shows the lines around it is never reached.
#[test]
fn a_line_that_is_refused_is_named_and_not_shown() {
    let words = "Ignoring deprecated --wait-interval option.\niptables-restore: line 31 failed\n";
    let second = "\tiptables-restore: line 31 failed\n";
    for (version, family) in [("1.24", ""), ("1.28", ""), ("1.32", " ipFamily=\"IPv4\"")] {
        let mut desk = synced(version);
        fail(&mut desk, "iptables-restore", failed(1, words));
        desk.forget();
        churn(&mut desk);
        let line = format!(
            "\"Failed to execute iptables-restore\" err=<\n\texit status 1: Ignoring deprecated \
             --wait-interval option.\n{second} >{family}\n"
        );
        assert!(desk.said().contains(&line), "{version}: {}", desk.said());
    }
}

#[test]
fn at_verbosity_0_only_failures_are_said() {
    let config = Config {
        verbosity: 0,
        ..config("1.32")
    };
    let mut desk = Desk::synced(config, Invented::counting(), nginx());
    assert_eq!(desk.said(), "");
    fail(&mut desk, "iptables-restore", failed(2, MISSING));
    churn(&mut desk);
    assert_eq!(desk.logs.len(), 2, "{}", desk.said());
}
