//! Steps that have a name: the timeline has a mark before such a step and one behind it, so that promises can be about the
//! time between, or about what comes after.

use std::collections::BTreeMap;

use super::{Case, Fault, Promise, Step, Versions};
use crate::names::{MarkName, NodeName};

impl Case {
    /// When a promise is judged, where that is during a step that has a name, or after it: `during upgrade kube-proxy
    /// 1.32 → 1.33`.
    pub fn when(&self, promise: &Promise) -> Option<String> {
        let begins = promise.begins()?;
        let steps = self.named_steps();
        if let Some(step) = begins.of_over() {
            return steps.get(&step).map(|words| format!("after {words}"));
        }
        let whole = promise.window.until.as_ref() == Some(&begins.over());
        let words = steps.get(begins).filter(|_| whole);
        words.map(|words| format!("during {words}"))
    }

    /// What the timeline's steps that have a name do, in words.
    fn named_steps(&self) -> BTreeMap<MarkName, String> {
        let mut versions = Versions::of(&self.cluster);
        let mut named = BTreeMap::new();
        let mut steps = self.timeline.iter().peekable();
        while let Some(step) = steps.next() {
            let words = words(step, &mut versions);
            if let (Some(words), Some(Step::Mark(over))) = (words, steps.peek())
                && let Some(name) = over.of_over()
            {
                named.insert(name, words);
            }
        }
        named
    }
}

/// A step in few words; `None` for a mark.
fn words(step: &Step, versions: &mut Versions) -> Option<String> {
    let words = match step {
        Step::Mark(_) => return None,
        Step::Settle(_) => "settle".to_owned(),
        Step::Churn {
            namespace,
            deployment,
            ..
        } => format!("churn of {namespace}/{deployment}"),
        Step::Felix(_) => "change of FelixConfiguration".to_owned(),
        Step::Apply(_) => "apply".to_owned(),
        Step::MoveApi => "move of the API's endpoint".to_owned(),
        Step::Delete(object) => format!("delete {} {}", object.kind, object.name),
        Step::Fault { fault, .. } => of_fault(fault, versions),
    };
    Some(words)
}

fn of_fault(fault: &Fault, versions: &mut Versions) -> String {
    let on = |node: &Option<NodeName>| {
        let node = node.as_ref();
        node.map(|node| format!(" on {node}")).unwrap_or_default()
    };
    match fault {
        Fault::Upgrade { to, node } => {
            let each = to
                .iter()
                .map(|(agent, to)| versions.upgrade(*agent, node.as_ref(), to));
            let each: Vec<String> = each.collect();
            format!("upgrade {}{}", each.join(", "), on(node))
        }
        Fault::Switch { dataplane } => format!("switch to {dataplane}"),
        Fault::Agent { agent, node, .. } => format!("restart of {agent}{}", on(node)),
        Fault::Run(run) => format!("commands of {}", run.who),
        Fault::Flush { rules, .. } => format!("flush of {}", rules.table),
        Fault::DeleteRule { chain, .. } => format!("deletion of rules in {chain}"),
        // What goes on beside the next steps has no name.
        _ => "fault".to_owned(),
    }
}
