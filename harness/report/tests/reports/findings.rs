//! What is found is values, and no renderer reads words.

use chainbreak_model::{case::Expect, event::EventKind};
use chainbreak_report::{
    deeds::{Deed, Verb},
    edits::Link,
    finding::Finding,
    summary::{Headline, Summary},
    timeline::{Happening, Kind},
};

use crate::history::{ROUNDS, case, event, history, run, summaries};

fn incident() -> Summary {
    summaries(&run(vec![(case("v", Expect::Healthy), history(ROUNDS))])).remove(0)
}

#[test]
fn who_did_it_and_who_healed_it_is_known_without_reading_a_word() {
    let summary = incident();
    assert_eq!(summary.headline, Some(Headline::Promise(0)));
    let Finding::Lost(lost) = &summary.promises[0].finding else {
        panic!("{:?}", summary.promises[0].finding);
    };
    let outage = lost.outage.as_ref().unwrap();
    let cause = outage.cause.as_ref().unwrap();
    let jump = Link::Jump {
        table: "nat".to_owned(),
        chain: "PREROUTING".to_owned(),
        target: "KUBE-SERVICES".to_owned(),
    };
    assert_eq!((&cause.link, cause.who.as_str()), (&jump, "felix"));
    assert_eq!(outage.node, Some("n2".into()));
    let heal = outage.told[0].heal.as_ref().unwrap();
    assert!(heal.full_sync && heal.at_us == 8_010_000, "{heal:?}");

    let Finding::Logged(logged) = &summary.promises[1].finding else {
        panic!("{:?}", summary.promises[1].finding);
    };
    assert_eq!(logged.cause.as_ref().unwrap().who, "felix");
    let Finding::Rule(found) = &summary.promises[2].finding else {
        panic!("{:?}", summary.promises[2].finding);
    };
    let causes = found.told.iter().flatten().map(|time| &time.cause);
    assert_eq!(causes.flatten().count(), 10);
}

#[test]
fn a_round_in_which_the_scenario_does_what_it_did_not_before_is_told() {
    let mut events = history(ROUNDS);
    let text = "the API's endpoint moves".to_owned();
    events.push(event(11_000_000, EventKind::Step { text }));
    events.sort_by_key(|event| event.at_us);
    let story = summaries(&run(vec![(case("v", Expect::Healthy), events)]))
        .remove(0)
        .story;
    let told: Vec<bool> = story.rounds.iter().map(|round| round.told).collect();
    assert_eq!(told, [true, true, true, false, true, false, true]);
}

#[test]
fn a_story_has_times_nodes_and_deeds_and_every_round_that_its_lines_leave_out() {
    let story = incident().story;
    let told: Vec<bool> = story.rounds.iter().map(|round| round.told).collect();
    assert_eq!(told, [true, true, true, false, false, false, true]);
    let cuts = story.rounds.iter().filter_map(|round| {
        let first = round.entries.first()?;
        match &first.what {
            Happening::Cut(deeds) => Some((first.at_us, &deeds.0)),
            _ => None,
        }
    });
    let cuts: Vec<_> = cuts.collect();
    let times: Vec<u64> = cuts.iter().map(|(at_us, _)| *at_us).collect();
    let begun: Vec<u64> = ROUNDS.iter().map(|(cut, _)| *cut).collect();
    assert_eq!(times, begun);
    let [Deed::Done { verb, tables }] = &cuts[0].1[..] else {
        panic!("{:?}", cuts[0].1);
    };
    assert_eq!(*verb, Verb::Deleted);
    let counted = tables
        .iter()
        .map(|it| (it.table.as_str(), it.chains, it.jumps));
    let counted: Vec<_> = counted.collect();
    assert_eq!(counted, [("nat", 5, 2), ("filter", 1, 1)]);
    let kinds = story.elsewhere.iter().map(|entry| entry.what.kind());
    assert_eq!(kinds.filter(|kind| *kind == Kind::Cut).count(), 5);
}

#[test]
fn a_summary_is_data_that_other_programs_read() {
    let summary = serde_json::to_value(incident()).unwrap();
    let at = |path: &str| {
        summary
            .pointer(path)
            .unwrap_or_else(|| panic!("{path}: {summary}"))
    };
    assert_eq!(at("/headline/promise"), 0);
    let outage = "/promises/0/finding/lost/outage";
    assert_eq!(at(&format!("{outage}/cause/link/jump/chain")), "PREROUTING");
    assert_eq!(at(&format!("{outage}/told/0/gap/lost")), 160);
    assert_eq!(at("/promises/0/claim/available/at-least"), 99.9);
    assert_eq!(
        at("/story/rounds/1/entries/0/what/cut/0/done/verb"),
        "deleted"
    );
}

#[test]
fn how_requests_ended_is_counted_by_its_kind_and_not_by_its_words() {
    let mut summary = incident();
    if let Finding::Lost(lost) = &mut summary.promises[0].finding {
        let outcomes = &mut lost.requests.outcomes;
        outcomes.insert("wrongly answered".to_owned(), 3);
    }
    let evidence = summary.promises[0].evidence();
    let first = "43.14 % of 700 requests answered (302; 398 timed out, 3 wrongly answered)";
    assert_eq!(evidence[0], first);
}
