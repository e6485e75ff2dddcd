//! What `clusters/versions.yaml` says of agents, for those who make or pull them. Pure.

use serde::{Deserialize, de::Error as _};

use crate::{Pins, Release, release::numbers};

/// What this program was built with.
const PINNED: &str = include_str!("../../../clusters/versions.yaml");

/// The part of the file that is about agents: real clusters are made of the rest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    kube_proxy: Vec<String>,
    /// The newest first.
    calico: Vec<Calico>,
}

#[derive(Debug, Deserialize)]
struct Calico {
    version: String,
    registry: String,
}

fn file() -> Result<File, serde_yaml::Error> {
    serde_yaml::from_str(PINNED)
}

/// The releases of kube-proxy.
pub fn kube_proxies() -> Result<Pins, serde_yaml::Error> {
    let releases = file()?.kube_proxy.into_iter().map(|text| text.parse());
    let releases: Result<Vec<Release>, String> = releases.collect();
    Ok(Pins::new(releases.map_err(serde_yaml::Error::custom)?))
}

/// The releases of Calico, the oldest first.
pub fn calicos() -> Result<Vec<String>, serde_yaml::Error> {
    let newest_first = file()?.calico.into_iter();
    Ok(newest_first.rev().map(|it| it.version).collect())
}

/// The image that Felix of that version comes in, and which version exactly that is. One that is not pinned is looked for where
/// its next older neighbour is; of a minor version that is not pinned nobody knows the patch.
pub fn felix(written: &str) -> Result<Option<(String, String)>, serde_yaml::Error> {
    Ok(of_calico(&file()?.calico, written))
}

fn of_calico(pinned: &[Calico], written: &str) -> Option<(String, String)> {
    let wanted = numbers(written)?;
    let of = |it: &Calico, version: &str| {
        let image = format!("{}/node:{version}", it.registry);
        Some((image, version.to_owned()))
    };
    let is_it = |it: &&Calico| {
        let has = numbers(&it.version);
        wanted.len() >= 2 && has.is_some_and(|has| has.starts_with(&wanted))
    };
    if let Some(pinned) = pinned.iter().find(is_it) {
        return of(pinned, &pinned.version);
    }
    let [major, minor, patch] = wanted[..] else {
        return None;
    };
    let is_older = |it: &&Calico| numbers(&it.version).is_some_and(|has| has < wanted);
    let neighbour = pinned.iter().find(is_older).or(pinned.last())?;
    of(neighbour, &format!("v{major}.{minor}.{patch}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_and_every_kube_proxy_in_it_can_be_built() {
        let pins = kube_proxies().unwrap();
        assert!(!pins.all().is_empty());
        assert!(pins.all().iter().all(|it| it.can_be_built()));
    }

    #[test]
    fn felix_is_where_its_version_or_the_one_before_it_is() {
        let image = |written| felix(written).unwrap().map(|(image, _)| image);
        let at = |image: &str| Some(image.to_owned());
        assert_eq!(image("v3.28"), at("docker.io/calico/node:v3.28.5"));
        assert_eq!(image("3.28.2"), at("docker.io/calico/node:v3.28.2"));
        assert_eq!(image("v3.32.9"), at("quay.io/calico/node:v3.32.9"));
        assert_eq!(image("v3.20.0"), at("docker.io/calico/node:v3.20.0"));
        assert_eq!(image("v3.99"), None);
        assert_eq!(image("newest"), None);
    }
}
