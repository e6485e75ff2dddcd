//! What can go wrong with a real cluster, and the evidence for it.

use std::{io, path::PathBuf, time::Duration};

use chainbreak_engine::backend::BackendError;

use crate::{name::ClusterName, versions::Version};

/// The world failed. Never says anything about the product under test. One line, and below it what the
/// programs said.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// The pins of this program are wrong.
    #[error("clusters/versions.yaml: {0}")]
    Pins(serde_yaml::Error),
    /// A program could not be started.
    #[error("could not start `{program}`: {source}\n{mend}")]
    Start {
        /// Which one.
        program: String,
        /// Why not.
        source: io::Error,
        /// What to do about it.
        mend: &'static str,
    },
    /// A program failed.
    #[error("`{line}` failed with {status}\n{said}")]
    Failed {
        /// The command line.
        line: String,
        /// Its exit status.
        status: String,
        /// The end of what it said.
        said: String,
    },
    /// A program did not end in time, and was killed.
    #[error("`{line}` took more than {within:?}")]
    Late {
        /// The command line.
        line: String,
        /// The deadline.
        within: Duration,
    },
    /// The kind that is here is too old.
    #[error(
        "kind {found} is here, {wanted} or newer is needed\nsee https://kind.sigs.k8s.io/docs/user/quick-start"
    )]
    OldKind {
        /// Which one is here.
        found: String,
        /// The oldest that will do.
        wanted: Version,
    },
    /// There is a cluster of that name that is not ours.
    #[error(
        "a cluster {name} is there that chainbreak did not make: it is not touched\nremove it yourself: kind delete cluster --name {name}"
    )]
    Foreign {
        /// Its name.
        name: ClusterName,
    },
    /// Another run uses the cluster.
    #[error("the cluster {name} is in use by process {pid}")]
    InUse {
        /// Its name.
        name: ClusterName,
        /// The process of the other run.
        pid: u32,
    },
    /// A case asks for what no real cluster here can be.
    #[error("{0}")]
    Unable(String),
    /// Docker did not do something with a container beside a cluster.
    #[error("could not {doing}: {}", causes(source.as_ref()))]
    Container {
        /// What was being done.
        doing: String,
        /// What it said.
        source: Box<testcontainers::TestcontainersError>,
    },
    /// The image is not here and cannot be had.
    #[error("there is no image {image} here, and it cannot be pulled\n{said}")]
    Image {
        /// Which one.
        image: String,
        /// What Docker said.
        said: String,
    },
    /// Something did not come about in time.
    #[error("waited {within:.0?} until {what}: {missing}\n{evidence}")]
    Wait {
        /// What was waited for.
        what: String,
        /// For how long.
        within: Duration,
        /// What was still missing.
        missing: String,
        /// What the cluster says of it.
        evidence: String,
    },
    /// The Kubernetes API refused something, or did not answer.
    #[error("could not {doing}: {source}")]
    Api {
        /// What was being done.
        doing: String,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// Nobody answers where the kubeconfig says that the cluster is.
    #[error("could not reach the cluster {name} at {server}: {why}")]
    Unreachable {
        /// The kubeconfig's name of it.
        name: String,
        /// Where its API should be.
        server: String,
        /// Why not.
        why: String,
    },
    /// The kubeconfig cannot be used.
    #[error("could not use the kubeconfig {}: {why}", path.display())]
    Kubeconfig {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A manifest cannot be used.
    #[error("could not use {origin}: {why}")]
    Manifest {
        /// Where it is from.
        origin: String,
        /// Why not.
        why: String,
    },
    /// A file of ours.
    #[error("could not {doing} {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// An error with everything that it came from, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        // Some errors say their cause themselves.
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

impl KindError {
    pub(crate) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Api {
            doing,
            source: Box::new(source),
        }
    }

    pub(crate) fn container(
        doing: impl Into<String>,
    ) -> impl FnOnce(testcontainers::TestcontainersError) -> Self {
        let doing = doing.into();
        move |source| Self::Container {
            doing,
            source: Box::new(source),
        }
    }

    pub(crate) fn file(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }
}

impl From<KindError> for BackendError {
    fn from(error: KindError) -> Self {
        Self(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use testcontainers::TestcontainersError;

    use super::*;

    #[test]
    fn what_docker_did_not_do_is_told_with_its_own_words() {
        let why = TestcontainersError::other("Conflict. The container name is already in use");
        let error = KindError::container("start the container chainbreak-0f-host-db")(why);
        assert_eq!(
            error.to_string().lines().next().unwrap_or_default(),
            "could not start the container chainbreak-0f-host-db: other error: Conflict. The container name is already in use"
        );
    }
}
