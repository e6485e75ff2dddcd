//! What a request's path names.

use std::sync::Arc;

use crate::{
    kinds::{Kind, Kinds},
    kubelets::What,
    object::Key,
};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/healthz`, `/readyz`, `/livez` and their parts.
    Health,
    Version,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/apps`.
    Group(String),
    /// `/api/v1`, `/apis/apps/v1`: group and version.
    Resources(String, String),
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiV3,
    /// `/openapi/v3/apis/apps/v1`: group and version.
    OpenApiV3Of(String, String),
    /// What a real cluster's kubelets answer, and none here: the way out, for who asked.
    Elsewhere(String),
    /// What a pod's kubelet is asked.
    Kubelet(Key, What),
    /// Objects.
    Objects(Address),
}

/// A resource's collection, an object or a subresource of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// Reads a path; none when nothing is served there.
pub(crate) fn parse(path: &str, kinds: &Kinds) -> Option<Target> {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        ["healthz" | "readyz" | "livez", ..] => Some(Target::Health),
        ["version"] => Some(Target::Version),
        ["api"] => Some(Target::CoreVersions),
        ["apis"] => Some(Target::Groups),
        ["apis", group] => kinds
            .iter()
            .any(|k| k.group == *group)
            .then(|| Target::Group((*group).to_owned())),
        ["openapi", "v2"] => Some(Target::OpenApiV2),
        ["openapi", "v3"] => Some(Target::OpenApiV3),
        ["openapi", "v3", "api", version] => served(kinds, "", version, Target::OpenApiV3Of),
        ["openapi", "v3", "apis", group, version] => {
            served(kinds, group, version, Target::OpenApiV3Of)
        }
        ["api", version] => served(kinds, "", version, Target::Resources),
        ["apis", group, version] => served(kinds, group, version, Target::Resources),
        ["api", "v1", "namespaces", namespace, "pods", pod, what] if What::of(what).is_some() => {
            What::of(what).map(|what| Target::Kubelet(Key::new(namespace, pod), what))
        }
        ["api", "v1", "namespaces", namespace, "pods", pod, what] if elsewhere(what).is_some() => {
            elsewhere(what).map(|way| Target::Elsewhere(told(way, namespace, pod)))
        }
        ["api", version, rest @ ..] => objects(kinds, "", version, rest),
        ["apis", group, version, rest @ ..] => objects(kinds, group, version, rest),
        _ => None,
    }
}

/// How to come by what a subresource of a pod is asked for: `POD` stands for its name.
fn elsewhere(subresource: &str) -> Option<&'static str> {
    Some(match subresource {
        "attach" => "attach is not served here: `chainbreak shell POD` goes into the pod",
        "portforward" | "proxy" => {
            "pods are not forwarded to here: `chainbreak shell -- curl` reaches them from a node"
        }
        "ephemeralcontainers" => {
            "ephemeral containers are not served here: `chainbreak shell POD` has all tools in the pod"
        }
        _ => return None,
    })
}

fn told(way: &str, namespace: &str, pod: &str) -> String {
    way.replace("POD", &format!("pod/{namespace}/{pod}"))
}

fn served(
    kinds: &Kinds,
    group: &str,
    version: &str,
    target: fn(String, String) -> Target,
) -> Option<Target> {
    kinds
        .serves(group, version)
        .then(|| target(group.to_owned(), version.to_owned()))
}

fn objects(kinds: &Kinds, group: &str, version: &str, rest: &[&str]) -> Option<Target> {
    // `/namespaces/a/status` is the status of a namespace, not a resource in it.
    let (namespace, rest) = match rest {
        ["namespaces", namespace, plural, rest @ ..]
            if !(group.is_empty() && *plural == "status") =>
        {
            (Some((*namespace).to_owned()), [&[*plural], rest].concat())
        }
        other => (None, other.to_vec()),
    };
    let (plural, name, subresource) = match rest.as_slice() {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(*name), None),
        [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
        _ => return None,
    };
    let kind = Arc::clone(kinds.find(group, version, plural)?);
    if subresource.is_some_and(|s| !kind.subresources().contains(&s)) {
        return None;
    }
    // A namespaced object is only reachable through its namespace, a cluster-scoped one never is.
    if (namespace.is_some() && !kind.namespaced)
        || (name.is_some() && kind.namespaced && namespace.is_none())
    {
        return None;
    }
    Some(Target::Objects(Address {
        kind,
        namespace,
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `resource in namespace: name/subresource`, with `-` for what is not said.
    fn address(path: &str) -> Option<String> {
        let said = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
        match parse(path, &Kinds::default())? {
            Target::Objects(a) => Some(format!(
                "{} in {}: {}/{}",
                a.kind.resource(),
                said(a.namespace),
                said(a.name),
                said(a.subresource)
            )),
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn collections_objects_and_subresources_are_told_apart() {
        for (path, expected) in [
            ("/api/v1/pods", "pods in -: -/-"),
            (
                "/apis/apps/v1/namespaces/a/deployments/web/scale",
                "deployments.apps in a: web/scale",
            ),
            ("/api/v1/namespaces/a", "namespaces in -: a/-"),
            ("/api/v1/namespaces/a/status", "namespaces in -: a/status"),
        ] {
            assert_eq!(address(path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn who_asks_for_what_no_kubelet_here_does_is_told_what_does_it() {
        let asked = |what| {
            parse(
                &format!("/api/v1/namespaces/a/pods/web/{what}"),
                &Kinds::default(),
            )
        };
        let told = "attach is not served here: `chainbreak shell pod/a/web` goes into the pod";
        assert_eq!(asked("attach"), Some(Target::Elsewhere(told.to_owned())));
        let web = Key::new("a", "web");
        assert_eq!(asked("log"), Some(Target::Kubelet(web, What::Log)));
    }

    #[test]
    fn what_is_not_served_is_nothing() {
        for path in [
            "/api/v1/gadgets",
            "/apis/apps/v2/deployments",
            "/api/v1/namespaces/a/nodes/n1",
            "/api/v1/pods/web",
            "/api/v1/namespaces/a/pods/web/logs",
            "/metrics",
        ] {
            assert_eq!(address(path), None, "{path}");
        }
    }
}
