//! Which nodes a pod may go to.

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use kube::ResourceExt;

/// The node has the labels that the pod asks for.
pub(super) fn is_chosen(pod: &PodSpec, node: &Node) -> bool {
    let mut selector = pod.node_selector.iter().flatten();
    let affinity = pod
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|it| {
        it.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    selector.all(|(label, value)| node.labels().get(label) == Some(value))
        && required.is_none_or(|required| {
            required
                .node_selector_terms
                .iter()
                .any(|term| meets_term(node, term))
        })
}

/// The node takes new pods, and this one in spite of its taints.
pub(super) fn is_open(pod: &PodSpec, node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
    let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let tolerations = pod.tolerations.as_deref().unwrap_or(&[]);
    !cordoned
        && is_ready(node)
        && taints.all(|taint| {
            taint.effect == "PreferNoSchedule" || tolerations.iter().any(|it| bears(it, taint))
        })
}

/// A node that says nothing of itself is taken as ready.
fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    ready.is_none_or(|condition| condition.status == "True")
}

fn bears(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration
        .effect
        .as_deref()
        .filter(|effect| !effect.is_empty());
    let key = toleration.key.as_deref().filter(|key| !key.is_empty());
    if effect.is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    if toleration.operator.as_deref() == Some("Exists") {
        return key.is_none_or(|key| key == taint.key);
    }
    let (wanted, value) = (toleration.value.as_deref(), taint.value.as_deref());
    key == Some(taint.key.as_str()) && wanted.unwrap_or("") == value.unwrap_or("")
}

fn meets_term(node: &Node, term: &NodeSelectorTerm) -> bool {
    let name = node.name_any();
    let labels = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    // A term that asks for nothing matches nothing.
    (labels.clone().count() + fields.clone().count() > 0)
        && labels
            .clone()
            .all(|it| meets(it, node.labels().get(&it.key)))
        && fields
            .clone()
            .all(|it| it.key == "metadata.name" && meets(it, Some(&name)))
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or(&[]);
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    let compare = |holds: fn(&i64, &i64) -> bool| {
        let both = number(value).zip(number(values.first()));
        both.is_some_and(|(have, bound)| holds(&have, &bound))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn node(spec: &Value) -> Node {
        let labels = json!({ "disk": "ssd", "cores": "8" });
        from_value(json!({ "metadata": { "name": "n1", "labels": labels }, "spec": spec })).unwrap()
    }

    fn pod(mut spec: Value) -> PodSpec {
        spec["containers"] = json!([]);
        from_value(spec).unwrap()
    }

    #[test]
    fn a_pod_goes_only_where_its_selector_and_affinity_lead() {
        let node = node(&json!({}));
        assert!(is_chosen(&pod(json!({})), &node));
        assert!(is_chosen(
            &pod(json!({ "nodeSelector": { "disk": "ssd" } })),
            &node
        ));
        assert!(!is_chosen(
            &pod(json!({ "nodeSelector": { "disk": "tape" } })),
            &node
        ));
        let asks = |term: Value| {
            let terms = json!({ "nodeSelectorTerms": [term] });
            let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": terms });
            is_chosen(
                &pod(json!({ "affinity": { "nodeAffinity": required } })),
                &node,
            )
        };
        let label = |key: &str, operator: &str, values: &[&str]| {
            let one = json!({ "key": key, "operator": operator, "values": values });
            json!({ "matchExpressions": [one] })
        };
        assert!(asks(label("disk", "In", &["ssd", "nvme"])));
        assert!(!asks(label("disk", "NotIn", &["ssd"])));
        assert!(asks(label("gpu", "DoesNotExist", &[])));
        assert!(asks(label("cores", "Gt", &["4"])));
        assert!(!asks(label("cores", "Lt", &["4"])));
        assert!(!asks(json!({})));
        let named = |name: &str| {
            let one = json!({ "key": "metadata.name", "operator": "In", "values": [name] });
            json!({ "matchFields": [one] })
        };
        assert!(asks(named("n1")));
        assert!(!asks(named("n2")));
    }

    #[test]
    fn a_closed_node_takes_only_pods_that_bear_it() {
        let any = pod(json!({}));
        assert!(is_open(&any, &node(&json!({}))));
        assert!(!is_open(&any, &node(&json!({ "unschedulable": true }))));
        let taint = |effect: &str| json!({ "key": "a", "value": "b", "effect": effect });
        let tainted = node(&json!({ "taints": [taint("NoSchedule")] }));
        assert!(!is_open(&any, &tainted));
        assert!(is_open(
            &any,
            &node(&json!({ "taints": [taint("PreferNoSchedule")] }))
        ));
        let bears =
            |toleration: Value| is_open(&pod(json!({ "tolerations": [toleration] })), &tainted);
        assert!(bears(json!({ "operator": "Exists" })));
        assert!(bears(
            json!({ "key": "a", "value": "b", "effect": "NoSchedule" })
        ));
        assert!(!bears(json!({ "key": "a", "value": "c" })));
        assert!(!bears(
            json!({ "key": "a", "value": "b", "effect": "NoExecute" })
        ));
    }
}
