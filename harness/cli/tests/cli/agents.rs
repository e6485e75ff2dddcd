//! Who plays the agents, and in which versions: as the command line says it. Stand-ins are enough here:
//! what a real one does in a world is tested where one can be had.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::ground::{Ground, exits, text, validates};

/// A program that calls itself kube-proxy, of a version that nobody else has.
const STAND_IN: &str = "#!/bin/sh\necho Kubernetes v1.99.1\n";

fn ground_with_a_stand_in() -> Ground {
    let ground = Ground::new();
    let path = ground.path().join("kube-proxy");
    ground.write("kube-proxy", STAND_IN);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    ground
}

#[test]
fn a_real_agent_is_asked_for_its_version_and_the_id_names_it_where_the_matrix_varies_it() {
    let ground = ground_with_a_stand_in();
    let list = |more: &[&str]| {
        let output =
            ground.chainbreak(&[&["list", "short.yaml", "--variant", "calm"], more].concat());
        exits(&output, 0);
        text(&output.stdout)
    };
    let here = "--agent=kube-proxy=./kube-proxy";
    assert_eq!(list(&[here]), "short/calm\n");
    let for_one = "--agent=kube-proxy@1.30=kube-proxy";
    assert_eq!(
        list(&[for_one, "--matrix", "iptables=nft", "kube-proxy=1.30,1.32"]),
        "short/calm[iptables=nft,kube-proxy=1.99.1]\nshort/calm[iptables=nft,kube-proxy=1.32]\n"
    );
}

#[test]
fn settings_follow_one_matrix_flag_and_paths_are_still_paths() {
    let ground = Ground::new();
    let expected = "short/calm[kube-proxy=1.30,calico=v3.25.0]\n";
    for args in [
        "list short.yaml --variant calm --matrix kube-proxy=1.30 calico=v3.25.0",
        "list --matrix kube-proxy=1.30 calico=v3.25.0 short.yaml --variant calm",
        "list --variant calm --matrix kube-proxy=1.30 calico=v3.25.0 -- short.yaml",
        "list --variant calm --matrix kube-proxy=1.30 --matrix calico=v3.25.0 short.yaml",
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let output = ground.chainbreak(&args);
        exits(&output, 0);
        assert_eq!(text(&output.stdout), expected, "{args:?}");
    }
}

#[test]
fn a_variant_that_is_not_about_the_real_agents_version_is_skipped_with_the_reason() {
    let ground = ground_with_a_stand_in();
    let scenario = include_str!("ground/short.yaml");
    let only = "calm: { only: { kube-proxy: '<1.40' }, ";
    ground.write("short.yaml", scenario.replace("calm: { ", only));
    let plan = |more: &[&str]| {
        let output =
            ground.chainbreak(&[&["plan", "short.yaml", "--variant", "calm"], more].concat());
        exits(&output, 0);
        text(&output.stdout)
    };
    assert!(plan(&[]).starts_with("run   short/calm\n"));
    let said = plan(&["--agent", "kube-proxy=kube-proxy"]);
    let skip = "skip  short/calm: is about kube-proxy <1.40, this is 1.99.1\n";
    assert!(said.starts_with(skip), "{said}");
}

#[test]
fn cells_that_run_the_same_are_one_case_and_that_is_said() {
    let ground = Ground::new();
    let scenario = include_str!("ground/short.yaml");
    let alone = "alone: { kube-proxy: none, promises: { jump-stays: none }, ";
    ground.write("short.yaml", scenario.replace("calm: { ", alone));
    let args = "plan short.yaml --variant alone --matrix kube-proxy=1.28,1.30,1.32";
    let output = ground.chainbreak(&args.split(' ').collect::<Vec<_>>());
    assert_eq!(
        text(&output.stdout),
        "run   short/alone\n1 to run, 0 to skip\n"
    );
    assert_eq!(
        text(&output.stderr),
        "short/alone: 3 cells of the matrix run this same case\n"
    );
}

#[test]
fn versions_run_side_by_side() {
    let ground = Ground::new();
    let output = ground.run(
        "calm",
        &["--matrix", "kube-proxy=1.20,1.34", "calico=v3.32.1"],
    );
    exits(&output, 0);
    let said = text(&output.stdout);
    assert!(said.contains("2 cases: 2 as expected"), "{said}");
    // A minor version is its newest pinned patch, and that is said.
    for version in ["1.20", "1.34.10"] {
        let head = format!("kube-proxy  model {version} (no binary given), in 1 case\n");
        assert!(said.contains(&head), "{said}");
    }
    validates(&ground.newest("junit.xml"));
}

/// A cache with a stand-in for a release that was built, by a recipe of any kind, and a machine without Go.
fn with_a_cache(ground: &Ground, args: &[&str]) -> std::process::Output {
    let kept = "cache/chainbreak/kube-proxy-v1.31.4-go1.26.8-0123456789ab";
    fs::create_dir_all(ground.path().join("cache/chainbreak")).unwrap();
    ground.write(kept, "#!/bin/sh\necho Kubernetes v1.31.4\n");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(ground.path().join(kept), executable).unwrap();
    ground.write("cache/chainbreak/kube-proxy-v1.33.4.part", "half");
    let mut command = ground.command(args);
    command.env("XDG_CACHE_HOME", ground.path().join("cache"));
    command.env("PATH", ground.path().join("no-programs"));
    command.output().unwrap()
}

