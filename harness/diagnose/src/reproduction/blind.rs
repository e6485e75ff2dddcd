//! How Felix's NAT map comes to lead to what is gone: Felix asks the API by the Service `kubernetes`, and so by its own map; the API's endpoint
//! moves; the pods behind the Services are replaced (measured with v3.28.1 and v3.32.1, docs/findings.md).

use serde_json::{Map, Value, json};

use super::played::Played;

/// What a cluster's `calico` says for it.
pub(super) const BY_THE_SERVICE: &str = "api: service, ";
/// What mends it, and how long a new pod of a real Felix needs.
pub(super) const DIRECTLY: [&str; 2] = ["recreate: { agent: felix, api: direct }", "settle: 9s"];
/// The first minor release of v3 whose connect-time load balancing lasts from one process to the next in every patch.
const PINNED: u32 = 31;

/// Whether a Felix of that release comes to it with these settings: where connect-time load balancing goes with the process, Felix finds the API
/// again.
pub(super) fn comes_about(calico: Option<&str>, felix: &Map<String, Value>) -> bool {
    let minor = calico.and_then(|it| it.strip_prefix("v3.")?.split('.').next()?.parse().ok());
    let is_pinned = minor.is_some_and(|minor: u32| minor >= PINNED);
    is_pinned || felix.get("bpfConnectTimeLoadBalancing") == Some(&json!("Disabled"))
}

/// The steps that bring it about for these Services.
pub(super) fn steps(services: &[Played]) -> Vec<String> {
    let replaced: Vec<Value> = services
        .iter()
        .map(|it| it.deployment(Some("second")))
        .collect();
    let apply = format!("apply: {}", json!(replaced));
    let steps = ["api: move", "settle: 2s", &apply, "settle: 5s"];
    steps.map(str::to_owned).into()
}
