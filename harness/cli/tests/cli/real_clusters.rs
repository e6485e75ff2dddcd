//! Real clusters where something is wrong with them, before any is there: one clear line, the evidence under it, the right exit
//! code, an error in JUnit, and nothing left behind. `docker` and `kind` are scripts that say what the real ones said.

use std::{fs, os::unix::fs::PermissionsExt, process::Output};

use crate::ground::{Ground, exits, text};

/// The real one, 28.2.
const NO_DAEMON: &str = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?";

/// `docker` and `kind`: bodies of shell scripts, which find their arguments in `$*`.
struct Fakes<'a> {
    docker: &'a str,
    kind: &'a str,
}

impl Fakes<'_> {
    /// Runs a case on a real cluster among them.
    fn run(&self, ground: &Ground, more: &[&str]) -> Output {
        let args = [
            "run",
            "short.yaml",
            "--variant",
            "calm",
            "--out",
            "out",
            "--backend",
            "kind",
            // The pinned one has to be fetched.
            "--calico-manifest",
            "calico.yaml",
        ];
        let set = "kind: DaemonSet\nmetadata: { name: calico-node }\n";
        ground.write("calico.yaml", set);
        self.chainbreak(ground, &[&args, more].concat())
    }

    fn chainbreak(&self, ground: &Ground, args: &[&str]) -> Output {
        let bin = ground.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        for (name, body) in [("docker", self.docker), ("kind", self.kind)] {
            let log = ground.path().join("asked");
            let script = format!(
                "#!/bin/sh\necho {name} \"$*\" >> {}\n{body}\n",
                log.display()
            );
            fs::write(bin.join(name), script).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
            if body.is_empty() {
                fs::remove_file(bin.join(name)).unwrap();
            }
        }
        let mut command = ground.command(args);
        command
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("XDG_STATE_HOME", ground.path().join("state"));
        crate::ground::output(&mut command)
    }
}

const KIND: &str =
    "case $1 in version) echo 'kind v0.27.0 go1.23.6 linux/amd64';; *) exit 1;; esac";

/// What was asked of `docker` and `kind`, a line each.
fn asked(ground: &Ground) -> String {
    fs::read_to_string(ground.path().join("asked")).unwrap_or_default()
}

/// It ended as inconclusive, JUnit has an error with these words, and the journal is empty.
fn is_trouble(ground: &Ground, output: &Output, words: &[&str]) {
    exits(output, 11);
    let said = text(&output.stdout);
    let junit = fs::read_to_string(ground.newest("junit.xml")).unwrap();
    assert!(junit.contains("<error"), "{junit}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in:\n{said}");
    }
    let journal = ground.path().join("state/chainbreak/kind");
    let left: Vec<_> = fs::read_dir(journal).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn without_a_docker_daemon_a_run_is_inconclusive_and_a_plan_says_why() {
    let ground = Ground::new();
    let fakes = Fakes {
        docker: &format!("echo '{NO_DAEMON}' >&2; exit 1"),
        kind: KIND,
    };
    let output = fakes.run(&ground, &[]);
    is_trouble(&ground, &output, &[NO_DAEMON]);
    let planned = fakes.chainbreak(
        &ground,
        &[
            "plan",
            "short.yaml",
            "--variant",
            "calm",
            "--backend",
            "kind",
        ],
    );
    exits(&planned, 0);
    // As a run has it; why is said once.
    assert!(text(&planned.stdout).starts_with("run   short/calm\n"));
    let said = text(&planned.stderr);
    assert_eq!(said.matches(NO_DAEMON).count(), 1, "{said}");
}

#[test]
fn without_kind_or_with_an_old_one_a_run_says_where_to_get_it() {
    let ground = Ground::new();
    let without = Fakes {
        docker: "",
        kind: "",
    };
    let words = ["could not start `kind`", "kind.sigs.k8s.io"];
    is_trouble(&ground, &without.run(&ground, &[]), &words);
    let old = Fakes {
        docker: "",
        kind: "echo kind v0.11.1 go1.16.4 linux/amd64",
    };
    let words = ["kind v0.11.1 is here, v0.27.0 or newer is needed"];
    is_trouble(&ground, &old.run(&ground, &[]), &words);
}

#[test]
fn an_image_that_cannot_be_pulled_is_named_with_what_docker_said() {
    let ground = Ground::new();
    let refused =
        "Error response from daemon: Get \"https://registry-1.docker.io/v2/\": no such host";
    let docker = format!(
        "case \"$*\" in 'image inspect'*) echo 'Error: No such image: x' >&2; exit 1;; \
         pull*) echo '{refused}' >&2; exit 1;; esac"
    );
    let fakes = Fakes {
        docker: &docker,
        kind: KIND,
    };
    let output = fakes.run(&ground, &[]);
    is_trouble(
        &ground,
        &output,
        &["there is no image", "kindest/node:v1.", refused],
    );
    let asked = asked(&ground);
    assert!(!asked.contains("kind create"), "{asked}");
}

