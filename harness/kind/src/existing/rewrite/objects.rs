//! Where Kubernetes objects name namespaces. Of the kinds that scenarios can have these are all places; a `ConfigMap`'s data, a
//! command or a label that looks like one is left alone.

use std::collections::BTreeMap;

use chainbreak_engine::manifests::is_cluster_scoped;
use serde_json::{Map, Value, json};

use crate::existing::run_namespace::RUN;

/// The label that Kubernetes gives every namespace, with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The namespaces of a run.
pub(super) struct Namespaces<'a> {
    run: &'a str,
    /// With the labels that the case gives them, by their names in the run.
    used: BTreeMap<String, Map<String, Value>>,
}

impl<'a> Namespaces<'a> {
    pub(super) fn of(run: &'a str) -> Self {
        Self {
            run,
            used: BTreeMap::new(),
        }
    }

    /// What a namespace of the case is called in the run.
    pub(super) fn name(&mut self, name: &str) -> String {
        let name = self.renamed(name);
        self.used.entry(name.clone()).or_default();
        name
    }

    /// Whether the object is a Namespace, which the run makes itself: its labels are kept.
    pub(super) fn takes(&mut self, object: &Value) -> bool {
        if object["kind"] != "Namespace" {
            return false;
        }
        let name = self.renamed(object["metadata"]["name"].as_str().unwrap_or_default());
        let labels = self.used.entry(name).or_default();
        if let Some(given) = object["metadata"]["labels"].as_object() {
            labels.extend(given.clone());
        }
        true
    }

    /// Moves an object into the run's namespaces.
    pub(super) fn rewrite(&mut self, object: &mut Value) {
        if is_cluster_scoped(object["kind"].as_str().unwrap_or_default()) {
            return;
        }
        // What the API would take for granted is written out.
        let namespace = object["metadata"]["namespace"].as_str();
        let namespace = self.name(namespace.unwrap_or("default"));
        object["metadata"]["namespace"] = namespace.into();
        let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut);
        for endpoint in endpoints.into_iter().flatten() {
            if let Some(reference) = endpoint.get_mut("targetRef") {
                self.reference(reference);
            }
        }
        for pod in ["/spec", "/spec/template/spec"] {
            let affinity = object.pointer_mut(&format!("{pod}/affinity"));
            if let Some(affinity) = affinity {
                self.terms(affinity);
            }
        }
    }

    /// The Namespace objects of all that were named.
    pub(super) fn objects(self) -> Vec<Value> {
        let run = self.run;
        let object = |(name, mut labels): (String, Map<String, Value>)| {
            labels.insert(RUN.to_owned(), run.into());
            json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": { "name": name, "labels": labels },
            })
        };
        self.used.into_iter().map(object).collect()
    }

    fn renamed(&self, name: &str) -> String {
        format!("{}-{name}", self.run)
    }

    fn reference(&mut self, reference: &mut Value) {
        if let Some(namespace) = reference["namespace"].as_str() {
            reference["namespace"] = self.name(namespace).into();
        }
    }

    /// The terms of pod affinity and anti-affinity: `namespaces` and `namespaceSelector`.
    fn terms(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "namespaces" => self.names(value),
                        "namespaceSelector" => self.selector(value),
                        _ => self.terms(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|it| self.terms(it)),
            _ => {}
        }
    }

    /// A selector that means namespaces by name.
    fn selector(&mut self, selector: &mut Value) {
        if let Some(name) = selector["matchLabels"][NAME_LABEL].as_str() {
            selector["matchLabels"][NAME_LABEL] = self.name(name).into();
        }
        let expressions = selector.get_mut("matchExpressions");
        let expressions = expressions.and_then(Value::as_array_mut);
        for expression in expressions.into_iter().flatten() {
            if expression["key"] == NAME_LABEL
                && let Some(values) = expression.get_mut("values")
            {
                self.names(values);
            }
        }
    }

    fn names(&mut self, names: &mut Value) {
        for name in names.as_array_mut().into_iter().flatten() {
            if let Some(written) = name.as_str() {
                *name = self.name(written).into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(mut object: Value) -> (Value, Vec<Value>) {
        let mut namespaces = Namespaces::of("chainbreak-0f");
        namespaces.rewrite(&mut object);
        (object, namespaces.objects())
    }

    #[test]
    fn what_names_a_namespace_at_a_known_place_is_rewritten_and_nothing_else() {
        let (slice, _) = rewritten(json!({
            "kind": "EndpointSlice",
            "metadata": { "name": "web-1", "namespace": "test", "labels": { "namespace": "test" } },
            "endpoints": [
                { "addresses": ["10.0.0.1"], "targetRef": { "kind": "Pod", "name": "a", "namespace": "test" } },
                { "addresses": ["10.0.0.2"] },
            ],
        }));
        assert_eq!(slice["metadata"]["namespace"], "chainbreak-0f-test");
        assert_eq!(slice["metadata"]["labels"]["namespace"], "test");
        assert_eq!(
            slice["endpoints"][0]["targetRef"]["namespace"],
            "chainbreak-0f-test"
        );
        assert_eq!(slice["endpoints"][1], json!({ "addresses": ["10.0.0.2"] }));
        let map = json!({ "kind": "ConfigMap", "metadata": { "name": "c" }, "data": { "namespace": "test" } });
        let (map, made) = rewritten(map);
        assert_eq!(map["data"], json!({ "namespace": "test" }));
        assert_eq!(map["metadata"]["namespace"], "chainbreak-0f-default");
        assert_eq!(made.len(), 1, "{made:?}");
    }

    #[test]
    fn pods_that_keep_away_from_those_of_a_namespace_still_do() {
        let term = json!({
            "topologyKey": "kubernetes.io/hostname",
            "namespaces": ["one"],
            "namespaceSelector": {
                "matchLabels": { NAME_LABEL: "two", "team": "two" },
                "matchExpressions": [{ "key": NAME_LABEL, "operator": "In", "values": ["three"] }],
            },
        });
        let anti = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
        let pod = json!({ "containers": [], "affinity": { "podAntiAffinity": anti } });
        let set = json!({ "kind": "Deployment", "metadata": { "name": "web" }, "spec": { "template": { "spec": pod } } });
        let (set, made) = rewritten(set);
        let term = &set["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            [0];
        assert_eq!(term["namespaces"][0], "chainbreak-0f-one");
        let selector = &term["namespaceSelector"];
        let labels = json!({ NAME_LABEL: "chainbreak-0f-two", "team": "two" });
        assert_eq!(selector["matchLabels"], labels);
        assert_eq!(
            selector["matchExpressions"][0]["values"][0],
            "chainbreak-0f-three"
        );
        assert_eq!(made.len(), 4, "{made:?}");
    }

    #[test]
    fn a_namespace_keeps_its_labels_and_says_whose_run_it_is() {
        let mut namespaces = Namespaces::of("chainbreak-0f");
        let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
        let given =
            json!({ "kind": "Namespace", "metadata": { "name": "test", "labels": labels } });
        assert!(namespaces.takes(&given));
        assert_eq!(namespaces.name("test"), "chainbreak-0f-test");
        let made = namespaces.objects();
        assert_eq!(made.len(), 1, "{made:?}");
        let labels = &made[0]["metadata"]["labels"];
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
        assert_eq!(labels[RUN], "chainbreak-0f");
    }
}
