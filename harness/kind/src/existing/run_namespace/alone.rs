//! Runs in a cluster keep to themselves, and may go on beside each other, apart from one that may disturb the cluster: it waits
//! until no other is there, and all others wait for it. A namespace is the sign of it, since Kubernetes makes one of a name.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt, api::ListParams};
use serde_json::json;

use super::{PROCESS, RUN, RunNamespace};
use crate::{error::KindError, wait};

/// The namespace that the run has which may disturb the cluster.
pub(crate) const ALONE: &str = "chainbreak-alone";

impl RunNamespace {
    /// For whom this run has to wait, in words.
    pub(super) async fn in_the_way(&self, disturbing: bool) -> Result<Option<String>, KindError> {
        match self.disturber().await? {
            None if disturbing => self.another().await,
            other => Ok(other),
        }
    }

    /// Waits until this run alone uses the cluster, and keeps others off.
    pub(super) async fn wait_to_be_alone(&self, patience: Duration) -> Result<(), KindError> {
        let look = || async {
            let said = |error: KindError| error.to_string();
            if !self.make(ALONE, json!({})).await.map_err(said)? {
                match self.holder().await.map_err(said)? {
                    Some(holder) if self.is_ours(&holder) => {}
                    Some(holder) => return Err(disturbs(&holder)),
                    None => return Err("it was just given back".to_owned()),
                }
            }
            match self.another().await.map_err(said)? {
                Some(other) => Err(other),
                None => Ok(()),
            }
        };
        let what = "no other run uses the cluster";
        wait::until(what, patience, look, wait::nothing).await
    }

    /// Waits until no other run may disturb the cluster.
    pub(super) async fn wait_for_peace(&self, patience: Duration) -> Result<(), KindError> {
        let look = || async {
            let found = self.disturber().await.map_err(|error| error.to_string())?;
            found.map_or(Ok(()), Err)
        };
        let what = "no other run may disturb the cluster";
        wait::until(what, patience, look, wait::nothing).await
    }

    /// Another run that may disturb the cluster, in words.
    pub(super) async fn disturber(&self) -> Result<Option<String>, KindError> {
        let other = self.holder().await?.filter(|it| !self.is_ours(it));
        Ok(other.map(|it| disturbs(&it)))
    }

    async fn holder(&self) -> Result<Option<Namespace>, KindError> {
        let alone = self.all().get_opt(ALONE).await;
        alone.map_err(KindError::api(format!("look for the namespace {ALONE}")))
    }

    fn is_ours(&self, namespace: &Namespace) -> bool {
        namespace.labels().get(RUN) == Some(&self.run)
    }

    /// Another run that has begun to use the cluster, in words.
    async fn another(&self) -> Result<Option<String>, KindError> {
        let listed = self.all().list(&ListParams::default().labels(RUN)).await;
        let listed = listed.map_err(KindError::api("look for namespaces of runs"))?;
        let own = |it: &&Namespace| {
            let run = it.labels().get(RUN);
            run == Some(&it.name_any()) && run != Some(&self.run)
        };
        let other = listed.items.iter().find(own);
        Ok(other.map(|it| format!("{} uses it", named(it))))
    }
}

fn disturbs(holder: &Namespace) -> String {
    format!("{} may disturb it", named(holder))
}

/// Whose a namespace is.
fn named(namespace: &Namespace) -> String {
    let run = namespace
        .labels()
        .get(RUN)
        .map_or("somebody", String::as_str);
    match namespace.annotations().get(PROCESS) {
        Some(process) => format!("the run {run}, process {process},"),
        None => format!("the run {run}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::{existing::run_namespace::leftovers, served};

    const SOON: Duration = Duration::from_millis(600);
    const LONG: Duration = Duration::from_secs(60);

    /// It begins as cases do that change nothing beside their objects.
    async fn begins(run: &RunNamespace, disturbing: bool) -> Result<(), KindError> {
        let case = crate::existing::rewrite::tests::case();
        run.begin(&case, disturbing, LONG, &|_| {}).await
    }

    #[tokio::test]
    async fn runs_that_keep_to_themselves_go_on_beside_each_other() {
        let client = served::api();
        for run in ["chainbreak-a", "chainbreak-b"] {
            let run = RunNamespace::of(&client, run, Vec::new());
            begins(&run, false).await.unwrap();
        }
    }

    #[tokio::test]
    async fn one_that_may_disturb_the_cluster_waits_for_others_and_they_for_it() {
        let client = served::api();
        let [calm, loud, late] = ["chainbreak-a", "chainbreak-b", "chainbreak-c"]
            .map(|run| RunNamespace::of(&client, run, Vec::new()));
        begins(&calm, false).await.unwrap();
        let mut waiting = Box::pin(begins(&loud, true));
        assert!(timeout(SOON, &mut waiting).await.is_err());
        let mut later = Box::pin(begins(&late, false));
        assert!(timeout(SOON, &mut later).await.is_err(), "it came later");
        calm.end().await.unwrap();
        waiting.await.unwrap();
        assert!(timeout(SOON, &mut later).await.is_err(), "it goes on");
        loud.end().await.unwrap();
        later.await.unwrap();
    }

    #[tokio::test]
    async fn of_two_that_may_disturb_it_one_waits_and_leaves_the_other_alone() {
        let client = served::api();
        let [one, other] =
            ["chainbreak-a", "chainbreak-b"].map(|run| RunNamespace::of(&client, run, Vec::new()));
        begins(&one, true).await.unwrap();
        assert!(timeout(SOON, begins(&other, true)).await.is_err());
        other.end().await.unwrap();
        let left = leftovers(&client).await.unwrap();
        let runs: Vec<&str> = left.iter().map(|it| it.run.as_str()).collect();
        assert_eq!(runs, ["chainbreak-a"]);
        assert_eq!(left[0].alive, Some(true));
    }

    #[tokio::test]
    async fn what_was_killed_while_it_waited_is_found() {
        let client = served::api();
        let run = RunNamespace::of(&client, "chainbreak-a", Vec::new());
        run.wait_to_be_alone(LONG).await.unwrap();
        let left = leftovers(&client).await.unwrap();
        assert_eq!(left[0].run, "chainbreak-a");
        assert_eq!(
            left[0].alive,
            Some(true),
            "by the one namespace that it has"
        );
    }
}
