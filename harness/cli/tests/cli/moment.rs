//! `explain` of a recorded run: the rules of a moment are rebuilt from the history, and held against what was kept.

use std::{fs, path::Path};

use serde_json::Value;

use crate::ground::{Ground, exits, text};

/// What a command of the history did, and when: its begin and its end, in microseconds.
type Time = (u64, u64);

/// The commands on n1 of which a line holds all of these words, and that succeeded.
fn commands(history: &str, who: &str, words: &[&str]) -> Vec<Time> {
    let events = history
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = events.filter_map(|event| {
        let command = &event["what"]["command"];
        let ours = command["who"] == who && command["node"] == "n1" && command["exit"] == 0;
        let argv = command["argv"].as_array()?.iter();
        let argv: Vec<&str> = argv.filter_map(Value::as_str).collect();
        let argv = argv.join(" ");
        let input = command["input"].as_str().unwrap_or_default();
        let mut lines = input.lines().chain([argv.as_str()]);
        let does = lines.any(|line| words.iter().all(|word| line.contains(word)));
        let end = event["at-us"].as_u64()?;
        (ours && does).then(|| (end - command["took-us"].as_u64().unwrap_or(0), end))
    });
    found.collect()
}

/// When Felix took the jump away, and a moment after that at which it was still gone and nobody at work.
fn gone(history: &str) -> (Time, u64) {
    let deletes = commands(history, "felix", &["-D PREROUTING", "KUBE-SERVICES"]);
    let made = commands(history, "kube-proxy", &["-I PREROUTING", "KUBE-SERVICES"]);
    let of_anybody = ["felix", "kube-proxy"].map(|who| commands(history, who, &[""]));
    let at_work = |at: u64| {
        of_anybody
            .iter()
            .flatten()
            .any(|(begin, end)| *begin <= at && at < *end)
    };
    let mut moments = deletes.iter().filter_map(|delete| {
        let until = made.iter().map(|it| it.0).find(|begin| *begin > delete.1);
        let until = until.unwrap_or(delete.1 + 1_000_000);
        let quiet = (delete.1 + 1..until)
            .step_by(1_000)
            .find(|at| !at_work(*at));
        quiet.map(|at| (*delete, at))
    });
    moments.next_back().unwrap()
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}s", us / 1_000_000, us % 1_000_000)
}

/// A run in which Felix, in eBPF mode and without programs, deletes what kube-proxy writes.
fn fight() -> Ground {
    let ground = Ground::new();
    exits(&ground.run("fight-nobody-expects", &[]), 10);
    ground
}

/// Nobody is answered in that run, so that no pod's address is known: a host of the lab's network asks.
const ASKED: [&str; 4] = ["explain", "10.0.2.1", "test/web:80", "out/latest"];

