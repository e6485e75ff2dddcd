//! Who is blamed, and that nobody is blamed by guess.

use std::sync::Arc;

use chainbreak_model::{
    case::{Expect, Origin},
    event::{Dropped, DropsSeen, Event, EventKind, LogEntry, Phase},
    names::AgentName,
    verdict::FirstEntry,
};
use chainbreak_report::{attribution, edits::EditIndex, summary::Summary};

use crate::history::{
    RESTORE, ROUNDS, SVC, case, cleanup, command, event, failing_sync, full_sync, history, run,
    sample, summaries,
};

/// A case of two seconds in which requests are lost from 1.5 s to 1.7 s, beside what else happened.
fn losing(extra: Vec<Event>) -> Vec<Event> {
    let mut events = full_sync("n1", 300_000);
    events.extend(full_sync("n2", 300_000));
    events.extend(extra);
    lost(events)
}

/// The same without what kube-proxy wrote.
pub(crate) fn lost(extra: Vec<Event>) -> Vec<Event> {
    let mut events = vec![event(1_000_000, EventKind::Phase(Phase::Judging))];
    events.extend(extra);
    let due = (1_000_000..2_000_000).step_by(20_000);
    events.extend(due.map(|at_us| sample(at_us, !(1_500_000..1_700_000).contains(&at_us))));
    events.push(event(2_000_000, EventKind::Phase(Phase::Judged)));
    events
}

pub(crate) fn answers(events: Vec<Event>, from: Option<Origin>) -> Summary {
    let mut case = case("v", Expect::Healthy);
    Arc::make_mut(&mut case.promises).retain(|name, _| name.as_str() == "answers");
    if let (Some(from), Some(traffic)) =
        (from, Arc::make_mut(&mut case.traffic).values_mut().next())
    {
        traffic.from = from;
    }
    summaries(&run(vec![(case, events)])).remove(0)
}

pub(crate) fn headline(extra: Vec<Event>) -> String {
    answers(losing(extra), None).headline().unwrap()
}

/// Of what happened and of nothing else.
pub(crate) fn headline_of(events: Vec<Event>) -> String {
    answers(lost(events), None).headline().unwrap()
}

pub(crate) const DEAD: &str = "services dead on n2 for 0.200 s from 1.50 s: ";

#[test]
fn of_requests_that_were_never_answered_it_is_said_that_none_was() {
    let mut events = losing(Vec::new());
    events.retain(|event| match &event.what {
        EventKind::Sample { sample, .. } => !sample.outcome.is_answered(),
        _ => true,
    });
    let said = answers(events, None).headline().unwrap();
    assert!(said.ends_with(": from the first request on"), "{said}");
}

#[test]
fn a_gap_that_no_command_explains_blames_nobody() {
    assert_eq!(
        headline(Vec::new()),
        format!("{DEAD}no recorded command explains it")
    );
}

/// Packets that ended in a rule, told at that time.
pub(crate) fn dropped(at_us: u64, chain: &str, packets: u64) -> Event {
    let dropped = Dropped {
        owner: "kube-proxy".to_owned(),
        table: "filter".to_owned(),
        chain: chain.to_owned(),
        rule: "-m conntrack --ctstate INVALID -j DROP".to_owned(),
        packets,
        bytes: packets * 60,
    };
    let seen = DropsSeen {
        node: "n1".into(),
        front: "iptables".to_owned(),
        grown: vec![dropped],
    };
    event(at_us, EventKind::Drops(seen))
}

#[test]
fn where_packets_ended_meanwhile_is_told_of_a_gap_that_no_command_explains() {
    let told = vec![
        dropped(1_400_000, "BEFORE", 99),
        dropped(1_600_000, "FEW", 3),
        dropped(1_650_000, "KUBE-FORWARD", 4),
        // The look after the gap tells of it, too.
        dropped(1_900_000, "KUBE-FORWARD", 3),
        dropped(5_300_000, "AFTER", 99),
    ];
    let rule = "filter KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP";
    let ended = format!("7 packets ended meanwhile in {rule} on n1 (kube-proxy)");
    let unexplained = format!("{DEAD}no recorded command explains it; {ended}");
    assert_eq!(headline(told.clone()), unexplained);
    let explained = [told, cleanup("n2", 1_490_000)].concat();
    assert!(!headline(explained).contains("meanwhile"));
}

