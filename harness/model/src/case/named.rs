//! Steps that have a name: the timeline has a mark before such a step and one behind it, so that promises can be about the
//! time between, or about what comes after.

use std::collections::BTreeMap;

use super::{AgentFault, Case, Fault, Promise, Step, Versions};
use crate::names::{AgentName, MarkName, NodeName};

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

    /// What each step of the timeline does, in few words; `None` for one that only waits or marks a moment.
    pub(crate) fn steps_in_words(&self) -> Vec<Option<String>> {
        let mut versions = Versions::of(&self.cluster);
        let steps = self.timeline.iter();
        steps.map(|step| words(step, &mut versions)).collect()
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

/// A step in few words, after those before it; `None` for one that only waits or marks a moment.
fn words(step: &Step, versions: &mut Versions) -> Option<String> {
    let words = match step {
        Step::Mark(_) | Step::At(_) => return None,
        Step::Settle(_) => "settle".to_owned(),
        Step::Churn {
            namespace,
            deployment,
            ..
        } => format!("churn of {namespace}/{deployment}"),
        Step::Rollout {
            namespace,
            deployment,
        } => format!("rollout of {namespace}/{deployment}"),
        Step::Felix(_) => "change of FelixConfiguration".to_owned(),
        Step::Apply(_) => "apply".to_owned(),
        Step::MoveApi => "move of the API's endpoint".to_owned(),
        Step::Delete(object) => format!("delete {} {}", object.kind, object.name),
        Step::Fault { fault, .. } => of_fault(fault, versions),
    };
    Some(words)
}

fn of_fault(fault: &Fault, versions: &mut Versions) -> String {
    match fault {
        Fault::Upgrade {
            to,
            node,
            kubernetes,
        } => {
            let each = to.iter().map(|(agent, to)| {
                let product = if *kubernetes && *agent == AgentName::KubeProxy {
                    "Kubernetes"
                } else {
                    agent.product()
                };
                format!("{product} {}", versions.upgrade(*agent, node.as_ref(), to))
            });
            let each: Vec<String> = each.collect();
            format!("upgrade {}{}", each.join(", "), on(node.as_ref()))
        }
        Fault::Switch { dataplane } => format!("switch to {dataplane}"),
        Fault::Agent { agent, node, what } => {
            format!("{} of {agent}{}", done(*what), on(node.as_ref()))
        }
        Fault::Reboot { node, begin } => {
            let begin: Vec<&str> = begin.iter().map(|agent| agent.as_str()).collect();
            let then = if begin.is_empty() { "" } else { ", then " };
            format!("reboot{}{then}{}", on(node.as_ref()), begin.join(", "))
        }
        Fault::Slow { agent, command, by } => format!("{command} of {agent} {by:?} later"),
        Fault::Run(run) => format!("commands of {}", run.who),
        Fault::Flush { rules, .. } => format!("flush of {}", rules.table),
        Fault::DeleteRule { chain, .. } => format!("deletion of rules in {chain}"),
        Fault::Craft(craft) => {
            format!("{} segments into {}", craft.segment.as_str(), craft.traffic)
        }
        Fault::Sysctl { at, set } => {
            let set = set.iter().map(|(name, to)| format!("{name}={to}"));
            let at = at.as_ref().map(|at| format!(" at {at}"));
            let set: Vec<String> = set.collect();
            format!("sysctl {}{}", set.join(", "), at.unwrap_or_default())
        }
        Fault::FillConntrack { node, .. } => format!("conntrack filled{}", on(node.as_ref())),
        Fault::LinkDown { at, interface } => format!("{interface} down at {at}"),
        Fault::Mtu {
            at,
            interface,
            bytes,
        } => format!("MTU {bytes} of {interface} at {at}"),
        Fault::Loss { at, share } => format!("loss of {share} % at {at}"),
        Fault::Route { at, to, .. } => format!("route to {to} at {at}"),
        Fault::Lock { node } => format!("iptables lock held{}", on(node.as_ref())),
    }
}

fn done(what: AgentFault) -> &'static str {
    match what {
        AgentFault::Stop => "stop",
        AgentFault::Pause => "pause",
        AgentFault::Restart => "restart",
        AgentFault::Recreate { .. } => "new pod",
    }
}

fn on(node: Option<&NodeName>) -> String {
    node.map(|node| format!(" on {node}")).unwrap_or_default()
}
