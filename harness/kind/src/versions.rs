//! `clusters/versions.yaml`: every version and image that real clusters are made of.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{error::KindError, made::calico::Way};

/// What this program was built with.
const PINNED: &str = include_str!("../../../clusters/versions.yaml");
/// The repository of kind's node images.
const NODE_IMAGES: &str = "kindest/node";

/// All pins.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Versions {
    /// Of the file; 1.
    pub format: u16,
    /// Which kind.
    pub kind: KindPin,
    /// What the pods on the nodes of an existing cluster run.
    pub node_pod: PinnedImage,
    /// What answers on hosts outside of a cluster.
    pub host_nginx: PinnedImage,
    /// Node images, the newest first.
    pub kubernetes: Vec<NodeImage>,
    /// Calico's releases, the newest first.
    pub calico: Vec<CalicoRelease>,
    /// kube-proxy's releases that are built of Go's modules, the newest first.
    pub kube_proxy: Vec<Version>,
}

/// Which kind clusters are made with.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KindPin {
    /// The oldest that will do.
    pub at_least: Version,
}

/// An image that is no part of a release.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PinnedImage {
    /// With its tag.
    pub image: String,
    /// Of the image.
    pub digest: Digest,
}

impl PinnedImage {
    /// The name to pull it by.
    pub(crate) fn name(&self) -> String {
        match &self.digest {
            Digest::Known(digest) => format!("{}@{digest}", self.image),
            Digest::Unknown => self.image.clone(),
        }
    }
}

/// A node image of one Kubernetes version.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NodeImage {
    /// Of Kubernetes.
    pub version: Version,
    /// The release of kind whose notes name the image.
    pub built_by: Version,
    /// Of the image.
    pub digest: Digest,
}

impl NodeImage {
    /// The name to pull it by.
    pub(crate) fn name(&self) -> String {
        match &self.digest {
            Digest::Known(digest) => format!("{NODE_IMAGES}:{}@{digest}", self.version),
            Digest::Unknown => format!("{NODE_IMAGES}:{}", self.version),
        }
    }
}

/// A release of Calico.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CalicoRelease {
    /// Of Calico.
    pub version: Version,
    /// Where its images are.
    pub registry: String,
    /// Of its images.
    pub digests: Digest,
    /// Of its `manifests/calico.yaml`.
    pub manifest: Digest,
    /// Of its `manifests/tigera-operator.yaml`.
    pub operator: Digest,
}

impl CalicoRelease {
    /// The images of the manifest.
    pub(crate) fn images(&self) -> [String; 3] {
        ["cni", "node", "kube-controllers"]
            .map(|name| format!("{}/{name}:{}", self.registry, self.version))
    }

    /// The images of what the operator makes.
    pub(crate) fn of_operator(&self) -> Vec<String> {
        let typha = format!("{}/typha:{}", self.registry, self.version);
        self.images().into_iter().chain([typha]).collect()
    }

    /// Where the manifest is.
    pub(crate) fn url(&self, way: Way) -> String {
        format!(
            "https://raw.githubusercontent.com/projectcalico/calico/{}/{}",
            self.version,
            way.file()
        )
    }

    /// The manifest's checksum.
    pub(crate) fn digest(&self, way: Way) -> &Digest {
        match way {
            Way::Manifest => &self.manifest,
            Way::Operator => &self.operator,
        }
    }
}

/// `v1.32.8`: three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u16; 3]);

impl Version {
    pub(crate) const fn of(major: u16, minor: u16, patch: u16) -> Self {
        Self([major, minor, patch])
    }

    /// Reads `v1.32.8`, with or without its `v`, whatever follows the numbers (`-alpha`, `+k3s1`).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(['-', '+', ' ']).unwrap_or(text.len());
        let mut parts = text.get(..end)?.split('.').map(str::parse);
        let mut next = || parts.next()?.ok();
        let numbers = [next()?, next()?, next()?];
        parts.next().is_none().then_some(Self(numbers))
    }

    /// Whether it is what a scenario writes: `1.32` means every patch version of it.
    pub(crate) fn is(self, written: &str) -> bool {
        let written = written.strip_prefix('v').unwrap_or(written);
        let numbers: Option<Vec<u16>> = written.split('.').map(|part| part.parse().ok()).collect();
        numbers.is_some_and(|numbers| numbers.len() >= 2 && self.0.starts_with(&numbers))
    }

    /// `1.32`.
    pub(crate) fn minor(self) -> String {
        let Self([major, minor, _]) = self;
        format!("{major}.{minor}")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "v{major}.{minor}.{patch}")
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no version")))
    }
}