#[test]
fn where_packets_ended_is_told_of_requests_that_are_lost_one_here_and_one_there() {
    let lost = [1_200_000, 1_500_000, 1_800_000];
    let mut events = losing(vec![
        dropped(1_100_000, "BEFORE", 99),
        dropped(1_300_000, "KUBE-FORWARD", 4),
        dropped(1_700_000, "FEW", 7),
        dropped(1_900_000, "KUBE-FORWARD", 5),
    ]);
    events.retain(|event| !matches!(event.what, EventKind::Sample { .. }));
    let due = (1_000_000..2_000_000).step_by(20_000);
    events.extend(due.map(|at_us| sample(at_us, !lost.contains(&at_us))));
    let said = answers(events, None).headline().unwrap();
    assert!(said.contains("lost 3 of 50 requests"), "{said}");
    let rule = "filter KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP";
    let ended = format!("; 9 packets ended meanwhile in {rule} on n1 (kube-proxy)");
    assert!(said.ends_with(&ended), "{said}");
}

#[test]
fn a_cut_on_another_node_is_not_blamed() {
    assert!(headline(cleanup("n1", 1_490_000)).ends_with("no recorded command explains it"));
    assert!(
        headline(cleanup("n2", 1_490_000)).ends_with("deleted by felix (iptables-legacy-restore)")
    );
}

#[test]
fn a_cut_that_was_mended_before_the_gap_is_not_blamed() {
    let mut events = cleanup("n2", 1_200_000);
    events.extend(full_sync("n2", 1_300_000));
    assert!(headline(events).ends_with("no recorded command explains it"));
}

#[test]
fn a_cut_after_the_gap_began_is_not_blamed() {
    assert!(headline(cleanup("n2", 1_600_000)).ends_with("no recorded command explains it"));
}

#[test]
fn a_cut_just_after_the_first_lost_request_was_due_is_blamed_only_where_the_gap_is_long() {
    // The restore takes 4 ms: it begins 31 ms after the first lost request was due.
    let late = || cleanup("n2", 1_535_000);
    assert!(headline(late()).ends_with("deleted by felix (iptables-legacy-restore)"));
    let mut short = losing(late());
    short.retain(|event| !matches!(event.what, EventKind::Sample { .. }));
    let due = (1_000_000..2_000_000).step_by(20_000);
    short.extend(due.map(|at_us| sample(at_us, !(1_500_000..1_600_000).contains(&at_us))));
    let short = answers(short, None).headline().unwrap_or_default();
    assert!(
        short.ends_with("no recorded command explains it"),
        "{short}"
    );
}

#[test]
fn a_failed_restore_is_not_blamed_for_what_it_did_not_do() {
    assert!(headline(failing_sync("n2", 1_490_000)).ends_with("no recorded command explains it"));
}

#[test]
fn a_flushed_chain_of_the_service_is_found_by_the_services_name() {
    let flush = ["iptables", "-t", "nat", "-F", SVC];
    let events = vec![command("n2", 1_499_000, "pod/test/script", &flush, "")];
    let why = format!("{DEAD}chain {SVC} emptied by pod/test/script (iptables)");
    assert_eq!(headline(events), why);
    let other = ["iptables", "-t", "nat", "-F", "KUBE-SVC-AAAAAAAAAAAAAAAA"];
    let events = vec![command("n2", 1_499_000, "pod/test/script", &other, "")];
    assert!(headline(events).ends_with("no recorded command explains it"));
}

#[test]
fn traffic_that_starts_on_a_node_depends_on_output() {
    let delete = |chain| {
        let input = format!("*nat\n-D {chain} -j KUBE-SERVICES\nCOMMIT\n");
        losing(vec![command("n1", 1_499_000, "felix", &RESTORE, &input)])
    };
    let node = || Some(Origin::Node("n1".into()));
    let told = answers(delete("OUTPUT"), node()).headline().unwrap();
    assert!(
        told.contains("dead on n1 ")
            && told.contains("jump OUTPUT → KUBE-SERVICES deleted by felix")
    );
    let told = answers(delete("PREROUTING"), node()).headline().unwrap();
    assert!(told.ends_with("no recorded command explains it"), "{told}");
}

