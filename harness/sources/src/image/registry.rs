//! What a registry is asked for: a manifest, a config, a layer. What it sends is held to its digest and its size.

use std::{error::Error, fs::File, io::Write, time::Duration};

use docker_credential::DockerCredential;
use futures::StreamExt;
use oci_client::{
    Client, Reference, RegistryOperation,
    client::ClientConfig,
    errors::{DigestError, OciDistributionError, OciErrorCode},
    manifest::{
        IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE,
        OCI_IMAGE_MEDIA_TYPE, OciDescriptor,
    },
    secrets::RegistryAuth,
};
use rustls::crypto::{CryptoProvider, ring};

use super::{Mirrors, error::ImageError};

const MANIFESTS: [&str; 4] = [
    OCI_IMAGE_INDEX_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE,
    IMAGE_MANIFEST_MEDIA_TYPE,
];
/// A registry that says nothing for so long says nothing any more.
const PATIENCE: Duration = Duration::from_secs(60);
/// Far more than a config takes.
const CONFIG: i64 = 1 << 22;

/// Who a person is to a registry, by its host.
pub type Credentials = fn(&str) -> RegistryAuth;

/// As `docker login` left it, and else nobody.
pub fn of_docker(host: &str) -> RegistryAuth {
    // The name that Docker has kept for its own.
    let host = match host {
        "index.docker.io" => "https://index.docker.io/v1/",
        _ => host,
    };
    match docker_credential::get_credential(host) {
        Ok(DockerCredential::UsernamePassword(user, password)) => {
            RegistryAuth::Basic(user, password)
        }
        Ok(DockerCredential::IdentityToken(_)) => {
            tracing::warn!(host, "an identity token is not a password: asked as nobody");
            RegistryAuth::Anonymous
        }
        Err(error) => {
            tracing::debug!(host, %error, "no credentials");
            RegistryAuth::Anonymous
        }
    }
}

/// A registry that has let us in.
pub(crate) struct Registry {
    client: Client,
    /// The image, where it is asked for.
    image: Reference,
    auth: RegistryAuth,
}

impl Registry {
    /// Goes to where the image is.
    pub(crate) async fn of(
        image: &Reference,
        mirrors: &Mirrors,
        credentials: Credentials,
    ) -> Result<Self, ImageError> {
        let (image, protocol) = mirrors.way_to(image);
        if CryptoProvider::get_default().is_none() {
            // Another thread may have been as quick, with the same one.
            drop(ring::default_provider().install_default());
        }
        let config = ClientConfig {
            protocol,
            connect_timeout: Some(PATIENCE),
            read_timeout: Some(PATIENCE),
            ..ClientConfig::default()
        };
        let auth = credentials(image.resolve_registry());
        let meaning = |error| meaning(&image, error);
        let client = Client::try_from(config).map_err(meaning)?;
        let let_in = client.auth(&image, &auth, RegistryOperation::Pull).await;
        let_in.map_err(meaning)?;
        Ok(Self {
            client,
            image,
            auth,
        })
    }

    /// The manifest that the image's name leads to, or that with another digest beside it; with its digest.
    pub(crate) async fn manifest(
        &self,
        digest: Option<&str>,
    ) -> Result<(Vec<u8>, String), ImageError> {
        let image = match digest {
            Some(digest) => self.image.clone_with_digest(digest.to_owned()),
            None => self.image.clone(),
        };
        let pulled = self
            .client
            .pull_manifest_raw(&image, &self.auth, &MANIFESTS);
        let (bytes, digest) = pulled.await.map_err(|error| self.meaning(error))?;
        Ok((bytes.into(), digest))
    }

    /// The config of an image.
    pub(crate) async fn config(&self, described: &OciDescriptor) -> Result<Vec<u8>, ImageError> {
        if described.size > CONFIG {
            let what = format!("a config of {} bytes", described.size);
            return Err(ImageError::NoImage { what });
        }
        let mut config = Vec::new();
        self.blob(described, &mut config).await?;
        Ok(config)
    }

    /// A layer of an image, into a file.
    pub(crate) async fn layer(
        &self,
        described: &OciDescriptor,
        into: &mut File,
    ) -> Result<(), ImageError> {
        self.blob(described, into).await
    }

    /// As many bytes as are described, and with that digest.
    async fn blob(
        &self,
        described: &OciDescriptor,
        into: &mut impl Write,
    ) -> Result<(), ImageError> {
        // Not from where a manifest says that it is as well.
        let described = OciDescriptor {
            urls: None,
            ..described.clone()
        };
        let size = u64::try_from(described.size).unwrap_or_default();
        let other = |sent: String| ImageError::OtherSize {
            host: self.image.resolve_registry().to_owned(),
            digest: described.digest.clone(),
            size,
            sent,
        };
        let pulled = self.client.pull_blob_stream(&self.image, &described).await;
        let mut parts = pulled.map_err(|error| self.meaning(error))?;
        let mut sent = 0;
        while let Some(part) = parts.next().await {
            let part = part.map_err(|error| self.meaning(error.into()))?;
            sent += part.len() as u64;
            if sent > size {
                return Err(other(format!("more than {size}")));
            }
            into.write_all(&part).map_err(ImageError::Keep)?;
        }
        if sent < size {
            return Err(other(sent.to_string()));
        }
        Ok(())
    }

    fn meaning(&self, error: OciDistributionError) -> ImageError {
        meaning(&self.image, error)
    }
}

/// What a failure means to whoever wants the image.
fn meaning(image: &Reference, error: OciDistributionError) -> ImageError {
    use OciDistributionError as Oci;
    let host = image.resolve_registry().to_owned();
    let said = innermost(&error);
    match error {
        Oci::IoError(error) => match error.downcast::<DigestError>() {
            Ok(error) => wrong_digest(host, error),
            Err(_) => ImageError::Unreachable { host, said },
        },
        Oci::DigestError(error) => wrong_digest(host, error),
        Oci::RequestError(_) => ImageError::Unreachable { host, said },
        Oci::UnauthorizedError { .. } | Oci::AuthenticationFailure(_) => {
            ImageError::Unauthorized { host }
        }
        Oci::ImageManifestNotFoundError(_) | Oci::ServerError { code: 404, .. } => {
            ImageError::NotThere { host }
        }
        Oci::ServerError {
            code: 401 | 403, ..
        } => ImageError::Unauthorized { host },
        Oci::ServerError { code: 429, .. } => ImageError::TooOften { host },
        Oci::RegistryError { envelope, .. } => {
            let has = |codes: &[OciErrorCode]| {
                let mut errors = envelope.errors.iter();
                errors.any(|error| codes.contains(&error.code))
            };
            if has(&[OciErrorCode::Unauthorized, OciErrorCode::Denied]) {
                ImageError::Unauthorized { host }
            } else if has(&[OciErrorCode::Toomanyrequests]) {
                ImageError::TooOften { host }
            } else if has(&[
                OciErrorCode::ManifestUnknown,
                OciErrorCode::NameUnknown,
                OciErrorCode::NotFound,
                OciErrorCode::BlobUnknown,
            ]) {
                ImageError::NotThere { host }
            } else {
                ImageError::Registry { host, said }
            }
        }
        _ => ImageError::Registry { host, said },
    }
}

fn wrong_digest(host: String, error: DigestError) -> ImageError {
    match error {
        DigestError::VerificationError { expected, actual } => ImageError::OtherDigest {
            host,
            expected,
            actual,
        },
        error => ImageError::Registry {
            host,
            said: error.to_string(),
        },
    }
}

/// The cause of all causes, on one line: `Connection refused (os error 111)`.
fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let words = last.to_string();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
