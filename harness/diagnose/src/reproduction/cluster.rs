//! What is known of a cluster, as a scenario says it.

use chainbreak_model::names::AgentName;
use chainbreak_netfilter::replay::Backend;
use serde_json::{Map, Value, json};

use crate::{
    Evidence, nat_map, services,
    tables::{KubeProxy, Tables},
    writers,
};

/// A field of FelixConfiguration by which Felix starts a program.
const DRIVER: &str = "dataplaneDriver";

/// kube-proxy's mode, front end and release, as a scenario writes them.
pub(super) fn kube_proxy(evidence: &Evidence, tables: &[Tables]) -> Result<String, String> {
    let by_image = version(evidence, AgentName::KubeProxy);
    if services::nftables(evidence).next().is_some() {
        let release = by_image.unwrap_or_else(|| "1.33".to_owned());
        return Ok(format!("{{ mode: nftables, version: {} }}", json!(release)));
    }
    let is_its = |it: &&Tables| matches!(it.kube_proxy(), KubeProxy::Iptables | KubeProxy::Canary);
    let found = tables.iter().find(is_its);
    let by_rules = found.and_then(writers::release).map(str::to_owned);
    let release = by_image
        .or(by_rules)
        .ok_or("neither kube-proxy's rules nor its image are among what was attached")?;
    let front = match found.and_then(|it| it.backend) {
        Some(Backend::Nft) => "nft",
        Some(Backend::Legacy) | None => "legacy",
    };
    let release = json!(release);
    Ok(format!(
        "{{ mode: iptables, iptables: {front}, version: {release} }}"
    ))
}

/// Calico's release, where it is on the node.
pub(super) fn calico(evidence: &Evidence, tables: &[Tables]) -> Option<String> {
    let has_rules = tables.iter().any(Tables::has_felix);
    let is_there = has_rules
        || evidence.objects.felix_configuration().is_some()
        || !nat_map::of(&evidence.dumps).is_empty();
    version(evidence, AgentName::Felix).or_else(|| is_there.then(|| "v3.28.1".to_owned()))
}

/// `1.33.4` of an image's tag `v1.33.4-eks-1`, where a scenario takes it.
fn version(evidence: &Evidence, of: AgentName) -> Option<String> {
    let product = match of {
        AgentName::KubeProxy => "kube-proxy",
        AgentName::Felix => "calico",
    };
    let versions = evidence.objects.versions();
    let (_, tag) = versions.into_iter().find(|(who, _)| *who == product)?;
    let tag = of.kind().as_written(&tag);
    let number = tag
        .split(|c: char| c != '.' && c != 'v' && !c.is_ascii_digit())
        .next()?;
    of.kind().takes(number).then(|| number.to_owned())
}

/// Which of a node's interfaces Felix's programs are on: the lab's has another name.
const INTERFACES: [&str; 2] = ["bpfDataIfacePattern", "bpfL3IfacePattern"];

/// Of a configuration what is a number, a word, or true or false: no path, no program, no expression.
pub(super) fn plain(spec: &Value) -> Map<String, Value> {
    let is_word = |text: &str| text.bytes().all(|it| it.is_ascii_alphanumeric());
    let is_plain = |value: &Value| {
        value.is_boolean() || value.is_number() || value.as_str().is_some_and(is_word)
    };
    let fields = spec.as_object().into_iter().flatten();
    let is_ours = |name: &str| name != DRIVER && !INTERFACES.contains(&name);
    let plain = fields.filter(|(name, value)| is_ours(name) && is_word(name) && is_plain(value));
    plain
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
