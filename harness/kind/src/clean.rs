//! What runs that were killed have left: clusters that no process uses.

use std::collections::BTreeSet;

use crate::{docker, error::KindError, holding, journal::Journal, name::ClusterName};

/// Clusters of ours that nobody uses, by name: those of the journal, and those that Docker has with our mark. Where the journal has
/// none, a Docker that does not answer has none either: most machines have no use for one.
pub async fn left(journal: &Journal) -> Result<Vec<ClusterName>, KindError> {
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
        let containers = docker::containers(&name).await?;
        let Some(first) = containers.first() else {
            continue;
        };
        if !journal.is_used(&name)? && docker::is_ours(&first.name, &name).await? {
            left.insert(name);
        }
    }
    Ok(left.into_iter().collect())
}

/// Deletes one of them; it is an error if somebody uses it meanwhile.
pub async fn remove(journal: &Journal, name: &ClusterName) -> Result<(), KindError> {
    let used = journal.begin(name)?;
    holding::delete(name).await?;
    used.forget()
}
