//! What is pulled is kept: once, whole, and under the name that it was asked for by.

use std::{fs, path::Path, process::Command};

use chainbreak_model::names::AgentName;
use chainbreak_sources::Source;
use serde_json::json;

use super::machine::Machine;
use crate::{
    go::names,
    registry::{INDEX, Image, Registry, here, layer},
};

#[tokio::test]
async fn an_image_is_pulled_once_and_kept_with_its_name_its_digest_and_its_platform() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let digest = registry
        .push("kube-proxy:v1.34.2", &Image::of_kube_proxy("v1.34.2"))
        .await;
    let image = registry.image("kube-proxy:v1.34.2");
    assert_eq!(machine.puller().at_hand(&image).unwrap(), None);
    let kept = machine.pull(&image).await.unwrap();
    assert_eq!(
        (kept.agent, &*kept.version),
        (AgentName::KubeProxy, "1.34.2")
    );
    assert_eq!((kept.source, kept.is_root()), (Source::Image, true));
    assert_eq!(kept.image, Some(image.whole()));
    assert_eq!(kept.release(), Some("1.34.2".parse().unwrap()));
    assert!(kept.program.ends_with("root/usr/local/bin/kube-proxy"));
    assert_eq!(names(&kept.path.join("etc")), ["here"]);
    let note = kept.path.parent().unwrap().join("image.json");
    let note: serde_json::Value = serde_json::from_slice(&fs::read(note).unwrap()).unwrap();
    assert_eq!(
        (&note["digest"], &note["manifest"], &note["platform"]),
        (
            &json!(digest),
            &json!(digest),
            &json!(format!("linux/{}", here()))
        )
    );
    assert_eq!(
        machine.times_said(&digest),
        1,
        "what a tag leads to is said"
    );
    assert_eq!(machine.times_said("layer 2 of 2: sha256:"), 1);
    // Again by its tag, and by its digest: nothing is downloaded.
    assert_eq!(machine.pull(&image).await.unwrap(), kept);
    let pinned = registry.image(&format!("kube-proxy@{digest}"));
    let same = machine.pull(&pinned).await.unwrap();
    assert_eq!(
        (&same.path, &same.image),
        (&kept.path, &Some(pinned.whole()))
    );
    assert_eq!(machine.times_said("layer 1 of"), 1);
    assert_eq!(machine.times_said("is here already"), 2);
    assert_eq!(machine.cache.kept().unwrap(), std::slice::from_ref(&same));
    assert_eq!(machine.puller().at_hand(&pinned).unwrap(), Some(same));
}

#[tokio::test]
async fn a_tag_that_moved_is_pulled_anew_and_the_newest_is_at_hand() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let image = registry.image("kube-proxy:newest");
    for version in ["v1.34.1", "v1.34.2"] {
        registry
            .push("kube-proxy:newest", &Image::of_kube_proxy(version))
            .await;
        let kept = machine.pull(&image).await.unwrap();
        assert_eq!(kept.version, version.trim_start_matches('v'));
        assert_eq!(machine.puller().at_hand(&image).unwrap(), Some(kept));
    }
    assert_eq!(machine.cache.kept().unwrap().len(), 2);
}

#[tokio::test]
async fn felix_is_found_where_its_image_has_it() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let felix = layer(&[("usr/bin/calico-node", b"v3.28.1")]);
    registry
        .push("calico/node:v3.28.1", &Image::new(vec![felix]))
        .await;
    let kept = machine.pull(&registry.image("calico/node:v3.28.1")).await;
    let kept = kept.unwrap();
    assert_eq!((kept.agent, &*kept.version), (AgentName::Felix, "v3.28.1"));
    assert_eq!(kept.release(), None);
}

