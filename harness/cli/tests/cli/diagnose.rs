//! `diagnose`: of what a script collects in a real world, of recorded runs, and of what nobody can read.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

use chainbreak_lab::registry;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::ground::{Ground, exits, kept, text};

/// What the script of `collect` makes in a place of a world, in one text.
fn collected(ground: &Ground, world: i32) -> Vec<u8> {
    let script = ground.chainbreak(&["collect"]);
    let words = "cat > /tmp/collect.sh; sh /tmp/collect.sh -";
    let mut inside = registry::command(Some(world), "n1", &["sh", "-c", words]).unwrap();
    let inside = inside.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut inside = inside.spawn().unwrap();
    inside
        .stdin
        .take()
        .unwrap()
        .write_all(&script.stdout)
        .unwrap();
    let collected = inside.wait_with_output().unwrap();
    exits(&collected, 0);
    collected.stdout
}

#[test]
fn of_a_real_node_nothing_is_found_until_something_is_wrong_there() {
    let ground = Ground::new();
    let (run, world) = kept(&ground);
    ground.write("before.txt", collected(&ground, world));
    let before = ground.chainbreak(&["diagnose", "before.txt"]);
    exits(&before, 0);
    let said = text(&before.stdout);
    assert!(
        said.contains("kube-proxy  iptables mode (legacy, IPv4), "),
        "{said}"
    );
    // A late segment may have been dropped as INVALID, which is told and breaks nothing.
    assert!(!said.contains('✗') && !said.contains("jump"), "{said}");

    let delete = "iptables -t nat -D PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES";
    let mut inside = registry::command(Some(world), "n1", &["sh", "-c", delete]).unwrap();
    exits(&inside.output().unwrap(), 0);
    ground.write("after.txt", collected(&ground, world));
    let after = ground.chainbreak(&["diagnose", "after.txt"]);
    exits(&after, 0);
    let said = text(&after.stdout);
    let line = "✗ nat PREROUTING does not jump to KUBE-SERVICES (legacy, IPv4): pods and others outside reach no service by this node";
    assert!(said.contains(line), "{said}");
    // As a sosreport has it.
    let folder = "sos/sos_commands/firewall_tables";
    fs::create_dir_all(ground.path().join(folder)).unwrap();
    for table in ["mangle", "nat", "filter"] {
        let argv = ["iptables", "-t", table, "-nvL"];
        let listed = registry::command(Some(world), "n1", &argv)
            .unwrap()
            .output();
        let file = format!("{folder}/iptables_-t_{table}_-nvL");
        ground.write(&file, listed.unwrap().stdout);
    }
    let listed = ground.chainbreak(&["diagnose", "sos"]);
    exits(&listed, 0);
    let said = text(&listed.stdout);
    assert!(said.contains(&line.replace("legacy, ", "")), "{said}");
    run.signal(Signal::SIGINT);
    run.ends();

    let written = ground.chainbreak(&["diagnose", "after.txt", "--write", "as-found.yaml"]);
    exits(&written, 0);
    let next = text(&written.stderr);
    assert!(
        next.contains("as-found.yaml plays what was found"),
        "{next}"
    );
    exits(
        &ground.chainbreak(&["run", "as-found.yaml", "--out", "again"]),
        0,
    );
    let again = ground.chainbreak(&["diagnose", "after.txt", "--write", "as-found.yaml"]);
    exits(&again, 2);
    assert!(text(&again.stderr).contains("is there already"));
}

#[test]
fn of_a_recorded_outage_that_is_found_which_its_scenario_names() {
    is_found(
        "kube-proxy/services-stay-dead-after-a-nat-flush",
        "nat-alone[iptables=legacy]",
        ("n1", "jump-missing"),
    );
}

#[test]
fn of_a_recorded_outage_the_packets_that_ended_in_rules_are_counted() {
    is_found(
        "routing/replies-through-a-transit-node-time-out",
        "kube-proxys-rule-drops[iptables=legacy,ip-family=IPv4]",
        ("n2", "invalid-dropped"),
    );
}

/// Plays a case of the catalogue, and diagnoses a node of it: that is found, and the node is like its scenario.
fn is_found(scenario: &str, variant: &str, (node, kind): (&str, &str)) {
    let (_, name) = scenario.split_once('/').unwrap();
    let ground = played(scenario, variant);
    let diagnosed = diagnosed(&ground, &["--node", node]);
    let findings = diagnosed["findings"].as_array().unwrap();
    let shown = findings
        .iter()
        .find(|it| it["kind"] == kind)
        .unwrap_or_else(|| panic!("{diagnosed:#}"));
    assert!(
        shown["shown-by"]
            .as_array()
            .unwrap()
            .contains(&Value::from(name)),
        "{diagnosed:#}"
    );
    let like = diagnosed["like"][0]["scenarios"].as_array().unwrap();
    assert!(like.contains(&Value::from(name)), "{diagnosed:#}");
}

fn catalogue() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn played(scenario: &str, variant: &str) -> Ground {
    let ground = Ground::new();
    let (_, name) = scenario.split_once('/').unwrap();
    let file = catalogue().join(format!("{scenario}.yaml"));
    let case = format!("{name}/{variant}");
    let args = ["run", file.to_str().unwrap(), &case, "--out", "out"];
    exits(&ground.chainbreak(&args), 0);
    ground
}

