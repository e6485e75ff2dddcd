//! Clusters' names, by which ours are known.

use std::fmt;

/// What every name of ours begins with.
pub(crate) const PREFIX: &str = "chainbreak-";

/// `chainbreak-` and a hash of what the cluster is made of: cases that need the same cluster name the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterName(String);

impl ClusterName {
    pub(crate) fn of_hash(hash: &str) -> Self {
        Self(format!("{PREFIX}{hash}"))
    }

    /// The name, if it may be one of ours.
    pub(crate) fn read(name: &str) -> Option<Self> {
        name.starts_with(PREFIX).then(|| Self(name.to_owned()))
    }

    /// As kind writes it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The container of a node, counted from 1: kind calls the first NAME-control-plane, the others NAME-worker,
    /// NAME-worker2, ….
    pub(crate) fn container(&self, number: u16) -> String {
        match number {
            1 => format!("{self}-control-plane"),
            2 => format!("{self}-worker"),
            number => format!("{self}-worker{}", number - 1),
        }
    }

    /// A container beside the cluster: what it is, and of which host outside.
    pub(crate) fn beside(&self, what: &str, host: &str) -> String {
        format!("{self}-{what}-{host}")
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_the_containers_that_kind_makes_of_them() {
        let name = ClusterName::of_hash("0f");
        let containers = [1, 2, 3].map(|number| name.container(number));
        assert_eq!(
            containers,
            [
                "chainbreak-0f-control-plane",
                "chainbreak-0f-worker",
                "chainbreak-0f-worker2"
            ]
        );
    }
}