/// `sha256:…` with 64 digits, or `unknown`: nobody has looked it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Digest {
    /// As written.
    Known(String),
    /// Nobody has looked it up.
    Unknown,
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "unknown" {
            return Ok(Self::Unknown);
        }
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        let hex = digits.len() == 64 && digits.bytes().all(|it| it.is_ascii_hexdigit());
        if hex {
            Ok(Self::Known(text))
        } else {
            let why = format!("{text:?} is no digest: write sha256:… or unknown");
            Err(D::Error::custom(why))
        }
    }
}

impl Versions {
    /// The pins of this program.
    pub fn pinned() -> Result<Self, KindError> {
        Self::parse(PINNED)
    }

    fn parse(text: &str) -> Result<Self, KindError> {
        let versions: Self = serde_yaml::from_str(text).map_err(KindError::Pins)?;
        if versions.format == 1 {
            Ok(versions)
        } else {
            let why = format!("format {} is not known", versions.format);
            Err(KindError::Pins(serde_yaml::Error::custom(why)))
        }
    }

    /// The Kubernetes versions that have a node image.
    pub(crate) fn versions(&self) -> Vec<Version> {
        self.kubernetes.iter().map(|it| it.version).collect()
    }

    /// The newest node image of that version, as scenarios write it.
    pub(crate) fn node_image(&self, written: &str) -> Option<&NodeImage> {
        self.kubernetes.iter().find(|it| it.version.is(written))
    }

    /// The newest Calico of that version, as scenarios write it.
    pub(crate) fn calico(&self, written: &str) -> Option<&CalicoRelease> {
        self.calico.iter().find(|it| it.version.is(written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pinned_is_read_is_sorted_and_has_every_digest_of_a_node_image() {
        let pinned = Versions::pinned().unwrap();
        assert!(pinned.kubernetes.is_sorted_by(|a, b| a.version > b.version));
        assert!(pinned.calico.is_sorted_by(|a, b| a.version > b.version));
        assert!(pinned.kube_proxy.is_sorted_by(|a, b| a > b));
        let unknown = |it: &&NodeImage| it.digest == Digest::Unknown;
        assert_eq!(pinned.kubernetes.iter().find(unknown), None);
    }

    #[test]
    fn a_minor_version_means_the_pinned_patch_of_it_and_a_patch_only_itself() {
        let pinned = Versions::pinned().unwrap();
        let name = |written| pinned.node_image(written).map(NodeImage::name);
        let image = name("1.32").unwrap();
        assert!(image.starts_with("kindest/node:v1.32.8@sha256:abd489f0"));
        assert_eq!(name("1.32.8"), Some(image));
        assert_eq!(name("1.32.99"), None);
        assert_eq!(name("1.3"), None, "1.3 is not 1.32");
        let calico = pinned.calico("v3.28").unwrap();
        assert_eq!(calico.version.to_string(), "v3.28.5");
        assert_eq!(calico.images()[1], "docker.io/calico/node:v3.28.5");
    }

    #[test]
    fn a_wrong_pin_is_said_with_its_line() {
        let said = |from: &str, to: &str| {
            let text = PINNED.replacen(from, to, 1);
            Versions::parse(&text).unwrap_err().to_string()
        };
        let short = said("abd489f0", "abd489f");
        assert!(
            short.contains("is no digest") && short.contains("line"),
            "{short}"
        );
        let version = said("version: v1.32.8", "version: v1.32");
        assert!(version.contains("\"v1.32\" is no version"), "{version}");
        let format = said("format: 1", "format: 2");
        assert!(format.contains("format 2 is not known"), "{format}");
        let field = said("digests: unknown", "digest: unknown");
        assert!(field.contains("unknown field"), "{field}");
    }
}
