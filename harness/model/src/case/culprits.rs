//! Who or what can be behind what becomes of a case, as `expect: { broken: […], by: felix }` names it.

use super::{Case, ClusterSpec, Fault, Step};
use crate::names::AgentName;

/// Who does what the scenario does to rules, where it names nobody.
pub const ADMIN: &str = "admin";

/// Who drops packets without a rule, as conntrack does where its table is full.
const KERNEL: &str = "kernel";

/// Amazon's VPC CNI: its daemon's name in a cluster, and in the history.
pub const AWS_NODE: &str = "aws-node";

/// To whom the history ascribes what the end of a pod of Felix does to its node.
pub const END_OF_FELIXS_POD: &str = "end of felix's pod";

/// To whom it ascribes what a node loses when it is rebooted: the word of the step.
pub const REBOOT: &str = "reboot";

impl Case {
    /// Who or what of the case's own can be behind what becomes of it: agents, third parties and steps.
    pub fn own_culprits(&self) -> Vec<&str> {
        let mut own = culprits(&self.cluster, &self.timeline);
        own.retain(|it| *it != KERNEL);
        own
    }
}

/// Its agents, the kernel, the third parties of its timeline, and the words of those other steps that do something; each once.
pub(crate) fn culprits<'a>(cluster: &ClusterSpec, timeline: &'a [Step]) -> Vec<&'a str> {
    let cni = cluster.cni.as_ref().map(|_| AWS_NODE);
    let agents = cluster.agents().map(AgentName::as_str).chain(cni);
    let mut culprits: Vec<&str> = agents.chain([KERNEL]).collect();
    for culprit in timeline.iter().flat_map(Step::culprits) {
        if !culprits.contains(&culprit) {
            culprits.push(culprit);
        }
    }
    culprits
}

impl Step {
    /// Whether it only waits, or marks a moment.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Settle(_) | Self::At(_) | Self::Mark(_))
    }

    /// The third party that does it, else its word; nothing of one that waits. What Felix is told, Felix does.
    pub fn culprits(&self) -> impl Iterator<Item = &str> {
        let who = match self {
            Self::Fault { fault, .. } => third_party(fault),
            _ => None,
        };
        let word = (!self.waits() && !matches!(self, Self::Felix(_))).then(|| self.word());
        who.or(word).into_iter()
    }
}

fn third_party(fault: &Fault) -> Option<&str> {
    match fault {
        Fault::Run(run) => Some(&run.who),
        Fault::Flush { .. } | Fault::DeleteRule { .. } => Some(ADMIN),
        _ => None,
    }
}
