//! What becomes of it when somebody else removes what kube-proxy wrote, on the real kernel.
//!
//! "Unchanged" is a service of which nothing was told since; another one changes.

use std::time::Duration;

use chainbreak_agents::step::Severity;

use crate::{
    desk::{Desk, HOUR, SECOND},
    netns::{BACKENDS, Backend, Netns},
    objects::{config, nginx, other, slice},
};

const NGINX: &str = "KUBE-SVC-IU46S4VZFN77LK6S";
const ENDPOINT: &str = "KUBE-SEP-XAAQ4E3V5J6GEKUJ";

fn synced(version: &str, backend: Backend) -> Desk<Netns> {
    let events = nginx().into_iter().chain(other(&[("10.20.1.1", "n1")]));
    let desk = Desk::synced(config(version), Netns::new(backend), events);
    assert!(
        desk.logs
            .iter()
            .all(|it| it.severity == Severity::Info || it.text.contains("nfacct")),
        "{}",
        desk.said()
    );
    desk
}

/// Something changes: the service that is not nginx.
fn churn(desk: &mut Desk<Netns>, round: u32) {
    let ip = format!("10.20.2.{round}");
    desk.tell_later(slice("other", &[(&ip, "n1")]));
}

fn errors(desk: &Desk<Netns>) -> Vec<&str> {
    let errors = desk
        .logs
        .iter()
        .filter(|it| it.severity == Severity::Error && !it.text.contains("nfacct"));
    errors.map(|it| it.text.as_str()).collect()
}

/// The jump without which no packet reaches a service.
fn has_jump(desk: &mut Desk<Netns>) -> bool {
    let rules = desk.kernel.chain("nat", "PREROUTING");
    rules.iter().any(|it| it.ends_with("-j KUBE-SERVICES"))
}

fn remove_jumps(desk: &mut Desk<Netns>) {
    for chain in ["PREROUTING", "OUTPUT"] {
        desk.kernel.sh(&format!("iptables -t nat -F {chain}"));
    }
}

/// Removes a service's chain with all that leads to it, as Felix does.
fn remove_service(desk: &mut Desk<Netns>) {
    let chains = format!(":KUBE-SERVICES - [0:0]\n:{NGINX} - [0:0]\n");
    desk.kernel
        .restore(&format!("*nat\n{chains}-X {NGINX}\nCOMMIT\n"));
}

#[test]
fn t1_removed_jumps_stay_away_without_an_error_until_something_makes_a_sync_full() {
    for backend in BACKENDS {
        let mut desk = synced("1.32", backend);
        remove_jumps(&mut desk);
        desk.forget();
        churn(&mut desk, 1);
        assert_eq!(desk.restores().len(), 1);
        // The hourly run of the runner is partial as well.
        desk.pass(3 * HOUR);
        assert!(desk.restores().len() >= 3, "{}", desk.restores().len());
        assert!(errors(&desk).is_empty(), "{}", desk.said());
        assert!(!has_jump(&mut desk), "{backend:?}: a silent outage");
    }
}

#[test]
fn t1_from_1_33_the_hour_heals_removed_jumps() {
    for version in ["1.33", "1.34"] {
        let mut desk = synced(version, Backend::Legacy);
        remove_jumps(&mut desk);
        churn(&mut desk, 1);
        assert!(!has_jump(&mut desk));
        // The last full sync was at 0; the runner's own run comes an hour after the churn.
        desk.pass(HOUR + 10 * SECOND);
        assert!(has_jump(&mut desk), "{version}");
    }
}

#[test]
fn t1_until_1_26_any_event_heals_removed_jumps() {
    for version in ["1.20", "1.26"] {
        let mut desk = synced(version, Backend::Legacy);
        remove_jumps(&mut desk);
        churn(&mut desk, 1);
        assert!(has_jump(&mut desk), "{version}");
    }
}

#[test]
fn t2_emptied_chains_of_an_unchanged_service_stay_empty_without_an_error() {
    for backend in BACKENDS {
        let mut desk = synced("1.32", backend);
        desk.kernel.sh(&format!("iptables -t nat -F {NGINX}"));
        churn(&mut desk, 1);
        desk.pass(2 * HOUR);
        assert!(errors(&desk).is_empty(), "{}", desk.said());
        assert!(desk.kernel.chain("nat", NGINX).is_empty());
        // A change of the service itself heals it.
        desk.tell_later(slice("nginx", &[("10.20.10.127", "n1")]));
        assert_eq!(desk.kernel.chain("nat", NGINX).len(), 2);
    }
}

#[test]
fn t3_emptied_common_chains_are_healed_by_any_partial_sync() {
    for backend in BACKENDS {
        let mut desk = synced("1.32", backend);
        let before = [desk.kernel.save("nat"), desk.kernel.save("filter")];
        for chain in [
            "KUBE-SERVICES",
            "KUBE-NODEPORTS",
            "KUBE-POSTROUTING",
            "KUBE-MARK-MASQ",
        ] {
            desk.kernel.sh(&format!("iptables -t nat -F {chain}"));
        }
        desk.kernel.sh("iptables -t filter -F KUBE-FORWARD");
        desk.forget();
        desk.tell_later(slice("nobody", &[("10.20.1.1", "n1")]));
        assert_eq!(desk.ensured(), 0, "partial");
        let after = [desk.kernel.save("nat"), desk.kernel.save("filter")];
        assert_eq!(sorted(&after), sorted(&before), "{backend:?}");
    }
}

