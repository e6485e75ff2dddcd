//! Why an agent cannot be had. Each is one line that ends with what a person does about it.

use std::{io, path::PathBuf};

use crate::Release;
#[cfg(feature = "images")]
use crate::image::ImageError;

/// There is no agent.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nobody says where the cache is.
    #[error("set HOME or XDG_CACHE_HOME: what is built or pulled is kept below it")]
    NoHome,
    /// The cache could not be read or written.
    #[error("could not {what} {}: {source}", path.display())]
    Cache {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file system has too little room.
    #[error("{what} needs {needs} MB at {}, which has {has} MB: make room, or name another folder by {by}", at.display())]
    NoRoom {
        /// What is to be made.
        what: String,
        /// Which folder.
        at: PathBuf,
        /// So many MB.
        needs: u64,
        /// So many MB.
        has: u64,
        /// The environment's variable that says where it is.
        by: &'static str,
    },
    /// An image.
    #[cfg(feature = "images")]
    #[error("{name}: {why}")]
    Image {
        /// As it was asked for.
        name: String,
        /// Why it cannot be had.
        why: ImageError,
    },
    /// The mirrors of registries.
    #[cfg(feature = "images")]
    #[error("{}: {_0}", crate::image::MIRRORS)]
    Mirrors(String),
    /// A file system became full.
    #[error("kube-proxy {release}: the file system is full ({said}): make room, 3 GB are enough")]
    Full {
        /// What was being built.
        release: Release,
        /// As Go said it.
        said: String,
    },
    /// The person ended it.
    #[error("interrupted: nothing is left of what was begun")]
    Interrupted,
    /// There is no Go.
    #[error(
        "there is no Go here to build kube-proxy {release}: install it from https://go.dev/dl, or Debian's package golang-go; \
         1.26 builds every release"
    )]
    NoGo {
        /// What was to be built.
        release: Release,
    },
    /// The Go that is there will not do.
    #[error(
        "kube-proxy {release} asks for Go {asked}, this is {have}: install a newer one from https://go.dev/dl, \
         or set GOTOOLCHAIN=auto, and Go fetches it"
    )]
    OldGo {
        /// What was to be built.
        release: Release,
        /// By its go.mod.
        asked: String,
        /// As `go env GOVERSION` says.
        have: String,
    },
    /// No release is called that.
    #[error(
        "there is no kube-proxy {release} among Go's modules ({said}): \
         `go list -m -versions k8s.io/kubernetes` names releases"
    )]
    NoRelease {
        /// What was asked for.
        release: Release,
        /// As Go said it.
        said: String,
    },
    /// A module that the release needs is not to be had.
    #[error(
        "kube-proxy {release} needs a module that is not to be had ({said}): try again later, or another GOPROXY"
    )]
    NoModule {
        /// What was to be built.
        release: Release,
        /// As Go said it.
        said: String,
    },
    /// Modules cannot be downloaded.
    #[error(
        "Go's modules cannot be downloaded ({said}): the machine needs access to proxy.golang.org, or to what GOPROXY names"
    )]
    NoOrigin {
        /// As Go said it.
        said: String,
    },
    /// Too old to be built of modules.
    #[error(
        "kube-proxy {release} is not built of Go's modules: releases from 1.28 on are, and 1.20.2 from Debian's source"
    )]
    TooOld {
        /// What was asked for.
        release: Release,
    },
    /// A command failed for reasons of its own.
    #[error("kube-proxy {release}: could not {what}: {said}")]
    Failed {
        /// What was to be built.
        release: Release,
        /// What was being done.
        what: &'static str,
        /// As the command said it.
        said: String,
    },
    /// What was built is not what was asked for.
    #[error("kube-proxy {release}: what was built calls itself {said:?}")]
    OtherName {
        /// What was to be built.
        release: Release,
        /// Its words.
        said: String,
    },
}

impl SourceError {
    #[cfg(feature = "images")]
    pub(crate) fn image(name: &str) -> impl FnOnce(ImageError) -> Self {
        let name = name.to_owned();
        move |why| Self::Image { name, why }
    }

    pub(crate) fn cache(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Cache { what, path, source }
    }
}
