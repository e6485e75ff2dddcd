//! The live view.

use chainbreak_model::event::{EventKind, Phase};
use chainbreak_report::Progress;

use crate::history::{ROUNDS, event, history};

#[test]
fn those_without_a_live_view_read_every_turn_and_nothing_else() {
    let mut events = history(&ROUNDS[..1]);
    events.sort_by_key(|event| event.at_us);
    let mut progress = Progress::default();
    let lines: Vec<String> = events
        .iter()
        .filter_map(|event| progress.observe(event))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn what_is_told_once_is_counted_at_the_end() {
    let mut progress = Progress::default();
    let mut events = history(ROUNDS);
    events.sort_by_key(|event| event.at_us);
    let told: Vec<String> = events
        .iter()
        .filter_map(|event| progress.observe(event))
        .filter(|line| line.contains("felix on"))
        .collect();
    // Both nodes' cuts of nat and filter in every round, and the first of each was told.
    let more = ROUNDS.len() * 2 - 1;
    assert_eq!(told.len(), 2, "{told:?}");
    let repeated = progress.repeated();
    for table in ["nat", "filter"] {
        let line = format!("felix deleted rules of others in {table}: {more} times more");
        assert!(repeated.contains(&line), "{repeated:?}");
    }
}

#[test]
fn the_live_line_says_phase_time_share_and_the_latest_turn() {
    let mut progress = Progress::default();
    assert_eq!(progress.line(), "waiting 0.0 s");
    let mut events = history(&ROUNDS[..1]);
    events.sort_by_key(|event| event.at_us);
    for event in events.iter().filter(|event| event.at_us < 3_000_000) {
        progress.observe(event);
    }
    let line = progress.line();
    assert!(
        line.starts_with("judging 3.0 s · 76 % answered · kube-proxy on n1 logs: "),
        "{line}"
    );
}

#[test]
fn a_step_that_is_called_like_its_phase_is_the_latest_turn_all_the_same() {
    let mut progress = Progress::default();
    progress.observe(&event(1_000_000, EventKind::Phase(Phase::Judging)));
    assert_eq!(progress.line(), "judging 1.0 s");
    let text = "judging".to_owned();
    progress.observe(&event(2_000_000, EventKind::Step { text }));
    assert_eq!(progress.line(), "judging 2.0 s · judging");
}
