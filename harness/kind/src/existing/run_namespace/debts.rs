//! What faults of a run have changed on nodes, undone by whoever finds it noted.

use std::{collections::BTreeMap, fmt::Display};

use chainbreak_engine::cluster::{Debt, Place};
use chainbreak_model::names::NodeName;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::{Api, ResourceExt};

use super::{OWES, RunNamespace};
use crate::{error::KindError, existing::pods, shared::nodes::Node};

/// A debt by its annotation.
type Noted = (String, Result<Debt, String>);

impl RunNamespace {
    /// Undoes all that is noted, the last first; what is undone is noted no longer. The first error of all.
    pub(super) async fn settle(&self, noted: &BTreeMap<String, String>) -> Result<(), KindError> {
        let mut nodes = BTreeMap::new();
        let mut settled = Ok(());
        for (name, debt) in of(noted) {
            let done = async {
                let debt = debt.map_err(|why| KindError::Unable(format!("{name}: {why}")))?;
                self.settle_one(&debt, &mut nodes).await?;
                self.note(&name, None).await
            };
            settled = settled.and(done.await);
        }
        settled
    }

    /// `nodes` are those that were entered already, and those that the cluster no longer has.
    async fn settle_one(
        &self,
        debt: &Debt,
        nodes: &mut BTreeMap<NodeName, Option<Node>>,
    ) -> Result<(), KindError> {
        // What was in a pod is gone with it.
        let Place::Node(name) = &debt.at else {
            return Ok(());
        };
        let unable =
            |why: &dyn Display| KindError::Unable(format!("not undone: {} ({why})", debt.text));
        if !nodes.contains_key(name) {
            let way = Box::pin(self.way_into(name)).await;
            nodes.insert(name.clone(), way.map_err(|error| unable(&error))?);
        }
        let Some(Some(node)) = nodes.get(name) else {
            return Ok(());
        };
        let done = node.feed(&node.words(&debt.command), &debt.input).await;
        done.map(drop).map_err(|error| unable(&error))
    }

    /// Into a node through the run's pod there, which is made anew if it has ended. `None` where the cluster has that node no longer:
    /// what was changed went with it.
    async fn way_into(&self, node: &NodeName) -> Result<Option<Node>, KindError> {
        let on = |pod: &Pod| pod.spec.as_ref().and_then(|it| it.node_name.clone());
        let mut pods = self.pods().await?.into_iter();
        let found = pods.find(|pod| {
            pod.name_any() == node.as_str() || on(pod).as_deref() == Some(node.as_str())
        });
        let lost = || KindError::Unable(format!("the run's pod on {node} is gone"));
        let pod = found.ok_or_else(lost)?;
        let registered = on(&pod).ok_or_else(lost)?;
        let all = Api::<NodeObject>::all(self.client.clone());
        let there = all.get_opt(&registered).await;
        let there = there.map_err(KindError::api(format!("look for {registered}")))?;
        if there.is_none() {
            return Ok(None);
        }
        let way = pods::again(&self.client, &self.run, pod, &self.enter).await;
        way.map(Some)
    }
}

/// The last first.
fn of(noted: &BTreeMap<String, String>) -> Vec<Noted> {
    let debts = noted.iter().filter_map(|(name, text)| {
        let number: u64 = name.strip_prefix(OWES)?.parse().ok()?;
        let debt = serde_json::from_str(text).map_err(|error| error.to_string());
        Some((number, (name.clone(), debt)))
    });
    let mut debts: Vec<(u64, Noted)> = debts.collect();
    debts.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    debts.into_iter().map(|(_, debt)| debt).collect()
}

#[cfg(test)]
mod tests {
    use chainbreak_engine::cluster::Command;
    use kube::api::PostParams;
    use serde_json::json;

    use super::*;
    use crate::served;

    fn noted(debts: &[(u64, &str)]) -> BTreeMap<String, String> {
        let annotation = |(number, text): &(u64, &str)| {
            let debt = Debt {
                text: (*text).to_owned(),
                at: Place::Node("n1".into()),
                command: Command::Probe,
                input: String::new(),
            };
            let debt = serde_json::to_string(&debt).unwrap();
            (format!("{OWES}{number}"), debt)
        };
        debts.iter().map(annotation).collect()
    }

    #[test]
    fn what_was_noted_last_is_undone_first() {
        let mut noted = noted(&[(2, "second"), (10, "last"), (0, "first")]);
        noted.insert("somebody.else/owes-3".to_owned(), "his own".to_owned());
        let texts = of(&noted).into_iter().map(|(_, debt)| debt.unwrap().text);
        assert_eq!(texts.collect::<Vec<_>>(), ["last", "second", "first"]);
    }

    #[tokio::test]
    async fn what_cannot_be_undone_is_named_and_what_cannot_be_read_keeps_nothing_from_it() {
        let run = RunNamespace::of(&served::api(), "chainbreak-a", Vec::new());
        let mut noted = noted(&[(0, "the route is as before")]);
        let why = run.settle(&noted).await.unwrap_err().to_string();
        let words = "not undone: the route is as before (the run's pod on n1 is gone)";
        assert!(why.contains(words), "{why}");
        noted.insert(format!("{OWES}1"), "nonsense".to_owned());
        let why = run.settle(&noted).await.unwrap_err().to_string();
        assert!(why.contains("owes-1: expected"), "{why}");
    }

    #[tokio::test]
    async fn what_was_changed_on_a_node_that_is_gone_is_gone_with_it() {
        let client = served::api();
        let run = RunNamespace::of(&client, "chainbreak-a", Vec::new());
        let pod = json!({
            "metadata": { "name": "n1" },
            "spec": { "nodeName": "worker", "containers": [{ "name": "node", "image": "it" }] },
        });
        let pods = Api::<Pod>::namespaced(client, "chainbreak-a");
        let pod = serde_json::from_value(pod).unwrap();
        let begun = run.make("chainbreak-a", json!({})).await;
        assert!(begun.unwrap());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        run.settle(&noted(&[(0, "the route is as before")]))
            .await
            .unwrap();
    }
}
