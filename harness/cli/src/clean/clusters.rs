//! What killed runs left of real clusters, and in them.

use chainbreak_kind::{
    clean,
    existing::{self, Existing},
    journal::Journal,
};

use crate::args;

/// Deletes clusters that no run uses, and clears the one that is named. Whether there was anything.
pub(super) async fn clear(args: &args::Clean) -> anyhow::Result<bool> {
    let mut found = false;
    let journal = Journal::of_user();
    for cluster in clean::left(&journal).await? {
        found = true;
        let beside = clean::remove(&journal, &cluster).await?;
        crate::say(&format!(
            "deleted the cluster {cluster}, which no run uses\n"
        ))?;
        for container in beside {
            crate::say(&format!("removed {container}, which stood beside it\n"))?;
        }
    }
    if let Some(kubeconfig) = &args.kubeconfig {
        let existing = Existing::new(kubeconfig.clone(), args.context.clone());
        found |= in_cluster(&existing).await?;
    }
    Ok(found)
}

/// Removes what runs that are gone have left in a cluster, and names what is others'. Whether there was anything.
async fn in_cluster(cluster: &Existing) -> anyhow::Result<bool> {
    let leftovers = existing::leftovers(cluster).await?;
    for leftover in &leftovers {
        let run = &leftover.run;
        let said = match leftover.alive {
            Some(true) => format!("{run} is in use by a run on this machine\n"),
            Some(false) => {
                existing::remove(cluster, leftover).await?;
                format!("removed {run}, which no run uses, from the cluster\n")
            }
            None => format!(
                "{run} is of another machine: `chainbreak clean` removes it there, or \
                 `kubectl delete namespaces -l chainbreak.dev/run={run}`\n"
            ),
        };
        crate::say(&said)?;
    }
    Ok(!leftovers.is_empty())
}
