//! From the name of an image to what it is on this machine: which manifest, and which layers.

use oci_client::manifest::{OciDescriptor, OciImageManifest, OciManifest};
use serde::Deserialize;

use super::{error::ImageError, registry::Registry};

/// An image for this machine.
#[derive(Debug)]
pub(crate) struct Image {
    /// The digest that its name leads to: its own, or that of a list of it for many platforms.
    pub(crate) named: String,
    /// Its own.
    pub(crate) digest: String,
    /// `linux/amd64`.
    pub(crate) platform: String,
    /// The lowest first.
    pub(crate) layers: Vec<OciDescriptor>,
    /// The digest of each when it is not compressed.
    pub(crate) unfolded: Vec<String>,
}

impl Image {
    /// Its digest's digits.
    pub(crate) fn hex(&self) -> &str {
        self.digest.trim_start_matches(SHA256)
    }
}

pub(crate) const SHA256: &str = "sha256:";

/// What is wanted of a config.
#[derive(Debug, Deserialize)]
struct Config {
    architecture: String,
    os: String,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// Asks for the manifest, the one for this machine, and its config.
pub(crate) async fn find(registry: &Registry) -> Result<Image, ImageError> {
    let wanted = format!("linux/{}", architecture(std::env::consts::ARCH));
    let (bytes, named) = registry.manifest(None).await?;
    let (manifest, digest) = match read(&bytes)? {
        OciManifest::Image(manifest) => (manifest, named.clone()),
        OciManifest::ImageIndex(index) => {
            let platforms = index.manifests.iter().filter_map(|entry| {
                let platform = entry.platform.as_ref()?;
                let name = format!("{}/{}", platform.os, platform.architecture);
                Some((name, &entry.digest))
            });
            let platforms: Vec<_> = platforms.collect();
            let ours = platforms.iter().find(|(name, _)| *name == wanted);
            let digest = ours.map(|(_, digest)| (*digest).clone());
            let digest = digest.ok_or_else(|| {
                let all: Vec<&str> = platforms.iter().map(|(name, _)| name.as_str()).collect();
                ImageError::OtherPlatform {
                    wanted: wanted.clone(),
                    has: all.join(", "),
                }
            })?;
            let (bytes, _checked) = registry.manifest(Some(&digest)).await?;
            let OciManifest::Image(manifest) = read(&bytes)? else {
                let what = "a list of lists".to_owned();
                return Err(ImageError::NoImage { what });
            };
            (manifest, digest)
        }
    };
    if !is_sha256(&digest) {
        let what = format!("its digest is {digest}");
        return Err(ImageError::NoImage { what });
    }
    let config = config(registry, &manifest).await?;
    let has = format!("{}/{}", config.os, config.architecture);
    if has != wanted {
        return Err(ImageError::OtherPlatform { wanted, has });
    }
    Ok(Image {
        named,
        digest,
        platform: wanted,
        layers: manifest.layers,
        unfolded: config.rootfs.diff_ids,
    })
}

async fn config(registry: &Registry, manifest: &OciImageManifest) -> Result<Config, ImageError> {
    let bytes = registry.config(&manifest.config).await?;
    let no_image = |what: String| ImageError::NoImage { what };
    let config: Config = serde_json::from_slice(&bytes).map_err(|error| {
        no_image(format!(
            "its config is {}: {error}",
            manifest.config.media_type
        ))
    })?;
    let (layers, said) = (manifest.layers.len(), config.rootfs.diff_ids.len());
    if layers == said {
        Ok(config)
    } else {
        let what = format!("{layers} layers, and a config of {said}");
        Err(no_image(what))
    }
}

fn read(bytes: &[u8]) -> Result<OciManifest, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| ImageError::NoImage {
        what: format!("its manifest cannot be read: {error}"),
    })
}

fn is_sha256(digest: &str) -> bool {
    let hex = digest.strip_prefix(SHA256).unwrap_or_default();
    hex.len() == 64 && hex.bytes().all(|it| it.is_ascii_hexdigit())
}

/// Rust's name of an architecture as images have it, which is Go's.
fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        same => same,
    }
}
