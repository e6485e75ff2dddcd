//! What cannot be an agent, or does not live as one, is said on one clear line with the evidence below.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;

use crate::{
    stand_in::{KUBE_PROXY, kube_proxy, root, script},
    support::{User, World, case},
};

/// What is said when the world of such a kube-proxy is raised.
async fn refusal(source: &Path) -> String {
    let (world, raised) = World::try_raise(User::Myself, &kube_proxy(case(1), source)).await;
    world.failed().await;
    let said = raised["error"].as_str().expect("it cannot be raised");
    let begin = format!(
        "could not raise the cluster: raise the lab's world: cannot use {} as kube-proxy: ",
        source.display()
    );
    let rest = said.strip_prefix(&begin);
    rest.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[tokio::test]
async fn a_path_that_is_not_there_and_files_that_cannot_be_run_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let none = refusal(&folder.path().join("none")).await;
    assert_eq!(none, "No such file or directory (os error 2)");
    let plain = script(folder.path(), "plain", KUBE_PROXY);
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let said = refusal(&plain).await;
    assert_eq!(said, format!("{} is not executable", plain.display()));
    // An ELF header of 64 bit, little-endian, for machine 183.
    let foreign = script(
        folder.path(),
        "foreign",
        "\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0",
    );
    let mut bytes = fs::read(&foreign).unwrap();
    bytes.extend([183, 0]);
    fs::write(&foreign, bytes).unwrap();
    let said = refusal(&foreign).await;
    let here = std::env::consts::ARCH;
    assert!(
        said.ends_with(&format!("is for aarch64, and this machine is {here}")),
        "{said}"
    );
}

#[tokio::test]
async fn a_program_that_is_no_kube_proxy_is_refused_with_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let other = script(folder.path(), "other", "#!/bin/sh\necho other 1.2\n");
    let said = refusal(&other).await;
    assert_eq!(
        said,
        "it says \"other 1.2\", and not which kube-proxy it is"
    );
    let broken = script(
        folder.path(),
        "broken",
        "#!/bin/sh\necho one; echo two >&2; exit 3\n",
    );
    let said = refusal(&broken).await;
    let line = format!("`{} --version` ended with exit status: 3", broken.display());
    assert_eq!(said, format!("{line}\none\ntwo"));
}

#[tokio::test]
async fn a_root_without_iptables_or_without_the_agent_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = root(folder.path(), &[]);
    let said = refusal(&image).await;
    let places = "/usr/local/sbin, /usr/local/bin, /usr/sbin, /usr/bin, /sbin, /bin";
    assert_eq!(
        said,
        format!("it is a folder without kube-proxy in its {places}")
    );
    script(&image, "usr/local/bin/kube-proxy", KUBE_PROXY);
    let said = refusal(&image).await;
    assert_eq!(
        said,
        format!("it is a folder without iptables in its {places}")
    );
    // One that is there and cannot be run is said to be that.
    script(
        &image,
        "usr/sbin/iptables",
        "#!/bin/sh\necho no library >&2; exit 127\n",
    );
    let said = refusal(&image).await;
    assert_eq!(
        said,
        "`iptables --version` ended with exit status: 127\nno library"
    );
}

#[tokio::test]
async fn an_agent_that_always_exits_at_once_is_dead_after_its_third_life() {
    let folder = tempfile::tempdir().unwrap();
    let dies = script(
        folder.path(),
        "dies",
        &format!("{KUBE_PROXY}say no use; exit 2\n"),
    );
    let mut world = World::raise(User::Ordinary, &kube_proxy(case(1), &dies)).await;
    let log = world.ask(json!({ "log": ["kube-proxy", "n1", 9] })).await;
    let entry = "I0610 07:32:16.910840       1 stand-in] no use";
    let died = format!(
        "exit status 2, 3 times in a row within 5 s of its start; it said last:\n\
         {entry}\n{entry}\n{entry}"
    );
    assert_eq!(log, json!([entry, entry, entry, { "died": died }]));
    world.stop().await;
}

#[tokio::test]
async fn an_agent_that_never_syncs_is_told_of_with_its_requests_and_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let asks = "curl -s -A stand-in http://10.0.0.1:6443/api/v1/nodes/n1 > /dev/null\n\
                say asked; exec sleep 1000\n";
    let idle = script(folder.path(), "idle", &format!("{KUBE_PROXY}{asks}"));
    let mut world = World::raise(User::Myself, &kube_proxy(case(1), &idle)).await;
    world.ask(json!({ "log": ["kube-proxy", "n1", 1] })).await;
    let account = world.ask(json!({ "account": "n1" })).await;
    let account = account.as_str().unwrap();
    assert!(account.starts_with("n1 asked the API for:\n"), "{account}");
    assert!(account.contains("GET /api/v1/nodes/n1: 200"), "{account}");
    assert!(account.ends_with("] asked\n"), "{account}");
    world.stop().await;
}
