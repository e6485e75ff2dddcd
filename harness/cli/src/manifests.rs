//! Objects for `kubectl apply -f -`.

use anyhow::Context;
use serde_json::Value;

/// As YAML, below a head of comments.
pub(crate) fn document(head: &str, objects: &[Value]) -> anyhow::Result<String> {
    let mut text = head.to_owned();
    for object in objects {
        let object = serde_yaml::to_string(object).context("could not write YAML")?;
        text.push_str("---\n");
        text.push_str(&object);
    }
    Ok(text)
}