#[test]
fn real_agents_are_listed_with_source_and_hash_and_the_command_that_makes_more() {
    let ground = Ground::new();
    let output = with_a_cache(&ground, &["agents"]);
    exits(&output, 0);
    let said = text(&output.stdout);
    let mut lines = said.lines();
    let words: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    // What `sha256sum` says of the stand-in.
    let sha256 = "91e203ee854f34642dd41746f7503c110e2762aaf6d5a33593ff6a7b1be8308f";
    assert_eq!(words[..4], ["kube-proxy", "1.31.4", "build", sha256]);
    assert!(words[4].ends_with("kube-proxy-v1.31.4-go1.26.8-0123456789ab"));
    assert_eq!(lines.next(), Some("pinned, and here:     1.31.4"));
    let others = lines.next().unwrap();
    assert!(
        others.contains(" 1.33.4 ") && !others.contains("1.31.4"),
        "{others}"
    );
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("chainbreak agents build kube-proxy 1.")
    );
}

#[test]
fn what_cannot_be_built_is_one_line_that_says_what_to_do() {
    let ground = Ground::new();
    for (version, code, why) in [
        ("1.27", 2, "no release of 1.27 is pinned"),
        ("newest", 2, "is no version of kube-proxy: write 1.34.2"),
        ("1.24.17", 11, "releases from 1.28 on are"),
        (
            "1.34",
            11,
            "there is no Go here to build kube-proxy 1.34.10",
        ),
    ] {
        let output = with_a_cache(&ground, &["agents", "build", "kube-proxy", version]);
        exits(&output, code);
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(why), "{said}");
    }
}

/// A plan builds nothing: the machine has no Go.
#[test]
fn what_is_to_be_built_is_planned_without_it_and_a_run_cannot_do_without() {
    let ground = Ground::new();
    let args = [
        "short.yaml",
        "--variant",
        "calm",
        "--agent",
        "kube-proxy=build",
    ];
    let planned = with_a_cache(&ground, &[&["list"], &args[..]].concat());
    exits(&planned, 0);
    assert_eq!(text(&planned.stdout), "short/calm\n");
    let output = with_a_cache(&ground, &[&["run", "--out", "out"], &args[..]].concat());
    exits(&output, 11);
    let said = text(&output.stderr);
    let why = "there is no Go here to build kube-proxy 1.32.3";
    assert!(said.contains(why), "{said}");
    assert!(!ground.path().join("out").exists(), "nothing ran");
}

/// A registry that is not there: nobody listens on this port of the machine.
#[test]
fn what_is_to_be_pulled_is_planned_without_it_and_a_run_cannot_do_without() {
    let ground = Ground::new();
    let name = "127.0.0.1:1/kube-proxy:v1.30.1";
    let by_name = format!("kube-proxy=image:{name}");
    for (agent, here) in [("kube-proxy=image", true), (&by_name, false)] {
        let args = ["short.yaml", "--variant", "calm", "--agent", agent];
        let planned = with_a_cache(&ground, &[&["list"], &args[..]].concat());
        exits(&planned, 0);
        assert_eq!(text(&planned.stdout), "short/calm\n");
        let said = text(&planned.stderr);
        assert_eq!(said.is_empty(), here, "{said}");
        assert!(
            here || said.starts_with(&format!("{name} is not here yet")),
            "{said}"
        );
    }
    let run = |mirrors: &str, agent: &str| {
        let args = [
            "run",
            "--out",
            "out",
            "short.yaml",
            "--variant",
            "calm",
            "--agent",
            agent,
        ];
        let mut command = ground.command(&args);
        command.env("XDG_CACHE_HOME", ground.path().join("cache"));
        command.env("CHAINBREAK_MIRRORS", mirrors);
        let output = command.output().unwrap();
        exits(&output, 11);
        text(&output.stderr)
    };
    let mirrors = "registry.k8s.io=http://127.0.0.1:1";
    for (agent, name) in [
        (&*by_name, name),
        ("kube-proxy=image", "registry.k8s.io/kube-proxy:v1.32.3"),
    ] {
        let said = run(mirrors, agent);
        let why = format!("chainbreak: {name}: 127.0.0.1:1 cannot be reached (Connection refused");
        assert!(said.contains(&why), "{said}");
    }
    let said = run("registry.k8s.io", "kube-proxy=image");
    assert!(
        said.contains("CHAINBREAK_MIRRORS: \"registry.k8s.io\" is no mirror"),
        "{said}"
    );
    assert!(!ground.path().join("out").exists(), "nothing ran");
}

