//! Which lists are merged by element, and by what (`patchMergeKey` and `listMapKey` in the API's
//! types.go). Every other list is replaced whole.

/// How the elements of a list are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// Objects, by these fields. A strategic merge uses the first only.
    Map(&'static [&'static str]),
    /// Primitive values.
    Set,
    /// Replaced whole.
    Atomic,
}

/// What kind of list the field `field` is, in an object that is the value (or an element of the
/// value) of the field `parent`.
pub(crate) fn list_kind(parent: &str, field: &str) -> ListKind {
    use ListKind::{Atomic, Map, Set};
    match (parent, field) {
        ("containers" | "initContainers" | "ephemeralContainers", "ports") => {
            Map(&["containerPort", "protocol"])
        }
        ("spec", "ports") => Map(&["port", "protocol"]),
        (
            "spec",
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "imagePullSecrets",
        )
        | (_, "env") => Map(&["name"]),
        (_, "volumeMounts") => Map(&["mountPath"]),
        (_, "volumeDevices") => Map(&["devicePath"]),
        ("spec", "topologySpreadConstraints") => Map(&["topologyKey", "whenUnsatisfiable"]),
        ("status", "conditions" | "addresses") => Map(&["type"]),
        ("spec", "hostAliases") | ("status", "podIPs" | "hostIPs") => Map(&["ip"]),
        ("metadata", "ownerReferences") => Map(&["uid"]),
        ("metadata", "finalizers") | ("spec", "podCIDRs") => Set,
        _ => Atomic,
    }
}

/// What an absent key field stands for.
pub(crate) fn key_default(field: &str) -> Option<&'static str> {
    (field == "protocol").then_some("TCP")
}
