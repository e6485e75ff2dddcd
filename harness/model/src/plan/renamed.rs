//! What a promise cannot name where a case's namespaces are called otherwise than it says: it would be kept, or broken, whatever happens.

use std::{collections::BTreeSet, sync::LazyLock};

use regex::Regex;

use crate::case::{Case, Step};

/// The chains of one service or endpoint: a hash of namespace and name is in them (kube-proxy 1.20 to 1.36, iptables mode).
static HASHED: LazyLock<Regex> = LazyLock::new(|| {
    let chain = r"\bKUBE-(SVC|SVL|EXT|FW|XLB|SEP)-[A-Z2-7]{16}\b";
    Regex::new(chain).expect("the pattern is valid")
});

/// Why the case's promises cannot be judged there; `None` when they can.
pub(super) fn refused(case: &Case) -> Option<String> {
    let namespaces = namespaces(case);
    case.promises.iter().find_map(|(name, promise)| {
        let texts = promise.claim.texts();
        let named = texts.into_iter().find_map(|text| named(text, &namespaces))?;
        Some(format!(
            "promise {name} names {named}, which is called otherwise in the namespaces that the case has there: say `service:`"
        ))
    })
}

fn named(text: &str, namespaces: &BTreeSet<&str>) -> Option<String> {
    if let Some(chain) = HASHED.find(text) {
        return Some(chain.as_str().to_owned());
    }
    let said = |namespace: &&&str| text.contains(&format!("{namespace}/"));
    let namespace = namespaces.iter().find(said)?;
    Some(format!("the namespace {namespace}"))
}

/// The namespaces of the objects that the case begins with, and of those that it applies.
fn namespaces(case: &Case) -> BTreeSet<&str> {
    let applied = case.timeline.iter().filter_map(|step| match step {
        Step::Apply(objects) => Some(objects),
        _ => None,
    });
    let objects = case.manifests.iter().chain(applied.flatten());
    objects
        .map(|object| {
            object["metadata"]["namespace"]
                .as_str()
                .unwrap_or("default")
        })
        .collect()
}
