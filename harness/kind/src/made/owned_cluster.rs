//! A cluster that this process makes, uses and deletes.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    error::KindError,
    made::{docker, journal::Used},
    name::ClusterName,
    tool::Tool,
};

/// What deleting may take.
const DELETE: Duration = Duration::from_secs(120);

/// See the module.
#[derive(Debug)]
pub(crate) struct OwnedCluster {
    pub(crate) name: ClusterName,
    /// Of a cluster that is kept for whoever needs the same one.
    keep: AtomicBool,
    /// Until it is deleted.
    used: Mutex<Option<Used>>,
}

impl OwnedCluster {
    pub(crate) fn new(name: ClusterName, used: Used, keep: bool) -> Self {
        Self {
            name,
            keep: AtomicBool::new(keep),
            used: Mutex::new(Some(used)),
        }
    }

    /// Whether the cluster outlives its case.
    pub(crate) fn is_kept(&self) -> bool {
        self.keep.load(Ordering::Relaxed)
    }

    /// The cluster is no longer what its name says.
    pub(crate) fn keep_no_longer(&self) {
        self.keep.store(false, Ordering::Relaxed);
    }

    /// Deletes the cluster, once.
    pub(crate) async fn delete(&self) -> Result<(), KindError> {
        let used = self.lock().take();
        match used {
            Some(used) => {
                delete(&self.name).await?;
                used.forget()
            }
            None => Ok(()),
        }
    }

    /// Nothing was made.
    pub(crate) fn release(&self) -> Result<(), KindError> {
        self.lock().take().map_or(Ok(()), |used| {
            // What the journal had before is not ours to forget.
            if used.was_ours { Ok(()) } else { used.forget() }
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Used>> {
        self.used
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Runs kind on a cluster. It writes into the person's kubeconfig otherwise: what we need of it we ask for.
pub(super) async fn kind(
    within: Duration,
    name: &ClusterName,
    words: &[&str],
    input: impl Into<Vec<u8>>,
) -> Result<(), KindError> {
    let nowhere =
        tempfile::NamedTempFile::new().map_err(KindError::file("make", "a kubeconfig"))?;
    let kubeconfig = nowhere.path().display().to_string();
    let where_to = ["--name", name.as_str(), "--kubeconfig", &kubeconfig];
    let argv = [&["kind"], words, &where_to].concat();
    let run = Tool::new(within, argv).reading(input).output();
    run.await.map(drop)
}

/// Deletes a cluster of ours and what stands beside it, whatever is left of them.
pub(crate) async fn delete(name: &ClusterName) -> Result<(), KindError> {
    let deleted = kind(DELETE, name, &["delete", "cluster"], Vec::new()).await;
    // After the nodes: what was just being made is there by now.
    docker::remove(&docker::beside(name).await?).await?;
    deleted?;
    let nodes = docker::containers(name).await?;
    let mut names: Vec<String> = nodes.into_iter().map(|container| container.name).collect();
    names.extend(docker::beside(name).await?);
    if names.is_empty() {
        return Ok(());
    }
    Err(KindError::Unable(format!(
        "containers are left behind: {}",
        names.join(", ")
    )))
}
