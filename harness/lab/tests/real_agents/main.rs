//! Programs given for agents run on the nodes as the real ones: little stand-ins here, so that each bad
//! turn can be had; the real kube-proxy is `make test-real`'s.

#![expect(clippy::unwrap_used, reason = "tests may")]

#[path = "../support/mod.rs"]
mod support;

mod stand_in;
mod trouble;

use std::{fs, path::Path};

use serde_json::{Value, json};
use stand_in::{CALICO_NODE, KUBE_PROXY, give_away, kube_proxy, root, script};
use support::{User, World, case};

/// So many entries of an agent's log on `n1`, joined.
async fn log(world: &mut World, agent: &str, entries: usize) -> Vec<String> {
    let log = world.ask(json!({ "log": [agent, "n1", entries] })).await;
    let entries = log.as_array().unwrap().iter();
    entries
        .map(|entry| entry.as_str().unwrap().to_owned())
        .collect()
}

fn fact<'a>(events: &'a Value, name: &str) -> Option<&'a str> {
    let mut facts = events
        .as_array()?
        .iter()
        .map(|event| &event["what"]["fact"]);
    facts.find(|fact| fact["name"] == name)?["value"].as_str()
}

/// The commands that an agent ran, as lines.
fn commands(events: &Value, who: &str) -> Vec<String> {
    let all = events.as_array().unwrap().iter();
    let of_agent = all
        .map(|event| &event["what"]["command"])
        .filter(|c| c["who"] == who);
    let argv = of_agent.map(|command| command["argv"].as_array().unwrap().clone());
    argv.map(|argv| {
        let words: Vec<&str> = argv.iter().filter_map(Value::as_str).collect();
        words.join(" ")
    })
    .collect()
}

const TELLS: &str = "say \"flags $*\"\n\
    say \"node $NODE_NAME $(cat /proc/sys/kernel/hostname) ${USER-none} ${CARGO-none}\" >&2\n\
    iptables -t mangle -N MINE && say made\n\
    { echo changed > \"$0\"; } 2> /dev/null || say kept\n\
    printf 'E0610 07:32:16.910840       1 proxier.go:1] \"Failed\" err=<\\n\\ttext\\n >\\n'\n\
    exec sleep 1000\n";

async fn runs_wherever_it_lies(user: User, folder: &Path) {
    let program = script(folder, "kube-proxy", &format!("{KUBE_PROXY}{TELLS}"));
    let mut world = World::raise(user, &kube_proxy(case(1), &program)).await;
    let said = log(&mut world, "kube-proxy", 5).await;
    let begins =
        "] flags --master=http://10.0.0.1:6443 --hostname-override=n1 --bind-address=10.0.1.1 ";
    assert!(said[0].contains(begins), "{said:?}");
    // Nothing of the environment of whoever runs this.
    assert!(said[1].ends_with("] node n1 n1 none none"), "{said:?}");
    assert!(
        said[2].ends_with("] made") && said[3].ends_with("] kept"),
        "{said:?}"
    );
    assert!(said[4].ends_with("err=<\n\ttext\n >"), "{said:?}");
    world.sh("node/n1", "iptables -t mangle -S MINE").await;
    let events = world.ask(json!("events")).await;
    assert_eq!(
        commands(&events, "kube-proxy"),
        ["iptables -t mangle -N MINE"]
    );
    let who = fact(&events, "kube-proxy").unwrap();
    let begin = format!("v1.99.1 (real: {}, sha256 ", program.display());
    assert!(
        who.starts_with(&begin) && who.len() == begin.len() + 65,
        "{who}"
    );
    world.stop().await;
    assert!(
        fs::read_to_string(&program)
            .unwrap()
            .starts_with(KUBE_PROXY)
    );
}

#[tokio::test]
async fn a_program_runs_on_its_node_though_the_world_has_a_tmp_of_its_own() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    runs_wherever_it_lies(User::Myself, folder.path()).await;
    runs_wherever_it_lies(User::Ordinary, folder.path()).await;
}

#[tokio::test]
async fn a_program_runs_on_its_node_though_each_node_has_a_run_of_its_own() {
    // Where an ordinary user can put nothing; `/dev` is a world's own, too.
    let root = nix::unistd::geteuid().is_root();
    let folder = tempfile::tempdir_in(if root { "/run" } else { "/dev/shm" }).unwrap();
    runs_wherever_it_lies(User::Myself, folder.path()).await;
    runs_wherever_it_lies(User::Ordinary, folder.path()).await;
}

