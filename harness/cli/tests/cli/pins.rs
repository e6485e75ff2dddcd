//! Each release of kube-proxy that `clusters/versions.yaml` pins is one that somebody looks at.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use chainbreak_kind::versions::Versions;

/// Minor version and name of each.
fn pinned() -> Vec<(u16, String)> {
    let pins = Versions::pinned().expect("it can be read").kube_proxy;
    let named = pins.into_iter().map(|it| {
        let [major, minor, patch] = it.0;
        (minor, format!("{major}.{minor}.{patch}"))
    });
    named.collect()
}

fn of_project(path: &str) -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    project.join(path)
}

#[test]
fn each_pinned_release_but_the_named_ones_is_recorded_in_every_mode_that_it_has() {
    let folder = fs::read_dir(of_project("harness/recordings/corpus")).expect("it is there");
    let names = folder.map(|it| it.expect("an entry").file_name().into_string());
    let names = names.map(|it| it.expect("in UTF-8"));
    let recorded: BTreeSet<String> = names.filter(|it| it.ends_with(".json.gz")).collect();
    let mut pins = BTreeSet::new();
    for (minor, version) in pinned() {
        pins.insert(format!("kube-proxy-{version}-iptables.json.gz"));
        // Older ones have another nftables mode, which is not modelled.
        if minor >= 31 {
            pins.insert(format!("kube-proxy-{version}-nftables.json.gz"));
        }
    }
    assert_eq!(recorded, pins);
}

#[test]
fn each_pinned_release_is_held_to_its_model_every_night() {
    let jobs = of_project(".github/workflows/nightly.yml");
    let jobs = fs::read_to_string(jobs).expect("it is there");
    let mut lines = jobs.lines().map(str::trim);
    let releases = lines.find_map(|it| it.strip_prefix("release: "));
    let releases = releases.expect("a list").trim_matches(['[', ']']);
    let releases = releases
        .split(", ")
        .map(|it| it.trim_matches('"').to_owned());
    let pins: BTreeSet<String> = pinned().into_iter().map(|(_, version)| version).collect();
    assert_eq!(releases.collect::<BTreeSet<_>>(), pins);
}
