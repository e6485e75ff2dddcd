//! A version that is what a variant is about: in another one the variant would say nothing, so it is left out.

use super::{Choice, upgrades};
use crate::{case::Case, matrix::MatrixKey, names::AgentName, scenario::Variant, version};

/// How a case has other versions than those that its variant is about, by a matrix or a real agent. With an `only:` the variant
/// says itself in which others it holds.
pub(super) fn lost(case: &Case, variant: &Variant, choice: &Choice) -> Vec<String> {
    let about = |agent| variant.only.keys().any(|key| key.agent() == Some(agent));
    let agents = AgentName::ALL.into_iter().filter(|it| !about(*it));
    let lost = agents.filter_map(|agent| {
        let written = variant.run.cluster.version(agent)?;
        let is = case.cluster.version(agent)?;
        if version::is(is, written) {
            return None;
        }
        let product = agent.product();
        let says = if variant.own_versions.contains(&agent) {
            format!("says itself that {product} is {written}")
        } else if chosen(choice, agent)
            && upgrades::all(case).any(|(to, _)| to.contains_key(&agent))
        {
            format!("upgrades {product} from {written}")
        } else {
            return None;
        };
        Some(format!("{says}, this is {is}"))
    });
    lost.collect()
}

/// Whether the command line varies the agent's version; a scenario that does so itself upgrades from each of them.
fn chosen(choice: &Choice, agent: AgentName) -> bool {
    let mut keys = choice.matrix.keys();
    keys.any(|key| {
        let kubernetes = *key == MatrixKey::Kubernetes && agent == AgentName::KubeProxy;
        kubernetes || key.agent() == Some(agent)
    })
}
