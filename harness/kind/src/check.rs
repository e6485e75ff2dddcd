//! Whether what is pinned is still so: the registry and the origin of Calico's manifests are asked.

use std::time::Duration;

use crate::{
    error::KindError,
    made::calico::{self, Way},
    tool::Tool,
    versions::{Digest, Versions},
};

/// What a registry, or an origin, may take to answer.
const WITHIN: Duration = Duration::from_secs(30);

/// Something that is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// `pod image`, `host image`, `node image`, `manifest`, `image`.
    pub what: &'static str,
    /// By which it is fetched.
    pub name: String,
    digest: Digest,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// It is what it was.
    AsPinned,
    /// Something else has its name now.
    Stale(String),
    /// Nobody knows, and why.
    Unknown(String),
}

impl Versions {
    /// Every pin, in the file's order.
    pub fn all(&self) -> Vec<Pinned> {
        let single = [
            ("pod image", &self.node_pod),
            ("host image", &self.host_nginx),
        ];
        let single = single.map(|(what, image)| Pinned {
            what,
            name: image.name(),
            digest: image.digest.clone(),
        });
        let nodes = self.kubernetes.iter().map(|image| Pinned {
            what: "node image",
            name: image.name(),
            digest: image.digest.clone(),
        });
        let calico = self.calico.iter().flat_map(|release| {
            let manifests = [Way::Manifest, Way::Operator].map(|way| Pinned {
                what: "manifest",
                name: release.url(way),
                digest: release.digest(way).clone(),
            });
            let images = release.images().map(|name| Pinned {
                what: "image",
                name,
                digest: release.digests.clone(),
            });
            manifests.into_iter().chain(images)
        });
        single.into_iter().chain(nodes).chain(calico).collect()
    }
}

impl Pinned {
    /// Asks.
    pub async fn check(&self) -> Checked {
        if self.digest == Digest::Unknown {
            return Checked::Unknown("its digest is not pinned".to_owned());
        }
        if self.what == "manifest" {
            let fetched = Tool::new(WITHIN, ["curl", "-fsSL", &self.name])
                .output()
                .await;
            let checked = fetched.map(|text| calico::check(&text, &self.digest, &self.name));
            return match checked {
                Ok(Ok(())) => Checked::AsPinned,
                Ok(Err(error)) => Checked::Stale(first_line(&error)),
                Err(error) => Checked::Unknown(words(&error)),
            };
        }
        // What has the tag today.
        let tag = self.name.split('@').next().unwrap_or_default();
        let format = "{{.Manifest.Digest}}";
        let argv = [
            "docker",
            "buildx",
            "imagetools",
            "inspect",
            tag,
            "--format",
            format,
        ];
        match (Tool::new(WITHIN, argv).output().await, &self.digest) {
            (Ok(found), Digest::Known(pinned)) if found.trim() == pinned => Checked::AsPinned,
            (Ok(found), _) => Checked::Stale(format!("the tag is {} now", found.trim())),
            (Err(error), _) => Checked::Unknown(words(&error)),
        }
    }
}

fn first_line(error: &KindError) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The program's own words, which stand below what was run.
fn words(error: &KindError) -> String {
    let text = error.to_string();
    let words = text.lines().nth(1).or(text.lines().next());
    words.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_image_manifest_and_image_is_asked_about() {
        let pins = Versions::pinned().unwrap();
        let all = pins.all();
        // The image of the pods by which commands get to somebody's nodes, that of hosts' nginx, and Calico's two manifests and
        // three images.
        assert_eq!(all.len(), pins.kubernetes.len() + 5 * pins.calico.len() + 2);
        assert!(all.iter().all(|pin| !pin.name.is_empty()));
    }

    #[tokio::test]
    async fn what_has_no_digest_is_unknown_without_asking_anybody() {
        let pin = Pinned {
            what: "image",
            name: "docker.io/calico/node:v3.28.1".to_owned(),
            digest: Digest::Unknown,
        };
        let unknown = Checked::Unknown("its digest is not pinned".to_owned());
        assert_eq!(pin.check().await, unknown);
    }
}