#[test]
fn the_node_of_a_pod_that_is_not_pinned_is_the_one_where_the_cut_fits() {
    let mut events = losing(cleanup("n1", 1_495_000));
    events.extend(cleanup("n2", 1_100_000));
    events.extend(full_sync("n2", 1_200_000));
    let from = Origin::Pod {
        namespace: "test".to_owned(),
        name: "nginx-1".to_owned(),
    };
    let told = answers(events, Some(from)).headline().unwrap();
    assert!(
        told.starts_with("services dead on n1 for 0.200 s from 1.50 s: jump PREROUTING"),
        "{told}"
    );
}

#[test]
fn a_silent_outage_is_told_to_its_end() {
    let mut events = losing(cleanup("n2", 1_400_000));
    events.retain(|event| !matches!(event.what, EventKind::Sample { .. }));
    let due = (1_000_000..2_000_000).step_by(20_000);
    events.extend(due.map(|at_us| sample(at_us, at_us < 1_400_000)));
    let summary = answers(events, None);
    let told = summary.headline().unwrap();
    assert!(
        told.starts_with("services dead on n2 for 0.600 s from 1.40 s: jump PREROUTING"),
        "{told}"
    );
    let evidence = summary.promises[0].evidence().join("\n");
    assert!(!evidence.contains("healed"), "{evidence}");
    assert!(
        summary
            .story
            .lines()
            .join("\n")
            .contains("no answers any more, to the end: 600 ms, 30 requests lost")
    );
}

#[test]
fn only_a_sync_that_ensures_jumps_is_called_full() {
    let healed_by = |events: Vec<Event>| {
        let evidence = answers(losing(events), None).promises.remove(0).evidence();
        evidence
            .join("\n")
            .split_once("; healed by ")
            .map(|(_, heal)| heal.to_owned())
            .unwrap()
    };
    let flush = ["iptables", "-t", "nat", "-F", "KUBE-SERVICES"];
    let flushed = command("n2", 1_499_000, "pod/test/script", &flush, "");
    let canary = [
        "iptables",
        "-w",
        "5",
        "-S",
        "KUBE-PROXY-CANARY",
        "-t",
        "mangle",
    ];
    let partial = format!("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j {SVC}\nCOMMIT\n");
    let events = vec![
        flushed.clone(),
        command("n2", 1_650_000, "kube-proxy", &canary, ""),
        command("n2", 1_690_000, "kube-proxy", &RESTORE, &partial),
    ];
    assert_eq!(healed_by(events), "kube-proxy (iptables-restore) at 1.690");
    let events = [vec![flushed], full_sync("n2", 1_690_000)].concat();
    assert_eq!(healed_by(events), "a full sync of kube-proxy at 1.690");
}

#[test]
fn the_chain_that_a_log_entry_misses_is_traced_on_both_backends() {
    let mut events = cleanup("n2", 1_000_000);
    events.extend(full_sync("n2", 1_250_000));
    let index = EditIndex::new(&events, chainbreak_netfilter::replay::Backend::Legacy);
    let blamed = |text: String, at_us| {
        let agent = AgentName::KubeProxy;
        assert_eq!(agent.as_str(), "kube-proxy");
        let entry = FirstEntry {
            at_us,
            node: "n2".into(),
            text,
        };
        attribution::of_entry(&index, &entry).map(|cause| cause.to_string())
    };
    let legacy = format!("E…\n\tCouldn't load target `{SVC}':No such file or directory\n");
    let nft = format!("E…\n\tiptables-restore v1.8.9 (nf_tables): Chain '{SVC}' does not exist\n");
    let why = format!("chain {SVC} deleted by felix (iptables-legacy-restore)");
    assert_eq!(blamed(legacy.clone(), 1_100_000), Some(why.clone()));
    assert_eq!(blamed(nft, 1_100_000), Some(why));
    // Long since mended: somebody else must have done it.
    assert_eq!(blamed(legacy, 1_500_000), None);
    assert_eq!(blamed("E… no chain is named".to_owned(), 1_100_000), None);
}