/// An image in the cache, as it lies there: a script in a root with nothing else is none that runs.
#[test]
fn a_pulled_agent_is_listed_with_its_image_and_at_hand_where_nothing_is_built() {
    let ground = Ground::new();
    let image = format!("cache/chainbreak/image-{}", "0".repeat(64));
    let root = format!("{image}/root/usr/local/bin");
    fs::create_dir_all(ground.path().join(&root)).unwrap();
    ground.write(&format!("{root}/kube-proxy"), "#!/bin/sh\n");
    ground.write(
        &format!("{image}/image.json"),
        r#"{ "format": 1, "agent": "kube-proxy", "version": "1.32.3", "program": "usr/local/bin/kube-proxy",
            "reference": "registry.k8s.io/kube-proxy:v1.32.3", "digest": "sha256:0", "manifest": "sha256:0",
            "platform": "linux/amd64" }"#,
    );
    let output = with_a_cache(&ground, &["agents"]);
    exits(&output, 0);
    let said = text(&output.stdout);
    let line = said.lines().find(|line| line.contains(" image ")).unwrap();
    assert!(line.starts_with("kube-proxy  1.32.3 "), "{said}");
    assert!(
        line.ends_with("/root  (registry.k8s.io/kube-proxy:v1.32.3)"),
        "{said}"
    );
    let args = ["list", "short.yaml", "--variant", "calm"];
    for chosen in [
        &["--agents", "real"][..],
        &[
            "--agent",
            "kube-proxy=image:registry.k8s.io/kube-proxy:v1.32.3",
        ],
    ] {
        let output = with_a_cache(&ground, &[&args[..], chosen].concat());
        exits(&output, 0);
        assert_eq!(text(&output.stdout), "short/calm\n");
        let said = text(&output.stderr);
        // The one at hand is asked as any that is given by its path.
        assert_eq!(
            said.contains("/root as kube-proxy"),
            chosen.len() == 2 && chosen[0] == "--agents",
            "{said}"
        );
    }
}

#[test]
fn what_pull_does_is_in_its_help_and_what_is_no_image_is_a_wrong_command_line() {
    let ground = Ground::new();
    let help = text(&ground.chainbreak(&["agents", "pull", "--help"]).stdout);
    for word in [
        "registry.k8s.io/kube-proxy:v1.34.2",
        "CHAINBREAK_MIRRORS",
        "docker login",
    ] {
        assert!(help.contains(word), "{help}");
    }
    let output = with_a_cache(&ground, &["agents", "pull", "No Image"]);
    exits(&output, 2);
    let said = text(&output.stderr);
    assert!(
        said.contains("write HOST/NAME:TAG or HOST/NAME@sha256:"),
        "{said}"
    );
    let output = with_a_cache(&ground, &["agents", "pull", "127.0.0.1:1/kube-proxy:v1"]);
    exits(&output, 11);
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("127.0.0.1:1 cannot be reached"), "{said}");
}

#[test]
fn a_scenarios_agent_that_is_not_there_is_inconclusive_with_one_clear_line() {
    let ground = Ground::new();
    let scenario = include_str!("ground/short.yaml");
    let source = "version: \"1.32\", source: ./no/kube-proxy,";
    ground.write("short.yaml", scenario.replace("version: \"1.32\",", source));
    let output = ground.run("calm", &[]);
    exits(&output, 11);
    let path = ground.path().join("no/kube-proxy");
    let said = text(&output.stdout);
    let first = said
        .lines()
        .find_map(|line| line.strip_prefix("? "))
        .unwrap();
    assert!(first.contains(path.to_str().unwrap()), "{said}");
    assert!(first.contains("No such file"), "{said}");
    validates(&ground.newest("junit.xml"));
    let junit = fs::read_to_string(ground.newest("junit.xml")).unwrap();
    assert!(junit.contains(&first.replace('"', "&quot;")), "{junit}");
    exits(&ground.run("calm", &["--agent", "kube-proxy=model"]), 0);
}

#[test]
fn an_agent_that_nobody_is_or_no_case_has_is_a_wrong_command_line() {
    let ground = Ground::new();
    for (agent, why) in [
        (
            "kube-proxy=image:",
            "\"image:\" is no image: write image:HOST",
        ),
        (
            "kube-proxy=image:no:name:at:all",
            "no:name:at:all: it is no name of an image",
        ),
        (
            "kubelet=/usr/bin/kubelet",
            "no agent is called \"kubelet\"; write kube-proxy or felix",
        ),
        ("kube-proxy", "is not NAME=SOURCE"),
        ("felix=build", "felix is not built here"),
        (
            "kube-proxy@1.28=/usr/bin/kube-proxy",
            "no case has kube-proxy@1.28",
        ),
    ] {
        let output = ground.run("calm", &["--agent", agent]);
        exits(&output, 2);
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert!(!ground.path().join("out").exists(), "nothing ran");
}

/// No machine raises a world in a millisecond.
#[test]
fn a_world_that_is_not_ready_in_its_time_is_inconclusive_and_says_the_time() {
    let ground = Ground::new();
    let output = ground.run("calm", &["--ready-within", "1ms"]);
    exits(&output, 11);
    let said = text(&output.stdout);
    assert!(
        said.contains("? could not raise the cluster: it took more than 1ms"),
        "{said}"
    );
    let output = ground.run("calm", &["--ready-within", "60"]);
    exits(&output, 2);
    assert!(text(&output.stderr).contains("a time is a number with its unit"));
}