fn diagnosed(ground: &Ground, more: &[&str]) -> Value {
    let catalogue = catalogue();
    let args = ["diagnose", "out/latest", "--format", "json"];
    let among = ["--scenarios", catalogue.to_str().unwrap()];
    let diagnosed = ground.chainbreak(&[&args[..], &among, more].concat());
    exits(&diagnosed, 0);
    serde_json::from_slice(&diagnosed.stdout).unwrap()
}

/// By a switch, and by a change of FelixConfiguration.
#[test]
fn what_the_api_held_at_a_moment_is_what_the_steps_before_it_left() {
    let ground = played(
        "upgrades/services-die-when-felix-is-switched-back",
        "kube-proxy-left-running[iptables=legacy]",
    );
    let is_on = |at: &[&str]| {
        let writers = diagnosed(&ground, at)["writers"].to_string();
        writers.contains(r#"bpfEnabled\":true"#)
    };
    assert!(!is_on(&["--at", "10ms"]));
    assert!(is_on(&["--at", "2s"]));
    assert!(!is_on(&[]));
    let first = |seen: &[&str]| diagnosed(&ground, seen)["like"][0].clone();
    let lost = first(&["--seen", "lost", "--from", "pod"]);
    // Another one has the same signature.
    let of_it = [
        "services-die-after-the-way-back-from-ebpf",
        "services-die-when-felix-is-switched-back",
    ];
    assert_eq!(lost["scenarios"], serde_json::json!(of_it), "{lost:#}");
    assert!(
        lost["for"].to_string().contains("pods' requests are lost"),
        "{lost:#}"
    );
    let uneven = first(&["--seen", "uneven"]);
    assert_ne!(uneven["likely"], true, "{uneven:#}");
    let of_nobody = ["diagnose", "out/latest", "--seen", "lost"];
    let refused = ground.chainbreak(&of_nobody);
    exits(&refused, 2);
    assert!(text(&refused.stderr).contains("--scenarios PATH"));
}

#[test]
fn what_cannot_be_read_is_one_line_and_the_rest_is_diagnosed() {
    let ground = Ground::new();
    ground.write("noise", [0xff_u8, 0xfe, 0, 1]);
    ground.write("letter.txt", "dear all, services are dead\n");
    let none = ground.chainbreak(&["diagnose", "noise", "letter.txt"]);
    exits(&none, 2);
    let said = text(&none.stderr);
    assert!(said.contains("noise: no text, left out"), "{said}");
    assert!(
        said.contains("letter.txt: nothing that is known, left out"),
        "{said}"
    );
    ground.write("half", "*nat\n:PREROUTING ACCEPT [0:0]\n");
    ground.write("sysctls", "net.ipv4.ip_forward = 0\n");
    let rest = ground.chainbreak(&["diagnose", "half", "sysctls"]);
    exits(&rest, 0);
    assert!(
        text(&rest.stderr).contains("half, "),
        "{}",
        text(&rest.stderr)
    );
    assert!(
        text(&rest.stdout).contains("! net.ipv4.ip_forward = 0"),
        "{}",
        text(&rest.stdout)
    );
    exits(&ground.chainbreak(&["diagnose", "nowhere"]), 2);
    exits(&ground.chainbreak(&["diagnose"]), 2);
    exits(
        &ground.chainbreak(&["diagnose", "sysctls", "--case", "a/b"]),
        2,
    );
}

#[test]
fn of_a_support_bundle_what_is_known_is_read_and_what_is_not_is_counted() {
    let ground = Ground::new();
    for folder in ["etc", "sos_commands/kernel", "pods/agent/logs"] {
        fs::create_dir_all(ground.path().join("sos").join(folder)).unwrap();
    }
    for number in 0..1500 {
        ground.write(&format!("sos/etc/{number}"), "key = value of something\n");
    }
    ground.write(
        "sos/sos_commands/kernel/sysctl_-a",
        "net.ipv4.ip_forward = 0\n",
    );
    let archive = "sos/pods/agent/logs/previous.log.gz";
    ground.write(archive, [0x1f_u8, 0x8b, 8, 0, 1, 2, 3]);
    let diagnosed = ground.chainbreak(&["diagnose", "sos"]);
    exits(&diagnosed, 0);
    let said = text(&diagnosed.stderr);
    assert!(said.lines().count() <= 22, "{said}");
    assert!(said.contains("previous.log.gz cannot be read"), "{said}");
    assert!(said.contains("other files: left out likewise"), "{said}");
    let found = text(&diagnosed.stdout);
    assert!(found.contains("! net.ipv4.ip_forward = 0"), "{found}");
    // Half of the rules would mislead: a walk goes by none of such a folder.
    ground.write("sos/iptables-save", "*nat\n:PREROUTING ACCEPT [0:0]\n");
    let walk = ["explain", "10.20.1.2", "10.96.0.10:53", "--dump", "sos"];
    exits(&ground.chainbreak(&walk), 2);
    // One that is named has to be readable.
    exits(&ground.chainbreak(&["diagnose", archive, "sos/etc/1"]), 2);
}