#[test]
fn the_story_of_seventy_nodes_and_many_rounds_fits_two_screens() {
    let rounds: Vec<(u64, u64)> = (0..40)
        .map(|n| (2_000_000 + n * 300_000, 2_200_000 + n * 300_000))
        .collect();
    let mut events = history(&rounds);
    let commands: Vec<Event> = events
        .iter()
        .filter(|event| matches!(event.what, EventKind::Command(_)))
        .cloned()
        .collect();
    for node in 3..=70 {
        for mut event in commands.iter().cloned() {
            if let EventKind::Command(command) = &mut event.what
                && command.node.as_str() == "n1"
            {
                command.node = format!("n{node}").into();
                events.push(event);
            }
        }
    }
    let summary = summaries(&run(vec![(case("v", Expect::Healthy), events)])).remove(0);
    let story = summary.story.lines();
    assert!(story.len() < 80, "{}", story.join("\n"));
    let last = story.last().unwrap();
    assert!(
        last.starts_with("69 other nodes, from 2.005 s: felix deleted"),
        "{last}"
    );
}

#[test]
fn half_a_case_is_never_a_success_but_what_broke_stays_broken() {
    use chainbreak_report::summary::Outcome;
    let until = |end: u64| {
        let mut events = history(ROUNDS);
        events.retain(|event| event.at_us < end);
        events
    };
    let outcome = |expect, end| summaries(&run(vec![(case("v", expect), until(end))]))[0].outcome;
    assert_eq!(outcome(Expect::Healthy, 2_000_000), Outcome::Inconclusive);
    assert_eq!(outcome(Expect::Healthy, 9_000_000), Outcome::NotAsExpected);
    assert_eq!(
        outcome(crate::history::all_broken(), 9_000_000),
        Outcome::Inconclusive
    );
}

#[test]
fn a_restore_that_only_states_a_built_in_chains_policy_cuts_nothing() {
    let input = "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n";
    let told = headline(vec![command("n2", 1_495_000, "felix", &RESTORE, input)]);
    assert!(told.ends_with("no recorded command explains it"), "{told}");
}

#[test]
fn a_round_that_shows_something_new_is_told_among_those_that_do_not() {
    let mut events = history(ROUNDS);
    let mut failed = command("n2", 11_200_000, "felix", &["iptables-legacy-restore"], "");
    if let EventKind::Command(command) = &mut failed.what {
        command.exit = 1;
        command.stderr = "iptables-restore: line 3 failed\n".to_owned();
    }
    events.push(failed);
    let summary = summaries(&run(vec![(case("v", Expect::Healthy), events)])).remove(0);
    let story = summary.story.lines().join("\n");
    let told = "iptables-legacy-restore failed (exit 1): iptables-restore: line 3 failed";
    assert!(story.contains(told), "{story}");
    assert!(story.contains("… 1 more round like this"), "{story}");
}

#[test]
fn a_failed_restore_is_left_out_only_where_the_agent_speaks_of_the_chain_that_it_misses() {
    let mut failed = command("n2", 1_490_000, "kube-proxy", &RESTORE, "");
    if let EventKind::Command(command) = &mut failed.what {
        command.exit = 2;
        command.stderr = "iptables-restore: Chain 'logs' does not exist\n".to_owned();
    }
    let story = |text: &str| {
        let entry = LogEntry {
            agent: AgentName::KubeProxy,
            node: "n2".into(),
            text: text.to_owned(),
        };
        let logged = event(1_491_000, EventKind::Log(entry));
        let summary = answers(losing(vec![failed.clone(), logged]), None);
        summary.story.lines().join("\n")
    };
    let other = story("W1121 06:30:05.0 1 proxier.go:1] \"Retrying\"");
    assert!(
        other.contains("iptables-restore failed (exit 2)"),
        "{other}"
    );
    let same = story("W1121 06:30:05.0 1 proxier.go:1] \"No chain\" chain=\"logs\"");
    assert!(!same.contains("iptables-restore failed"), "{same}");
}