#[tokio::test]
async fn of_many_platforms_the_machines_own_is_pulled_and_of_none_it_is_said_what_there_is() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let mut entries = Vec::new();
    for (os, architecture) in [("linux", "mips"), ("windows", here()), ("linux", here())] {
        let mut image = Image::of_kube_proxy("v1.34.2");
        image.platform = (os.to_owned(), architecture.to_owned());
        let digest = registry.push("kube-proxy:one", &image).await;
        entries.push(json!({
            "mediaType": crate::registry::MANIFEST,
            "digest": digest,
            "size": fs::metadata(registry.blob(&digest)).unwrap().len(),
            "platform": { "os": os, "architecture": architecture },
        }));
    }
    let list = |entries: &[serde_json::Value]| json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries });
    let many = registry.image("kube-proxy:many");
    let index = registry.put_manifest(&many, INDEX, &list(&entries)).await;
    let others = registry.image("kube-proxy:others");
    registry
        .put_manifest(&others, INDEX, &list(&entries[..2]))
        .await;
    let machines = format!("it has nothing for linux/{}", here());
    let why = machine.refusal(&others).await;
    assert!(why.starts_with(&machines), "{why}");
    assert!(
        why.ends_with(&format!("it has linux/mips, windows/{}", here())),
        "{why}"
    );
    // Not in a list either.
    let alone = entries[0]["digest"].as_str().unwrap();
    let why = machine
        .refusal(&registry.image(&format!("kube-proxy@{alone}")))
        .await;
    assert!(
        why.starts_with(&machines) && why.ends_with("linux/mips"),
        "{why}"
    );
    let kept = machine.pull(&many).await.unwrap();
    let own = entries[2]["digest"].as_str().unwrap();
    let folder = kept.path.parent().unwrap().to_str().unwrap();
    assert!(folder.ends_with(own.trim_start_matches("sha256:")));
    assert_eq!(machine.times_said(&index), 1);
}

#[tokio::test]
async fn of_two_at_once_one_pulls_and_the_other_waits_for_it() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    registry
        .push("kube-proxy:v1.34.2", &Image::of_kube_proxy("v1.34.2"))
        .await;
    let image = registry.image("kube-proxy:v1.34.2");
    let (one, other) = tokio::join!(machine.pull(&image), machine.pull(&image));
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(machine.times_said("layer 1 of"), 1);
}

#[tokio::test]
async fn what_is_broken_off_leaves_nothing_and_the_next_one_pulls() {
    let (registry, machine) = (Registry::start("").await, Machine::new());
    registry
        .push("kube-proxy:v1.34.2", &Image::of_kube_proxy("v1.34.2"))
        .await;
    let image = registry.image("kube-proxy:v1.34.2");
    tokio::select! {
        // First, so that it ends before the other one can.
        biased;
        () = machine.says("layer 2 of 2") => {}
        pulled = machine.pull(&image) => panic!("it was not broken off: {pulled:?}"),
    }
    assert!(names(machine.cache.folder()).is_empty());
    machine.pull(&image).await.unwrap();
}

/// The real one runs, in the root that it was unpacked to, and is what was pushed.
#[tokio::test]
#[ignore = "needs a real kube-proxy: CHAINBREAK_REAL_KUBE_PROXY"]
async fn a_real_kube_proxy_comes_out_of_its_image_as_it_went_in() {
    let path = std::env::var_os("CHAINBREAK_REAL_KUBE_PROXY");
    let path = path.expect("CHAINBREAK_REAL_KUBE_PROXY is not set: `make test-real` sets it");
    let program = fs::read(path).unwrap();
    let (registry, machine) = (Registry::start("").await, Machine::new());
    let image = Image::new(vec![layer(&[("usr/local/bin/kube-proxy", &program)])]);
    registry.push("kube-proxy:real", &image).await;
    let run = async |_agent: AgentName, root: &Path| {
        let program = root.join("usr/local/bin/kube-proxy");
        let output = Command::new(program).arg("--version").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let version = said.trim().strip_prefix("Kubernetes ");
        version.map(str::to_owned).ok_or_else(|| said.clone())
    };
    let image = registry.image("kube-proxy:real");
    let kept = machine.puller().pull(&image, run, &|_| ()).await.unwrap();
    assert!(kept.version.starts_with("1."), "{}", kept.version);
    let digest = format!("sha256:{}", kept.sha256().unwrap());
    assert_eq!(digest, crate::registry::sha256(&program));
}
