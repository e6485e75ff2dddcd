//! Legacy iptables without a common lock: what somebody wrote is lost when another puts back what he had read.

use chainbreak_model::event::{Command, Event, EventKind, Named};
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
    made_by(|_| (), own, before_us, others)
}

fn made_by(
    otherwise: impl FnOnce(&mut Command),
    own: Backend,
    before_us: u64,
    others: &[Event],
) -> Vec<String> {
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
        otherwise(slow);
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
    let own = |own: Backend, before_us: u64, others: &[Event]| {
        let made = made(own, before_us, others);
        made.len() == 1 && made[0].contains("RETURN")
    };
    let short = [update(2_000_000, 8_000)];
    assert!(own(Backend::Legacy, 500_000, &short));
    assert!(own(Backend::Nft, 2_000_000, &short));
    // It was at work already when he was given the line, or began when one was that was.
    let long = update(2_000_000, 1_500_000);
    assert!(own(Backend::Legacy, 2_000_000, &[long]));
    let holds = update(1_500_000, 1_000_000);
    let next = update(2_000_000, 700_000);
    assert!(own(Backend::Legacy, 2_000_000, &[holds, next]));
}

#[test]
fn who_was_refused_or_was_given_more_tables_than_one_undoes_nothing() {
    let others = [update(2_000_000, 8_000)];
    let refused = |command: &mut Command| {
        command.exit = 4;
        command.stderr = "iptables-restore: line 3 failed".to_owned();
    };
    assert_eq!(
        made_by(refused, Backend::Legacy, 2_000_000, &others),
        [""; 0]
    );
    let several = |command: &mut Command| command.input.insert_str(0, "*raw\nCOMMIT\n");
    assert_eq!(
        made_by(several, Backend::Legacy, 2_000_000, &others).len(),
        1
    );
}
