//! The watch over the canary.

use crate::{
    desk::{Desk, Invented, SECOND, failed},
    objects::{config, nginx},
};

const CANARY: &str = "KUBE-PROXY-CANARY";

fn synced(version: &str) -> Desk<Invented> {
    Desk::synced(config(version), Invented::default(), nginx())
}

fn looks(desk: &Desk<Invented>) -> Vec<String> {
    let typed = desk.typed("iptables");
    typed.into_iter().filter(|it| it.contains(" -S ")).collect()
}

#[test]
fn the_canary_is_put_into_three_tables_and_looked_at_in_one() {
    for (version, wait) in [
        ("1.33", "-w 5 -W 100000"),
        ("1.34.0", "-w 5"),
        ("1.36", "-w 5"),
    ] {
        let mut desk = synced(version);
        let typed = desk.typed("iptables");
        for table in ["mangle", "nat", "filter"] {
            let line = format!("iptables {wait} -N {CANARY} -t {table}");
            assert!(typed.contains(&line), "{typed:#?}");
        }
        let restore = format!("iptables-restore {wait} --noflush --counters");
        assert!(desk.typed("iptables-restore").contains(&restore));
        desk.forget();
        desk.pass(61 * SECOND);
        let look = format!("iptables {wait} -S {CANARY} -t mangle");
        assert_eq!(looks(&desk), [look.clone(), look]);
        assert!(desk.restores().is_empty());
    }
}

#[test]
fn losses_in_nat_and_filter_are_not_noticed() {
    let mut desk = synced("1.32");
    for table in ["nat", "filter"] {
        desk.kernel.lose(table, CANARY);
    }
    desk.forget();
    desk.pass(600 * SECOND);
    assert!(desk.restores().is_empty());
}

#[test]
fn a_loss_in_all_tables_gives_a_full_sync_at_the_next_look() {
    for version in ["1.20", "1.26", "1.32", "1.34"] {
        let mut desk = synced(version);
        for table in ["mangle", "nat", "filter"] {
            desk.kernel.lose(table, CANARY);
        }
        desk.forget();
        desk.pass(30 * SECOND);
        assert_eq!(desk.restore_times(), [30 * SECOND], "{version}");
        assert!(desk.ensured() >= 8, "{version}");
        // The canary is back, and watched again.
        let typed = desk.typed("iptables");
        assert!(
            typed
                .last()
                .unwrap()
                .ends_with(&format!("-N {CANARY} -t filter")),
            "{typed:#?}"
        );
        desk.forget();
        desk.pass(60 * SECOND);
        assert_eq!(looks(&desk).len(), 2);
    }
}

#[test]
fn a_loss_in_mangle_alone_waits_five_seconds_for_the_others_and_says_so() {
    for (version, lines) in [
        (
            "1.20",
            "Info iptables.go:579] iptables canary mangle/KUBE-PROXY-CANARY deleted\n\
             Warning iptables.go:592] Inconsistent iptables state detected.\n\
             Info iptables.go:605] Reloading after iptables flush\n",
        ),
        (
            "1.32",
            "Info iptables.go:579] \"IPTables canary deleted\" table=\"mangle\" chain=\"KUBE-PROXY-CANARY\"\n\
             Info iptables.go:592] \"Inconsistent iptables state detected\"\n\
             Info iptables.go:605] \"Reloading after iptables flush\"\n",
        ),
    ] {
        let mut desk = synced(version);
        desk.kernel.lose("mangle", CANARY);
        desk.forget();
        desk.pass(34 * SECOND);
        assert!(desk.restores().is_empty(), "{version}");
        desk.pass(2 * SECOND);
        assert_eq!(desk.restore_times(), [35 * SECOND], "{version}");
        assert!(desk.said().starts_with(lines), "{}", desk.said());
    }
}

#[test]
fn a_lock_that_stays_taken_is_no_loss() {
    let mut desk = synced("1.32");
    desk.kernel.lose("mangle", CANARY);
    let text = "Another app is currently holding the xtables lock. Stopped waiting after 5s.\n";
    desk.kernel
        .outputs
        .insert("-S KUBE-PROXY-CANARY", failed(4, text));
    desk.forget();
    desk.pass(31 * SECOND);
    assert!(desk.restores().is_empty());
    assert!(
        desk.said()
            .contains("\"Could not check for iptables canary\""),
        "{}",
        desk.said()
    );
    desk.kernel.outputs.clear();
    desk.kernel.lose("nat", CANARY);
    desk.kernel.lose("filter", CANARY);
    desk.pass(30 * SECOND);
    assert_eq!(desk.restores().len(), 1);
}

#[test]
fn a_canary_that_cannot_be_set_up_is_tried_again_every_sync_period() {
    let mut kernel = Invented::default();
    kernel
        .outputs
        .insert("-N KUBE-PROXY-CANARY -t nat", failed(4, "busy\n"));
    let mut desk = Desk::synced(config("1.32"), kernel, nginx());
    assert!(
        desk.said().contains("\"Could not set up iptables canary\""),
        "{}",
        desk.said()
    );
    desk.pass(29 * SECOND);
    desk.kernel.outputs.clear();
    desk.forget();
    desk.pass(2 * SECOND);
    assert_eq!(desk.typed("iptables").len(), 3);
}
