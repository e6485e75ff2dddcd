//! What is read of what a person gives, and whose place it takes.

use serde_json::json;

use super::*;

fn given(part: &str) -> OwnImage {
    OwnImage {
        part: part.to_owned(),
        reference: format!("mine/{part}:dev"),
        source: Source::Docker,
        identity: String::new(),
    }
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn an_image_takes_the_place_of_the_one_whose_name_ends_like_its_own() {
    let wanted = names(&[
        "docker.io/calico/node:v3.28.1",
        "docker.io/calico/cni:v3.28.1",
        "localhost:5000/calico/kube-controllers:v3.28.1",
    ]);
    let own = [given("node"), given("kube-controllers")];
    let places = places(&own, &wanted).unwrap();
    let of = |at: usize| places[at].1.join(" ");
    assert_eq!(of(0), "docker.io/calico/node:v3.28.1");
    assert!(of(1).contains("kube-controllers"), "{}", of(1));
    let typha = [given("typha")];
    let error = super::places(&typha, &wanted).unwrap_err().to_string();
    assert!(
        error.contains("`typha`: it has cni, kube-controllers, node"),
        "{error}"
    );
}

#[test]
fn a_name_stands_before_a_source_and_a_reference_may_have_none() {
    assert_eq!(split("node=./root"), (Some("node"), "./root"));
    assert_eq!(split("a.b/c=d"), (None, "a.b/c=d"));
    assert_eq!(split("calico/node:dev"), (None, "calico/node:dev"));
}

#[test]
fn every_named_image_of_an_archive_is_found() {
    let list = json!([
        { "Config": "blobs/sha256/aa", "RepoTags": ["calico/node:v3", "mine/node:x", "mine/cni:x"] },
        { "Config": "blobs/sha256/bb", "RepoTags": null },
    ]);
    let found = in_archive(&list, Path::new("a.tar"));
    let told: Vec<String> = found.iter().map(OwnImage::told).collect();
    assert_eq!(
        told,
        [
            "calico/node:v3 (blobs/sha256/aa)",
            "mine/cni:x (blobs/sha256/aa)"
        ]
    );
}

#[tokio::test]
async fn an_archive_is_read_and_what_is_none_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (list, archive) = ("manifest.json", folder.path().join("calico.tar"));
    let images = r#"[{"Config": "aa.json", "RepoTags": ["calico/node:v3", "calico/typha:v3"]}]"#;
    fs::write(folder.path().join(list), images).unwrap();
    let (into, from) = (archive.to_string_lossy(), folder.path().to_string_lossy());
    let tar = ["tar", "-cf", &into, "-C", &from, list];
    Tool::new(LONG, tar).output().await.unwrap();
    let own = read(&[into.to_string()]).await.unwrap();
    let wanted = names(&["docker.io/calico/node:v3.28.1"]);
    let places = places(&own, &wanted).unwrap();
    assert_eq!(places.len(), 1, "nobody wants its typha: {places:?}");
    let named = read(&[format!("node={into}")])
        .await
        .unwrap_err()
        .to_string();
    assert!(named.contains("has 2 images"), "{named}");
    fs::write(&archive, "no archive").unwrap();
    let broken = read(&[into.to_string()]).await.unwrap_err().to_string();
    assert!(broken.contains("tar"), "{broken}");
}

#[test]
fn a_folder_is_another_image_when_a_file_of_it_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("bin")).unwrap();
    fs::write(path.join("bin/calico-node"), "one").unwrap();
    let first = root(Some("node"), path).unwrap();
    assert_eq!(root(Some("node"), path).unwrap(), first);
    fs::write(path.join("bin/calico-node"), "another").unwrap();
    let second = root(Some("node"), path).unwrap();
    assert_ne!(second.reference, first.reference);
    let unnamed = root(None, path).unwrap_err().to_string();
    assert!(unnamed.contains("cni, kube-controllers"), "{unnamed}");
}

#[test]
fn what_is_not_there_is_said_before_a_cluster_is_made_for_it() {
    let all = ["node=./no/such/root".to_owned()];
    let error = is_there(&all).unwrap_err().to_string();
    assert!(error.contains("./no/such/root"), "{error}");
    assert!(is_there(&["calico/node:dev".to_owned()]).is_ok());
}
