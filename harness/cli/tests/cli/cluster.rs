//! `--backend cluster`, as far as it needs no cluster: what of it is refused, and a kubeconfig that leads nowhere.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, process::Output};

use crate::ground::{self, Ground, exits, text, validates};

/// A kubeconfig of a cluster `theirs` at a port of this machine.
fn kubeconfig(ground: &Ground, port: u16) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: us\n\
         contexts: [{{ name: us, context: {{ cluster: theirs, user: us }} }}]\n\
         clusters: [{{ name: theirs, cluster: {{ server: 'http://127.0.0.1:{port}' }} }}]\n\
         users: [{{ name: us, user: {{}} }}]\n"
    );
    ground.write("kubeconfig", text);
}

/// A port at which nobody answers.
fn nowhere() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The program with a `kubectl` that is there and says nothing.
fn chainbreak(ground: &Ground, args: &[&str]) -> Output {
    let bin = ground.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("kubectl"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(bin.join("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = ["--backend", "cluster", "--kubeconfig", "kubeconfig"];
    let mut command = ground.command(&[args, &cluster].concat());
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.output().unwrap()
}

/// A scenario that keeps to its own namespaces in every variant but one.
fn scenario(ground: &Ground) {
    let quiet = "name: quiet\nabout: It keeps to its own namespaces.\n\
        cluster: { nodes: 1, kube-proxy: { mode: iptables, iptables: legacy, version: \"1.32\", min-sync-period: 1s, sync-period: 5s } }\n\
        manifests: [web.yaml]\n\
        traffic:\n  shop: { from: pod/client, to: service/test/web, port: 80, every: 10ms, connections: new }\n\
        timeline: [settle: 1s]\n\
        promises:\n  answers: { available: { traffic: shop, at-least: 50% } }\n\
        variants:\n  calm: { expect: healthy }\n\
        \x20 flushed: { timeline: [flush: { table: nat, chain: KUBE-SERVICES }, stop: { agent: kube-proxy, for: 2s }], expect: healthy }\n";
    ground.write("quiet.yaml", quiet);
}

const CALM: [&str; 6] = ["run", "quiet.yaml", "--variant", "calm", "--out", "out"];

#[test]
fn a_kubeconfig_that_leads_nowhere_is_one_clear_line_and_an_error_in_junit() {
    let ground = Ground::new();
    scenario(&ground);
    let port = nowhere();
    kubeconfig(&ground, port);
    let output = chainbreak(&ground, &CALM);
    exits(&output, 11);
    let said = text(&output.stdout);
    let words = format!("could not reach the cluster theirs at http://127.0.0.1:{port}");
    let first = format!("? could not use the existing cluster: {words}");
    assert!(said.contains(&first), "{said}");
    assert!(said.contains("Connection refused"), "{said}");
    validates(&ground.newest("junit.xml"));
    let junit = fs::read_to_string(ground.newest("junit.xml")).unwrap();
    assert!(
        junit.contains("<error") && junit.contains(&words),
        "{junit}"
    );
}

#[test]
fn a_kubeconfig_that_is_none_or_has_no_such_context_is_a_mistake_of_the_command_line() {
    let ground = Ground::new();
    scenario(&ground);
    let says = |more: &[&str], words: &str| {
        let output = chainbreak(&ground, &[&CALM[..], more].concat());
        exits(&output, 2);
        let said = text(&output.stderr);
        assert!(said.contains(words), "{said}");
    };
    says(&[], "could not use the kubeconfig kubeconfig: ");
    kubeconfig(&ground, nowhere());
    says(&["--context", "them"], "it has no context them");
    let without = ground.chainbreak(&[&CALM[..], &["--backend", "cluster"]].concat());
    exits(&without, 2);
    assert!(text(&without.stderr).contains("--kubeconfig <FILE>"));
}

#[test]
fn what_concerns_all_of_a_cluster_is_refused_unless_that_cluster_is_named() {
    let ground = Ground::new();
    scenario(&ground);
    kubeconfig(&ground, nowhere());
    let plan = |more: &[&str]| chainbreak(&ground, &[&["plan", "quiet.yaml"], more].concat());
    let refused = "it deletes rules of nodes, stops an agent, which concerns all of the cluster: --allow-disruption theirs";
    let said = text(&plan(&[]).stdout);
    let line = |name: &str| said.lines().find(|it| it.contains(name)).unwrap();
    assert!(line("quiet/flushed").contains(refused), "{said}");
    assert!(!line("quiet/calm").contains("concerns all"), "{said}");
    let said = text(&plan(&["--allow-disruption", "theirs"]).stdout);
    assert!(!said.contains("concerns all"), "{said}");
    let other = plan(&["--allow-disruption", "production"]);
    exits(&other, 2);
    let said = text(&other.stderr);
    assert!(
        said.contains("the cluster of the kubeconfig's context is theirs"),
        "{said}"
    );
}

#[test]
fn clean_says_that_a_cluster_cannot_be_reached() {
    let ground = Ground::new();
    let port = nowhere();
    kubeconfig(&ground, port);
    let mut command = ground.command(&["clean", "--kubeconfig", "kubeconfig"]);
    command.env("XDG_STATE_HOME", ground.path().join("state"));
    let output = ground::output(&mut command);
    exits(&output, 1);
    assert!(text(&output.stderr).contains("could not reach the cluster theirs"));
}
