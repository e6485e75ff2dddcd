//! What runs that were killed have left: clusters that no process uses.

use std::collections::BTreeSet;

use crate::{
    error::KindError,
    made::{docker, journal::Journal, owned_cluster},
    name::ClusterName,
};

/// Clusters of ours that nobody uses, by name: those of the journal, and those that Docker has with our mark. Where the journal has
/// none, a Docker that does not answer has none either: most machines have no use for one.
pub(super) async fn left(journal: &Journal) -> Result<Vec<ClusterName>, KindError> {
    let mut left: BTreeSet<ClusterName> = journal.unused()?.into_iter().collect();
    let standing = match docker::clusters().await {
        Ok(standing) => standing,
        Err(error) if left.is_empty() => {
            tracing::debug!(%error, "nobody was asked for clusters");
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    for name in standing {
        if !journal.is_used(&name)? && is_ours(&name).await? {
            left.insert(name);
        }
    }
    Ok(left.into_iter().collect())
}

/// Whether a node has our mark, or something beside it: that has it as a label.
async fn is_ours(name: &ClusterName) -> Result<bool, KindError> {
    if !docker::beside(name).await?.is_empty() {
        return Ok(true);
    }
    match docker::containers(name).await?.first() {
        Some(first) => docker::is_ours(&first.name, name).await,
        None => Ok(false),
    }
}

/// Deletes one of them, and tells which containers stood beside it; it is an error if somebody uses it meanwhile.
pub(super) async fn remove(
    journal: &Journal,
    name: &ClusterName,
) -> Result<Vec<String>, KindError> {
    let used = journal.begin(name)?;
    let beside = docker::beside(name).await?;
    owned_cluster::delete(name).await?;
    used.forget()?;
    Ok(beside)
}