fn sorted(tables: &[String; 2]) -> [Vec<&str>; 2] {
    [&tables[0], &tables[1]].map(|table| {
        let mut lines: Vec<&str> = table.lines().collect();
        lines.sort_unstable();
        lines
    })
}

#[test]
fn t4_a_missing_chain_of_an_unchanged_service_gives_one_error_and_then_a_full_sync() {
    for (backend, complaint) in [
        (
            Backend::Legacy,
            format!("(legacy): Couldn't load target `{NGINX}':No such file or directory\n"),
        ),
        (
            Backend::Nft,
            format!("(nf_tables): Chain '{NGINX}' does not exist\n"),
        ),
    ] {
        let mut desk = synced("1.32", backend);
        remove_service(&mut desk);
        desk.kernel.sh("iptables -t filter -F KUBE-FORWARD");
        desk.forget();
        churn(&mut desk, 1);
        let [error] = errors(&desk)[..] else {
            panic!("{backend:?}: {}", desk.said());
        };
        assert!(
            error.starts_with("\"Failed to execute iptables-restore\" err=<\n\texit status 2: "),
            "{error}"
        );
        assert!(error.contains(&complaint), "{error}");
        assert!(error.contains("\n\tError occurred at line: "), "{error}");
        assert!(error.ends_with("\n > ipFamily=\"IPv4\""), "{error}");
        assert!(
            desk.kernel.chain("nat", "KUBE-SERVICES").is_empty(),
            "nat is as it was"
        );
        assert_eq!(
            desk.kernel.chain("filter", "KUBE-FORWARD").len(),
            3,
            "filter is healed"
        );
        // Nothing else happens: the repeat after the sync period is full.
        desk.forget();
        desk.pass(30 * SECOND);
        assert_eq!(desk.ensured(), 14);
        assert!(errors(&desk).is_empty(), "{}", desk.said());
        assert_eq!(desk.kernel.chain("nat", NGINX).len(), 3);
        churn(&mut desk, 2);
        assert!(
            errors(&desk).is_empty(),
            "one error a removal: {}",
            desk.said()
        );
    }
}

#[test]
fn t4_the_next_event_heals_before_the_sync_period_is_over() {
    for version in ["1.27", "1.32", "1.34"] {
        let mut desk = synced(version, Backend::Legacy);
        remove_service(&mut desk);
        churn(&mut desk, 1);
        assert_eq!(errors(&desk).len(), 1, "{version}: {}", desk.said());
        desk.forget();
        churn(&mut desk, 2);
        assert_eq!(desk.ensured(), 14, "{version}");
        assert_eq!(desk.kernel.chain("nat", NGINX).len(), 3, "{version}");
    }
}

#[test]
fn t5_missing_chains_of_the_changed_service_are_made_without_an_error() {
    for backend in BACKENDS {
        let mut desk = synced("1.32", backend);
        remove_service(&mut desk);
        desk.tell_later(slice("nginx", &[("10.20.10.127", "n1")]));
        assert!(errors(&desk).is_empty(), "{}", desk.said());
        assert_eq!(desk.kernel.chain("nat", NGINX).len(), 2);
    }
}

#[test]
fn t6_an_endpoint_chain_cannot_be_removed_while_its_service_leads_to_it() {
    for (backend, exit) in [(Backend::Legacy, 1), (Backend::Nft, 4)] {
        let mut desk = synced("1.32", backend);
        desk.kernel.sh(&format!("iptables -t nat -F {ENDPOINT}"));
        let output = desk
            .kernel
            .try_sh(&format!("iptables -t nat -X {ENDPOINT}"));
        assert_eq!(output.exit, exit, "{}", output.stderr);
    }
}

#[test]
fn t7_a_nat_table_that_was_emptied_fails_a_partial_sync_and_the_full_one_makes_jumps_again() {
    for backend in BACKENDS {
        let mut desk = synced("1.32", backend);
        desk.kernel.sh("iptables -t nat -F");
        desk.kernel.sh("iptables -t nat -X");
        desk.forget();
        churn(&mut desk, 1);
        assert_eq!(errors(&desk).len(), 1, "{}", desk.said());
        assert!(!has_jump(&mut desk));
        desk.pass(30 * SECOND);
        assert!(has_jump(&mut desk));
        assert_eq!(desk.kernel.chain("nat", NGINX).len(), 3);
    }
}

/// Only mangle's canary is watched.
#[test]
fn t7_without_an_event_an_emptied_nat_table_is_not_noticed() {
    let mut desk = synced("1.32", Backend::Legacy);
    desk.kernel.sh("iptables -t nat -F");
    desk.kernel.sh("iptables -t nat -X");
    desk.pass(59 * 60 * SECOND);
    assert!(!has_jump(&mut desk));
    assert!(errors(&desk).is_empty());
}

#[test]
fn t8_when_everything_is_gone_the_monitor_brings_it_back_within_a_sync_period() {
    for backend in BACKENDS {
        let mut desk = synced("1.32", backend);
        desk.pass(7 * SECOND);
        let before = desk.kernel.save("nat");
        for table in ["mangle", "nat", "filter"] {
            desk.kernel.sh(&format!("iptables -t {table} -F"));
            desk.kernel.sh(&format!("iptables -t {table} -X"));
        }
        desk.pass(Duration::from_secs(30));
        let after = desk.kernel.save("nat");
        assert_eq!(
            sorted(&[after, String::new()])[0],
            sorted(&[before, String::new()])[0],
            "{backend:?}: {}",
            desk.said()
        );
        assert!(has_jump(&mut desk));
        assert!(errors(&desk).is_empty());
    }
}