/// Docker with the node image and one container of any cluster that it is asked for, whose `kubeadm.conf` says that; nothing of
/// ours stands beside it.
fn docker_with(kubeadm: &str) -> String {
    format!(
        "case \"$*\" in 'image inspect'*) echo null;; \
         *label=chainbreak.dev/*) ;; \
         ps*) echo 'some-control-plane\trunning';; \
         cp*) echo '{kubeadm}';; esac"
    )
}

#[test]
fn a_cluster_of_that_name_that_is_not_ours_is_never_touched() {
    let ground = Ground::new();
    let fakes = Fakes {
        docker: &docker_with("node-labels: \"\""),
        kind: KIND,
    };
    let output = fakes.run(&ground, &[]);
    is_trouble(
        &ground,
        &output,
        &["that chainbreak did not make: it is not touched"],
    );
    let asked = asked(&ground);
    assert!(
        !["kind delete", "kind create", "docker rm"]
            .iter()
            .any(|it| asked.contains(it)),
        "{asked}"
    );
}

#[test]
fn what_kind_could_not_make_is_deleted_and_what_it_said_is_told() {
    let ground = Ground::new();
    let docker = "case \"$*\" in 'image inspect'*) echo null;; esac";
    let kind = "case $1 in version) echo 'kind v0.27.0 x';; \
        create) cat > config; echo 'ERROR: failed to create cluster: no space left on device' >&2; exit 1;; esac";
    let fakes = Fakes { docker, kind };
    let output = fakes.run(&ground, &[]);
    is_trouble(
        &ground,
        &output,
        &["kind create cluster", "no space left on device"],
    );
    let asked = asked(&ground);
    assert!(
        asked.contains("kind delete cluster --name chainbreak-"),
        "{asked}"
    );
}

#[test]
fn clean_deletes_the_clusters_of_runs_that_were_killed_and_names_them() {
    let ground = Ground::new();
    let journal = ground.path().join("state/chainbreak/kind");
    fs::create_dir_all(&journal).unwrap();
    fs::write(
        journal.join("chainbreak-0f.json"),
        "{\"format\":1,\"pid\":1}",
    )
    .unwrap();
    let fakes = Fakes {
        docker: "",
        kind: "exit 0",
    };
    // Nothing is left of it in Docker.
    let fakes = Fakes {
        docker: "exit 0",
        ..fakes
    };
    let output = fakes.chainbreak(&ground, &["clean"]);
    exits(&output, 0);
    let said = text(&output.stdout);
    assert!(said.contains("deleted the cluster chainbreak-0f"), "{said}");
    assert!(asked(&ground).contains("kind delete cluster --name chainbreak-0f"));
    assert!(!journal.join("chainbreak-0f.json").exists());
}

/// The next run of that cluster, or `clean`: the journal can be lost, labels are not.
#[test]
fn clean_removes_what_stands_beside_a_cluster_that_has_no_nodes_any_more() {
    let ground = Ground::new();
    let docker = "case \"$*\" in \
        *'{{.Label \"chainbreak.dev/cluster\"}}'*) echo chainbreak-0f;; \
        *label=chainbreak.dev/cluster=chainbreak-0f*) \
            test -e gone || printf 'chainbreak-0f-host-db\\nchainbreak-0f-nginx-db\\n';; \
        rm*) : > gone;; esac";
    let fakes = Fakes {
        docker,
        kind: "exit 0",
    };
    let output = fakes.chainbreak(&ground, &["clean"]);
    exits(&output, 0);
    let said = text(&output.stdout);
    for words in [
        "deleted the cluster chainbreak-0f",
        "removed chainbreak-0f-host-db, which stood beside it",
        "removed chainbreak-0f-nginx-db, which stood beside it",
    ] {
        assert!(said.contains(words), "{words} in:\n{said}");
    }
    let asked = asked(&ground);
    let removed = "docker rm --force --volumes chainbreak-0f-host-db chainbreak-0f-nginx-db\n";
    assert!(asked.contains(removed), "{asked}");
}

/// They are containers, too: without a daemon there are none, and the case was asked for by name.
#[test]
fn without_a_docker_daemon_a_case_with_hosts_is_trouble_and_not_skipped() {
    let ground = Ground::new();
    let short = fs::read_to_string(ground.path().join("short.yaml")).unwrap();
    let with_a_host = short.replacen("nodes: 1\n", "nodes: 1\n  hosts: [outside]\n", 1);
    assert_ne!(short, with_a_host);
    ground.write("short.yaml", &with_a_host);
    let fakes = Fakes {
        docker: &format!("echo '{NO_DAEMON}' >&2; exit 1"),
        kind: KIND,
    };
    is_trouble(&ground, &fakes.run(&ground, &[]), &[NO_DAEMON]);
}
