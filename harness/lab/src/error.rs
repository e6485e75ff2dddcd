//! What can go wrong while a world is raised, and where.

use std::{io, net::SocketAddr, path::PathBuf};

use chainbreak_model::names::AgentName;

/// The world failed. Never says anything about the product under test.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// New namespaces were refused, or a process could not be started in them.
    #[error("could not {what}: {source}{}", limit(source))]
    Isolate {
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The world's file system could not be put together.
    #[error("could not {what} {}: {source}", target.display())]
    FileSystem {
        /// What was being done.
        what: &'static str,
        /// Where, as the world sees it.
        target: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The parent gave no order, or one that is none.
    #[error("no order on standard input: {what}")]
    Order {
        /// What came instead.
        what: String,
    },
    /// The worker process could not be started.
    #[error("could not start {}: {source}", program.display())]
    Spawn {
        /// Which program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A place could not be made.
    #[error("could not make the place {place}: {what}: {source}")]
    Place {
        /// Which one.
        place: String,
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Links, addresses or routes were refused.
    #[error("could not wire {what}: {stderr}")]
    Wire {
        /// Which part of the world.
        what: String,
        /// What `ip` said.
        stderr: String,
    },
    /// A kernel setting could not be written.
    #[error("could not write {value} to {}: {source}", path.display())]
    Sysctl {
        /// Which one.
        path: PathBuf,
        /// The wanted value.
        value: String,
        /// Why not.
        source: io::Error,
    },
    /// The Kubernetes API cannot be reached by anybody.
    #[error("could not listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The Kubernetes API refused something that raising a world needs.
    #[error("could not {what}: {source}")]
    Api {
        /// What was being done.
        what: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// The case asks for more than the lab can give.
    #[error("{what}")]
    Unable {
        /// What is asked for and what the limit is.
        what: String,
    },
    /// What was given for an agent cannot be one.
    #[error("cannot use {} as {agent}: {why}", path.display())]
    Agent {
        /// Which one.
        agent: AgentName,
        /// A binary's path, or a root file system's.
        path: PathBuf,
        /// On its first line why, with evidence below.
        why: String,
    },
    /// A setting of the machine, or the journal of its changes, could not be used.
    #[error("could not {what} {}: {source}", path.display())]
    Machine {
        /// What was being done.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No world, or none that has the place.
    #[error("{what}")]
    NotThere {
        /// What is not there, and how to find what is.
        what: String,
    },
    /// The record of a kept world could not be used.
    #[error("could not {what} {}: {source}", path.display())]
    Keep {
        /// What was being done.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// For what may fail without harm, mostly because its object is gone already; `what` says it in a
/// debug log.
pub(crate) fn tolerate<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) {
    if let Err(error) = result {
        tracing::debug!(%error, "{what}");
    }
}

/// What the kernel says of a limit of namespaces sounds like a full disk.
fn limit(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            " (no disk: a limit of namespaces, which `sysctl --pattern 'user.max_.*_namespaces'` shows)"
        }
        _ => "",
    }
}

impl LabError {
    /// For `map_err` after a namespace operation.
    pub(crate) fn isolate<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Isolate {
            what,
            source: source.into(),
        }
    }
}
