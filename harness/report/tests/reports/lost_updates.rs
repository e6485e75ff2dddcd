//! Legacy iptables without a common lock: what somebody wrote is lost when another puts back what he had read.

use chainbreak_model::event::{Event, EventKind, Named};
use chainbreak_netfilter::replay::Backend;
use chainbreak_report::edits::EditIndex;

use crate::history::{RESTORE, command};

const SYNC: &str =
    "*nat\n:KUBE-SEP-A - [0:0]\n-A KUBE-SEP-A -j DNAT --to-destination 10.20.1.3:80\nCOMMIT\n";
const UPDATE: &str =
    "*nat\n:KUBE-SEP-A - [0:0]\n-A KUBE-SEP-A -j DNAT --to-destination 10.20.1.4:80\nCOMMIT\n";
const OTHER: &str = "*nat\n-A OUTPUT -d 192.0.2.1 -j RETURN\nCOMMIT\n";

/// What a writer made in truth that ended at 3 s and was given its first line so long before.
fn made(own: Backend, before_us: u64, others: &[Event]) -> Vec<String> {
    let mut slow = command(
        "n1",
        3_000_000,
        "other-writer",
        &["iptables-restore", "--noflush"],
        OTHER,
    );
    if let EventKind::Command(slow) = &mut slow.what {
        slow.took_us = 2_900_000;
        slow.named = vec![Named {
            table: "nat".to_owned(),
            before_us,
        }];
    }
    let mut events = vec![command("n1", 50_000, "kube-proxy", &RESTORE, SYNC)];
    events.extend_from_slice(others);
    events.push(slow);
    let index = EditIndex::new(&events, own);
    let last = index.edits().last().expect("it is there");
    last.changes.iter().map(|it| format!("{it:?}")).collect()
}

fn update(ended_us: u64, took_us: u64) -> Event {
    let mut update = command("n1", ended_us, "kube-proxy", &RESTORE, UPDATE);
    if let EventKind::Command(update) = &mut update.what {
        update.took_us = took_us;
    }
    update
}

#[test]
fn who_puts_back_an_old_copy_undoes_what_was_written_since_he_read_it() {
    let made = made(Backend::Legacy, 2_000_000, &[update(2_000_000, 8_000)]);
    let [own, gone, back] = made.as_slice() else {
        panic!("{made:?}");
    };
    assert!(
        gone.contains("10.20.1.4") && back.contains("10.20.1.3"),
        "{made:?}"
    );
    assert!(own.contains("RETURN"), "{made:?}");
}

#[test]
fn nothing_is_lost_that_was_written_before_he_read_it_or_while_he_waited_for_the_lock_or_by_nft() {
    let own = |own: Backend, before_us: u64, took_us: u64| {
        let made = made(own, before_us, &[update(2_000_000, took_us)]);
        made.len() == 1 && made[0].contains("RETURN")
    };
    assert!(own(Backend::Legacy, 500_000, 8_000));
    // It was at work already when he was given the line.
    assert!(own(Backend::Legacy, 2_000_000, 1_500_000));
    assert!(own(Backend::Nft, 2_000_000, 8_000));
}