#[test]
fn at_a_moment_without_the_jump_a_packet_keeps_the_services_address_and_before_it_had_an_endpoints()
{
    let ground = fight();
    let (delete, at) = gone(&ground.history());
    let output = ground.chainbreak(&[&ASKED[..], &["--at", &seconds(at)]].concat());
    exits(&output, 0);
    let said = text(&output.stdout);
    let first = said.lines().next().unwrap();
    assert!(first.contains("received by eth0"), "{said}");
    assert!(
        first.ends_with(" s on n1 in short/fight-nobody-expects"),
        "{said}"
    );
    let address = first
        .split(" → ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    assert!(address.starts_with("10.96."), "{said}");
    assert!(
        said.contains(&format!("→ {address} SYN leaves the node")),
        "{said}"
    );
    assert!(!said.contains("KUBE-SVC-"), "{said}");
    assert!(
        said.contains("Not in the history, and so not known: `conntrack -L`"),
        "{said}"
    );

    let before = ground.chainbreak(&[&ASKED[..], &["--at", &seconds(delete.0 - 1)]].concat());
    let said = text(&before.stdout);
    let jump = "nat PREROUTING";
    assert!(
        said.contains(jump) && said.contains("to KUBE-SERVICES"),
        "{said}"
    );
    assert!(said.contains("to KUBE-SEP-"), "{said}");
}

#[test]
fn while_a_command_is_at_work_both_is_told_what_becomes_of_a_packet_before_and_after_it() {
    let ground = fight();
    let ((begin, end), _) = gone(&ground.history());
    let at = seconds(begin.midpoint(end));
    let output = ground.chainbreak(&[&ASKED[..], &["--at", &at]].concat());
    exits(&output, 0);
    let said = text(&output.stdout);
    let [without, with] =
        ["had not taken effect", "had taken effect"].map(|it| said.find(it).unwrap());
    let dnat = said.find("to KUBE-SEP-").unwrap();
    assert!(without < dnat && dnat < with, "{said}");
    assert!(said.contains("\nif the iptables"), "{said}");
    let json = [&ASKED[..], &["--at", &at, "--format", "json"]].concat();
    let value: Value = serde_json::from_slice(&ground.chainbreak(&json).stdout).unwrap();
    assert_eq!(value["decided"], false);
    assert!(value["otherwise"][0]["if"].is_string(), "{value}");
}

#[test]
fn rules_that_were_kept_confirm_the_rebuilt_ones_or_the_answer_says_that_it_is_not_sure() {
    let ground = fight();
    let asked = [&ASKED[..], &["--format", "json"]].concat();
    let about = || {
        let output = ground.chainbreak(&asked);
        exits(&output, 0);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        value["about"].to_string()
    };
    let sure = about();
    let words = "at the end the history leads to the rules that were kept in n1.iptables-save";
    assert!(sure.contains(words) && !sure.contains("NOT SURE"), "{sure}");
    let kept = ground.newest("short_fight-nobody-expects/n1.iptables-save");
    let rules = fs::read_to_string(&kept).unwrap();
    let other = rules.replace("-j MASQUERADE", "-j RETURN");
    assert_ne!(rules, other);
    fs::write(&kept, other).unwrap();
    let unsure = about();
    assert!(unsure.contains("NOT SURE: at the end"), "{unsure}");
    assert!(unsure.contains("nat KUBE-POSTROUTING"), "{unsure}");
}

/// One Service, as kube-proxy writes it.
const RULES: &str = "*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-SERVICES -d 10.96.7.8/32 -p tcp -m comment --comment \"test/web:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m comment --comment \"test/web:http -> 10.20.1.2:80\" -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m comment --comment \"test/web:http\" -m tcp -j DNAT --to-destination 10.20.1.2:80
COMMIT
";

/// Has the last run be one of a real cluster: its agents are pods, and its history has no commands.
fn as_of_a_real_cluster(ground: &Ground) {
    let edit = |file: &str, edit: &dyn Fn(&str) -> String| {
        let path = ground.newest(file);
        let before = fs::read_to_string(&path).unwrap();
        let after = edit(&before);
        assert_ne!(before, after, "{file}");
        fs::write(&path, after).unwrap();
    };
    edit("run.jsonl", &|run| {
        run.replace(r#""source":"model""#, r#""source":"cluster""#)
    });
    edit("short_fight-nobody-expects/events.jsonl", &|history| {
        let others = history.lines();
        let others = others.filter(|it| !it.contains(r#""what":{"command":"#));
        others.collect::<Vec<_>>().join("\n") + "\n"
    });
}

#[test]
fn a_run_of_a_real_cluster_is_explained_and_diagnosed_by_what_was_kept_at_its_end() {
    let ground = fight();
    as_of_a_real_cluster(&ground);
    let kept = ground.newest("short_fight-nobody-expects/n1.iptables-save");
    let jump = "-A PREROUTING -j KUBE-SERVICES\n";
    let without = RULES.replace(jump, "");
    assert_ne!(RULES, without);
    let asked = ["explain", "10.0.2.1", "10.96.7.8:80", "out/latest"];
    for (rules, leads) in [(RULES, true), (without.as_str(), false)] {
        fs::write(&kept, rules).unwrap();
        let explained = ground.chainbreak(&asked);
        exits(&explained, 0);
        let said = text(&explained.stdout);
        assert!(said.contains("at the end on n1 in short/fight"), "{said}");
        assert!(said.contains("(n1.iptables-save)"), "{said}");
        assert_eq!(said.contains("to KUBE-SEP-"), leads, "{said}");
        let diagnosed = ground.chainbreak(&["diagnose", "out/latest", "--format", "json"]);
        exits(&diagnosed, 0);
        let is_missing = text(&diagnosed.stdout).contains("\"jump-missing\"");
        assert_eq!(is_missing, !leads, "{}", text(&diagnosed.stdout));
    }
    let refused = |args: &[&str], why: &str| {
        let output = ground.chainbreak(args);
        exits(&output, 2);
        let said = text(&output.stderr);
        assert!(said.contains(why), "{said}");
    };
    refused(&[&asked[..], &["--at", "1s"]].concat(), "leave out --at");
    // Where pods and Services are nobody says: the lab's addresses are not theirs.
    refused(&ASKED, "test/web:80");
    fs::remove_file(&kept).unwrap();
    refused(&asked, "were not kept");
    let alone = ground.chainbreak(&["diagnose", "out/latest", "--format", "json"]);
    exits(&alone, 0);
    let said = text(&alone.stderr);
    assert!(said.contains("Logs and objects are judged alone"), "{said}");
}

#[test]
fn what_a_run_cannot_tell_is_one_line_that_says_what_to_do() {
    let ground = Ground::new();
    exits(&ground.run("calm", &[]), 0);
    let pair = ["pod/client", "test/web:80"];
    for (ends, more, part) in [
        (pair, &["--case", "short/clam"][..], "short/calm"),
        (pair, &["--at", "1h"], "the history of the case ends at"),
        (pair, &["--at", "soon"], "a number of seconds"),
        (pair, &["--node", "n7"], "no node n7, but n1"),
        (
            ["pod/none", "test/web:80"],
            &[],
            "does not say an address of pod/default/none",
        ),
        (
            ["client", "test/web:80"],
            &[],
            "no address and no name in the case",
        ),
        (["shpo", "test/web:80"], &[], "\"shop\""),
        (["pod/client", "test/wbe:80"], &[], "service test/wbe"),
        (["pod/client", "test/web:81"], &[], "port 81"),
        (["host/none", "test/web:80"], &[], "no host/none"),
    ] {
        let asked = ["explain", ends[0], ends[1], "out/latest"];
        let output = ground.chainbreak(&[&asked[..], more].concat());
        exits(&output, 2);
        assert!(
            text(&output.stderr).contains(part),
            "{part}: {}",
            text(&output.stderr)
        );
    }
    let output = ground.chainbreak(&["explain", "shop", "shop", "out/latest"]);
    exits(&output, 0);
    let said = text(&output.stdout);
    assert!(
        said.contains("to KUBE-SEP-") && said.contains("no rules of n1 were kept"),
        "{said}"
    );
    let node = ground.chainbreak(&["explain", "node/n1", "test/web:80", "out/latest"]);
    exits(&node, 0);
    assert!(
        text(&node.stdout).contains("made on the node"),
        "{}",
        text(&node.stdout)
    );
}

#[test]
fn what_a_node_routes_by_is_in_the_history_and_missing_from_an_older_one() {
    let ground = Ground::new();
    exits(&ground.run("calm", &[]), 0);
    let explained = || ground.chainbreak(&["explain", "shop", "shop", "out/latest"]);
    let said = explained();
    let said = text(&said.stdout);
    assert!(said.contains("route: 10.20.1."), "{said}");
    let missing = "and so not known: `conntrack -L`\n";
    assert!(said.contains(missing), "{said}");
    let events = ground.newest("short_calm/events.jsonl");
    let history = fs::read_to_string(&events).unwrap();
    let lines = history.lines().filter(|it| !it.contains("{\"network\":"));
    fs::write(&events, lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let said = explained();
    let said = text(&said.stdout);
    assert!(said.contains("`ip route show table all`"), "{said}");
    let unknown = ["explain", "10.20.1.200", "test/web:80", "out/latest"];
    let unknown = ground.chainbreak(&unknown);
    exits(&unknown, 2);
    assert!(text(&unknown.stderr).contains("--in"));
}

/// The flagship: Felix's programs answer for kube-proxy until they go blind.
#[test]
fn the_flagships_outage_is_explained_at_a_moment_at_which_the_jump_is_gone() {
    let ground = Ground::new();
    let scenario = "../../scenarios/kube-proxy/calico-bpf-cleanup-fights-kube-proxy.yaml";
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join(scenario);
    let case = "calico-bpf-cleanup-fights-kube-proxy/api-moves[iptables=legacy]";
    let run = ["run", scenario.to_str().unwrap(), case, "--out", "out"];
    exits(&ground.chainbreak(&run), 0);
    let (_, at) = gone(&ground.history());
    let asked = [
        "explain",
        "shop",
        "shop",
        "out/latest",
        "--at",
        &seconds(at),
    ];
    let output = ground.chainbreak(&asked);
    exits(&output, 0);
    let said = text(&output.stdout);
    assert!(said.contains("received by eni"), "{said}");
    // A pod goes towards the end, and with it the way to it; whether it was there still is not told.
    let unsure = said.lines().filter(|it| it.starts_with("NOT SURE"));
    let of_rules: Vec<&str> = unsure.filter(|it| !it.contains("routed by")).collect();
    assert!(of_rules.is_empty(), "{said}");
    assert!(!said.contains("nat PREROUTING"), "{said}");
    assert!(said.contains("ip felix-programs frontends"), "{said}");
}
