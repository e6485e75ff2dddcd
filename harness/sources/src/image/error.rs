//! Why an image cannot be had. Each reads after its name, and ends with what a person does about it.

use std::{io, path::Path};

use chainbreak_model::names::AgentName;

use super::{mirrors::MIRRORS, unpack::LayerError};

/// There is no such image, or it is not to be trusted, or none of an agent.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Its name.
    #[error("it is no name of an image ({0}): write HOST/NAME:TAG or HOST/NAME@sha256:…")]
    Name(String),
    /// The registry has none of that name.
    #[error("{host} has no such image: look at its name and its tag")]
    NotThere {
        /// Who was asked.
        host: String,
    },
    /// The registry does not give it to us.
    #[error(
        "{host} gives it to nobody unknown, or does not have it: look at its name, or log in (`docker login {host}`)"
    )]
    Unauthorized {
        /// Who was asked.
        host: String,
    },
    /// The registry has had enough.
    #[error("{host} was asked too often: try again later, log in, or name a mirror in {MIRRORS}")]
    TooOften {
        /// Who was asked.
        host: String,
    },
    /// No answer.
    #[error(
        "{host} cannot be reached ({said}): the machine needs access to it, or to a mirror, \
         {MIRRORS}=REGISTRY=http://HOST:PORT"
    )]
    Unreachable {
        /// Who was asked.
        host: String,
        /// As the system says it.
        said: String,
    },
    /// An answer that is none of a registry.
    #[error("{host} does not answer as a registry does ({said}): try again, or another mirror")]
    Registry {
        /// Who was asked.
        host: String,
        /// Its words.
        said: String,
    },
    /// What came is not what was asked for.
    #[error(
        "{host} sent {actual} in place of {expected}: nothing of it is used; try again, or another mirror"
    )]
    OtherDigest {
        /// Who sent it.
        host: String,
        /// What was asked for.
        expected: String,
        /// What came.
        actual: String,
    },
    /// As long as the manifest says.
    #[error(
        "{host} sent {sent} bytes of {digest}, its manifest says {size}: nothing of it is used; try again, or another mirror"
    )]
    OtherSize {
        /// Who sent it.
        host: String,
        /// Of what.
        digest: String,
        /// By the manifest.
        size: u64,
        /// What came.
        sent: String,
    },
    /// For other machines.
    #[error("it has nothing for {wanted}, which this machine is: it has {has}")]
    OtherPlatform {
        /// This one's.
        wanted: String,
        /// Its own.
        has: String,
    },
    /// Something else than an image.
    #[error(
        "it is no image of a container ({what}): give one that has kube-proxy or calico-node in it"
    )]
    NoImage {
        /// What it is.
        what: String,
    },
    /// A layer.
    #[error("layer {number} of {of} ({digest}): {why}")]
    Layer {
        /// The lowest is 1.
        number: usize,
        /// How many it has.
        of: usize,
        /// Its own.
        digest: String,
        /// What is wrong with it.
        why: String,
    },
    /// The cache has no room.
    #[error(
        "the file system of the cache is full: make room, or name another folder by XDG_CACHE_HOME"
    )]
    Full,
    /// The cache cannot be written.
    #[error("could not keep it: {0}")]
    Keep(io::Error),
    /// It has nothing to do with us.
    #[error(
        "there is neither kube-proxy nor calico-node in it: give an image of one, as registry.k8s.io/kube-proxy:v1.34.2"
    )]
    NoAgent,
    /// The program in it is another one than its tag says.
    #[error(
        "its {agent} is {has}, not {wanted}: give the image by its name, as image:NAME, if you want that one"
    )]
    OtherVersion {
        /// Which agent.
        agent: AgentName,
        /// As the program says it.
        has: String,
        /// As was asked for.
        wanted: String,
    },
    /// The program in it does not say which one it is.
    #[error("its {agent} does not say which version it is: {said}")]
    Unknown {
        /// What it is for.
        agent: AgentName,
        /// In its place.
        said: String,
    },
}

impl ImageError {
    pub(crate) fn layer(
        (number, of): (usize, usize),
        digest: &str,
    ) -> impl FnOnce(LayerError) -> Self {
        let digest = digest.to_owned();
        move |error| {
            let source = match &error {
                LayerError::Write(source) | LayerError::Entry { source, .. } => Some(source),
                _ => None,
            };
            if source.is_some_and(is_full) {
                return Self::Full;
            }
            Self::Layer {
                number,
                of,
                digest,
                why: error.to_string(),
            }
        }
    }

    /// What could not be done in the cache.
    pub(crate) fn keep(source: io::Error) -> Self {
        if is_full(&source) {
            Self::Full
        } else {
            Self::Keep(source)
        }
    }

    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            let kind = source.kind();
            Self::keep(io::Error::new(
                kind,
                format!("{}: {source}", path.display()),
            ))
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}
