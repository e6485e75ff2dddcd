//! Builds: once, whole, and each trouble one line that says what to do.

use std::fs;

use crate::go::{Machine, names};

#[tokio::test]
async fn a_release_is_built_once_and_kept_by_version_compiler_and_recipe() {
    let machine = Machine::new();
    let path = machine.build("1.34.2").await.unwrap();
    assert_eq!(machine.build("1.34.2").await.unwrap(), path);
    assert_eq!(machine.compiled(), 1);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("kube-proxy-v1.34.2-go1.26.8-"), "{name}");
    assert_eq!(names(machine.cache.folder()), [name]);
    let kept = machine.cache.kept().unwrap();
    assert_eq!(kept[0].version, "1.34.2");
    assert_eq!(kept[0].path, path);
    let go_mod = fs::read_to_string(machine.path("go.mod")).unwrap();
    assert!(
        go_mod.contains("k8s.io/api => k8s.io/api v0.34.2"),
        "{go_mod}"
    );
    for doing in [
        "downloads its source",
        "downloads the modules",
        "compiles",
        "built kube-proxy 1.34.2 in",
    ] {
        assert!(machine.has_said(doing), "{doing}");
    }
}

/// The build waits for a file that is made when the other one has said that it waits.
#[tokio::test]
async fn of_two_at_once_one_builds_and_the_other_waits_for_it_and_says_so() {
    let machine = Machine::new();
    let pipe = machine.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let slow = format!(
        "read go < {}; printf '#!/bin/sh\\necho Kubernetes v1.34.2\\n' > kube-proxy; chmod +x kube-proxy",
        pipe.display()
    );
    machine.building(&slow);
    let release = async {
        let words = "another process makes kube-proxy-v1.34.2: waiting for it";
        machine.says(words).await;
        let opened = tokio::task::spawn_blocking(move || fs::write(pipe, "go\n"));
        opened.await.unwrap().unwrap();
        Ok(())
    };
    // A build that fails ends it: nobody would say that it waits.
    let built = tokio::try_join!(machine.build("1.34.2"), machine.build("1.34.2"), release);
    let (one, other, ()) = built.unwrap();
    assert_eq!(one, other);
    assert_eq!(machine.compiled(), 1);
}

#[tokio::test]
async fn what_was_broken_off_leaves_nothing_that_counts_and_the_next_one_builds() {
    let machine = Machine::new();
    let part = machine.cache.folder().join("kube-proxy-v1.34.2.part");
    // What a killed one left.
    fs::create_dir_all(&part).unwrap();
    fs::write(part.join("kube-proxy"), "half").unwrap();
    assert!(machine.cache.kept().unwrap().is_empty());
    machine.building("printf half > kube-proxy; echo './main.go: no such thing' >&2; exit 1");
    let why = machine.build("1.34.2").await.unwrap_err().to_string();
    assert_eq!(
        why,
        "kube-proxy 1.34.2: could not compile it: ./main.go: no such thing"
    );
    assert!(machine.cache.kept().unwrap().is_empty());
    assert!(names(machine.cache.folder()).is_empty());
    machine.building(
        "printf '#!/bin/sh\\necho Kubernetes v1.34.2\\n' > kube-proxy; chmod +x kube-proxy",
    );
    machine.build("1.34.2").await.unwrap();
}

#[tokio::test]
async fn a_program_that_calls_itself_otherwise_is_not_kept() {
    let machine = Machine::new();
    let why = machine.build("1.34.3").await.unwrap_err().to_string();
    assert_eq!(
        why,
        "kube-proxy 1.34.3: what was built calls itself \"Kubernetes v1.34.2\""
    );
    assert!(names(machine.cache.folder()).is_empty());
}

#[tokio::test]
async fn without_a_go_what_another_one_built_is_as_good_and_else_it_is_said_where_to_get_one() {
    let machine = Machine::new();
    let path = machine.build("1.34.2").await.unwrap();
    fs::remove_file(machine.path("go")).unwrap();
    assert_eq!(machine.build("1.34.2").await.unwrap(), path);
    let why = machine.build("1.36.1").await.unwrap_err().to_string();
    assert!(
        why.contains("there is no Go here") && why.contains("https://go.dev/dl"),
        "{why}"
    );
}

#[tokio::test]
async fn each_trouble_is_one_line_that_says_what_to_do() {
    let machine = Machine::new();
    let old =
        |machine: &Machine| machine.go("go1.19.8", "echo '{\"GoMod\":\"HERE/upstream\"}'", "");
    let no_such = "echo '{\"Error\":\"k8s.io/kubernetes@v1.99.0: invalid version: unknown revision v1.99.0\"}'; exit 1";
    let offline =
        "echo '{\"Error\":\"Get https://proxy: dial tcp: lookup proxy: no such host\"}'; exit 1";
    let missing =
        "echo 'reading https://proxy/k8s.io/cri-client/v0.34.2.zip: 403 Forbidden' >&2; exit 1";
    let full = "echo 'write x.a: no space left on device' >&2; exit 1";
    for (prepare, parts) in [
        (
            Box::new(old) as Box<dyn Fn(&Machine)>,
            ["asks for Go 1.24.0, this is go1.19.8", "GOTOOLCHAIN=auto"],
        ),
        (
            Box::new(|it: &Machine| it.downloading(no_such)),
            ["there is no kube-proxy 1.34.2", "go list -m -versions"],
        ),
        (
            Box::new(|it: &Machine| it.downloading(offline)),
            ["cannot be downloaded", "GOPROXY"],
        ),
        (
            Box::new(|it: &Machine| it.building(missing)),
            ["a module that is not to be had", "GOPROXY"],
        ),
        (
            Box::new(|it: &Machine| it.building(full)),
            ["the file system is full", "make room"],
        ),
    ] {
        prepare(&machine);
        let why = machine.build("1.34.2").await.unwrap_err().to_string();
        assert_eq!(why.lines().count(), 1, "{why}");
        for part in parts {
            assert!(why.contains(part), "no {part}: {why}");
        }
        assert!(names(machine.cache.folder()).is_empty());
    }
    let why = machine.build("1.24.1").await.unwrap_err().to_string();
    assert!(why.contains("releases from 1.28 on"), "{why}");
}