#[tokio::test]
async fn an_agent_in_a_root_of_its_own_has_its_files_and_its_iptables_and_the_nodes_network() {
    let folder = tempfile::tempdir().unwrap();
    let image = root(folder.path(), &["iptables-save", "wc"]);
    // Of the image's own, so that nobody can mistake the machine's for it.
    let iptables = "#!/bin/sh\n[ \"$1\" = --version ] && { echo iptables v0.9.9; exit; }\n\
        cat /marker\nexec iptables-save \"$@\"\n";
    script(&image, "usr/sbin/iptables", iptables);
    fs::write(image.join("marker"), "the image's\n").unwrap();
    let agent = "say $(iptables -t mangle 2> /dev/null)\necho mine > /marker; say $(cat /marker)\n\
        say $(cat /proc/sys/kernel/hostname) $(cat /run/chainbreak/kube-proxy.kubeconfig | wc -l)\nexec sleep 1000\n";
    script(
        &image,
        "usr/local/bin/kube-proxy",
        &format!("{KUBE_PROXY}{agent}"),
    );
    give_away(folder.path());
    for user in [User::Myself, User::Ordinary] {
        let mut world = World::raise(user, &kube_proxy(case(2), &image)).await;
        world.sh("node/n1", "test ! -e /marker").await;
        let said = log(&mut world, "kube-proxy", 3).await;
        assert!(
            said[0].contains("] the image's # Generated by iptables-save"),
            "{said:?}"
        );
        assert!(
            said[1].ends_with("] mine") && said[2].ends_with("] n1 0"),
            "{said:?}"
        );
        let events = world.ask(json!("events")).await;
        let ran = commands(&events, "kube-proxy");
        assert!(ran.contains(&"iptables -t mangle".to_owned()), "{ran:?}");
        assert_eq!(
            fact(&events, "kube-proxy.iptables"),
            Some("iptables v0.9.9")
        );
        world.stop().await;
        let marker = fs::read_to_string(image.join("marker")).unwrap();
        assert_eq!(marker, "the image's\n", "what it writes vanishes");
    }
}

#[tokio::test]
async fn felix_is_told_by_its_environment_and_started_again_when_its_configuration_changed() {
    let folder = tempfile::tempdir().unwrap();
    // It exits at once, thrice and once more: that is no trouble when it says that it wants to.
    let agent = "echo \"life $* $DATASTORE_TYPE $FELIX_FELIXHOSTNAME $FELIX_IPV6SUPPORT\"\n\
        cat $KUBECONFIG; echo\n\
        echo x >> /run/lives; [ $(cat /run/lives | wc -l) -lt 4 ] && exit 129\nexec sleep 1000\n";
    let program = script(
        folder.path(),
        "calico-node",
        &format!("{CALICO_NODE}{agent}"),
    );
    let mut case = case(1);
    case["cluster"]["calico"]["source"] = json!({ "path": program });
    let mut world = World::raise(User::Ordinary, &case).await;
    let said = log(&mut world, "felix", 8).await;
    for life in said.chunks(2) {
        assert_eq!(life[0], "life -felix kubernetes n1 false");
        assert!(
            life[1].contains("\"server\":\"http://10.0.0.1:6443\""),
            "{life:?}"
        );
    }
    let events = world.ask(json!("events")).await;
    assert!(
        fact(&events, "felix")
            .unwrap()
            .starts_with("v3.99.1 (real: ")
    );
    let steps = events
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|e| e["what"]["step"]["text"].as_str());
    let again = "felix on n1 exited and is started again: exit status 129";
    assert_eq!(steps.filter(|step| *step == again).count(), 3);
    world.stop().await;
}

/// It speaks when it is in the cgroup of its node, where what Felix attaches translates what it asks.
#[tokio::test]
#[ignore = "`make test-escape` runs it"]
async fn one_that_may_load_programs_is_of_its_nodes_cgroup() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let there = "until grep -qx 0::/n1 /proc/self/cgroup; do :; done\nsay there\nexec sleep 1000\n";
    let program = script(folder.path(), "kube-proxy", &format!("{KUBE_PROXY}{there}"));
    let mut world = World::raise_with_ebpf(&kube_proxy(case(1), &program)).await;
    let said = log(&mut world, "kube-proxy", 1).await;
    assert!(said[0].ends_with("there"), "{said:?}");
    world.stop().await;
}
