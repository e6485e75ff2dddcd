//! What runs in a world sees the machine's files and cannot change them.

mod support;

use std::{fs, path::Path};

use serde_json::json;
use support::{User, World, case};

#[tokio::test]
async fn writes_of_a_world_vanish_with_it() {
    let before = fs::read_to_string("/etc/hostname").unwrap();
    let mark = Path::new("/var/lib/chainbreak-lab-was-here");
    assert!(!mark.exists());
    let mut world = World::raise(User::Myself, &case(2)).await;
    let root = nix::unistd::geteuid().is_root();
    let script = format!(
        "echo changed > /etc/hostname; echo new > {}; rm -f /etc/passwd; cat /etc/hostname",
        mark.display()
    );
    // An ordinary user may not write there at all, in a world as outside.
    let done = world
        .ask(json!({ "exec": ["node/n1", ["sh", "-c", script]] }))
        .await;
    if root {
        assert_eq!(done["stdout"], "changed\n", "{done}");
        assert!(
            world
                .sh("node/n2", "cat /etc/hostname")
                .await
                .starts_with("changed")
        );
    }
    world.stop().await;
    assert_eq!(fs::read_to_string("/etc/hostname").unwrap(), before);
    assert!(!mark.exists());
    assert!(Path::new("/etc/passwd").exists());
}

#[tokio::test]
async fn settings_of_the_machine_are_read_only_and_those_of_a_node_are_its_own() {
    let setting = "/proc/sys/net/ipv4/ip_default_ttl";
    let before = fs::read_to_string(setting).unwrap();
    let mut world = World::raise(User::Myself, &case(2)).await;
    // Should the last line of defence fall, `h` only prints help into the kernel's log.
    let refused = "! echo 1 > /proc/sys/kernel/sysrq && ! echo h > /proc/sysrq-trigger \
                   && ! echo 1 > /sys/module/nf_conntrack/parameters/hashsize";
    world
        .sh("node/n1", &format!("{{ {refused}; }} 2> /dev/null"))
        .await;
    world.sh("node/n1", &format!("echo 33 > {setting}")).await;
    assert_eq!(world.sh("node/n1", &format!("cat {setting}")).await, "33\n");
    assert_eq!(world.sh("node/n2", &format!("cat {setting}")).await, before);
    assert_eq!(fs::read_to_string(setting).unwrap(), before);
    world.stop().await;
}

#[tokio::test]
async fn each_node_has_its_own_run_and_thus_its_own_xtables_lock() {
    let mut world = World::raise(User::Ordinary, &case(2)).await;
    world
        .sh(
            "node/n1",
            "iptables-legacy -t mangle -N MINE && ls /run/xtables.lock",
        )
        .await;
    world
        .sh("node/n2", "test ! -e /run/mine && touch /run/mine")
        .await;
    world.sh("node/n1", "test ! -e /run/mine").await;
    // Where iptables looks for its lock: who holds it keeps iptables out (exit code 4, RESOURCE_PROBLEM).
    let held = "flock /run/xtables.lock iptables -w 1 -t mangle -L > /dev/null 2>&1; echo $?";
    assert_eq!(world.sh("node/n1", held).await, "4\n");
    world.stop().await;
}

#[tokio::test]
async fn iptables_on_a_node_is_the_backend_of_the_case() {
    for (backend, word) in [("legacy", "(legacy)"), ("nft", "(nf_tables)")] {
        let mut case = case(1);
        case["cluster"]["iptables"] = json!(backend);
        let mut world = World::raise(User::Myself, &case).await;
        for program in ["iptables", "iptables-save", "iptables-restore", "ip6tables"] {
            let version = world.exec("node/n1", &[program, "--version"]).await;
            assert!(version.contains(word), "{program}: {version}");
        }
        let other = world
            .exec("node/n1", &["iptables-legacy-save", "--version"])
            .await;
        assert!(other.contains("(legacy)"), "{other}");
        world.stop().await;
    }
}
