//! What a run may have to do in somebody's cluster, as rules of RBAC: printed for whoever grants them, and asked for before a run.
//!
//! The namespaces of a run are called otherwise each time, so that the rules are for all of them. And pods that are
//! privileged can do anything on their nodes: who may make them is an administrator, whatever else the rules say.

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use crate::error::KindError;

const READ: &[&str] = &["get", "list", "watch"];
/// Of what scenarios make.
const MAKE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// Of what is ended all at once when a case is over.
const END: &[&str] = &["deletecollection"];

/// A rule.
#[derive(Debug)]
struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

const fn rule(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Rule {
    Rule {
        group,
        resources,
        verbs,
    }
}

/// What scenarios make is what a cluster that is not to be disturbed takes (chainbreak-model, plan/disturb.rs).
const RULES: [Rule; 12] = [
    rule("", &["nodes"], &["get", "list"]),
    rule("", &["namespaces"], MAKE),
    rule("", &["pods/exec"], &["create", "get"]),
    rule("", &["pods/log"], &["get"]),
    rule(
        "",
        &[
            "pods",
            "services",
            "configmaps",
            "endpoints",
            "serviceaccounts",
        ],
        MAKE,
    ),
    rule("", &["pods"], END),
    rule("", &["events"], READ),
    rule("apps", &["deployments", "daemonsets"], MAKE),
    rule("apps", &["deployments", "daemonsets"], END),
    rule("apps", &["deployments/scale"], &["patch"]),
    rule("discovery.k8s.io", &["endpointslices"], MAKE),
    rule("networking.k8s.io", &["networkpolicies"], MAKE),
];

/// Beside them where the cluster may be disturbed. Objects outside of namespaces, which some scenarios make, are not among them.
const DISTURBING: [Rule; 2] = [
    rule("", &["nodes"], &["patch"]),
    rule(
        "crd.projectcalico.org",
        &["felixconfigurations"],
        &["get", "create", "update", "patch"],
    ),
];

fn rules(disturbing: bool) -> impl Iterator<Item = &'static Rule> {
    RULES
        .iter()
        .chain(DISTURBING.iter().filter(move |_| disturbing))
}

/// A `ServiceAccount` of that name with these rights, its namespace apart.
pub fn manifests(name: &str, namespace: &str, disturbing: bool) -> Vec<Value> {
    let rules = rules(disturbing).map(|rule| {
        json!({ "apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs })
    });
    let group = "rbac.authorization.k8s.io";
    let api_version = format!("{group}/v1");
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "namespace": namespace, "name": name },
        }),
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRole",
            "metadata": { "name": name },
            "rules": rules.collect::<Vec<_>>(),
        }),
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
        }),
    ]
}

/// What whoever asks may not do of it, as `create pods/exec`.
pub(super) async fn missing(client: &Client, disturbing: bool) -> Result<Vec<String>, KindError> {
    let single = rules(disturbing).flat_map(|rule| {
        let resources = rule.resources.iter();
        resources.flat_map(move |resource| {
            rule.verbs
                .iter()
                .map(move |verb| (rule.group, *resource, *verb))
        })
    });
    let asked = single.map(|(group, resource, verb)| async move {
        may(client, group, resource, verb)
            .await
            .map(|may| (!may).then(|| named(group, resource, verb)))
    });
    let answers = join_all(asked).await.into_iter();
    let answers = answers.collect::<Result<Vec<_>, _>>();
    let answers = answers.map_err(KindError::api("ask what it may do"))?;
    Ok(answers.into_iter().flatten().collect())
}

fn named(group: &str, resource: &str, verb: &str) -> String {
    match group {
        "" => format!("{verb} {resource}"),
        _ => format!("{verb} {resource}.{group}"),
    }
}

async fn may(
    client: &Client,
    group: &str,
    resource: &str,
    verb: &str,
) -> Result<bool, kube::Error> {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served;

    #[test]
    fn to_disturb_a_cluster_takes_more() {
        let count = |disturbing| {
            let role = &manifests("chainbreak", "default", disturbing)[1];
            role["rules"].as_array().unwrap().len()
        };
        assert_eq!([false, true].map(count), [12, 14]);
    }

    #[tokio::test]
    async fn where_nothing_is_forbidden_nothing_is_missing() {
        assert_eq!(missing(&served::api(), true).await.unwrap(), [""; 0]);
    }

    #[test]
    fn a_right_is_named_as_kubectl_does() {
        assert_eq!(named("", "pods/exec", "create"), "create pods/exec");
        assert_eq!(
            named("apps", "deployments", "patch"),
            "patch deployments.apps"
        );
    }
}
