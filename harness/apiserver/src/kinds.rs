//! What resources are served: a built-in table, and whatever custom definitions add.
//!
//! Several kinds may share one storage (`discovery.k8s.io/v1` and `v1beta1`): an object written
//! through one is seen through the other.

use std::sync::Arc;

use crate::store::Storage;

/// The built-in kinds, one a line: group version, kind, plural, short names or `-`, scope, traits.
const BUILT_IN: &str = include_str!("kinds/built-in.txt");

/// One kind in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each trait of a kind is independent of the others"
)]
#[expect(clippy::struct_field_names, reason = "`kind` is what the API calls it")]
pub(crate) struct Kind {
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) short: Vec<String>,
    pub(crate) namespaced: bool,
    /// `status` is a subresource: ordinary writes leave it alone.
    pub(crate) status: bool,
    /// `status` may be given on creation.
    pub(crate) status_at_birth: bool,
    pub(crate) scale: bool,
    /// `metadata.generation` counts changes of anything but metadata and status.
    pub(crate) generation: bool,
    /// Answered when it is posted, and never stored.
    pub(crate) review: bool,
    /// Defined by a custom definition, or Calico's: no strategic merge.
    pub(crate) custom: bool,
    pub(crate) storage: Storage,
}

impl Kind {
    /// `v1`, `apps/v1`.
    pub(crate) fn group_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.clone();
        }
        format!("{}/{}", self.group, self.version)
    }

    /// `pods`, `deployments.apps`.
    pub(crate) fn resource(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// `Pod`, `Deployment.apps`.
    pub(crate) fn qualified_kind(&self) -> String {
        qualified(&self.kind, &self.group)
    }

    /// The subresources served.
    pub(crate) fn subresources(&self) -> Vec<&'static str> {
        let mut subresources = Vec::new();
        if self.status {
            subresources.push("status");
        }
        if self.scale {
            subresources.push("scale");
        }
        if self.group.is_empty() && self.plural == "pods" {
            subresources.extend(["binding", "eviction"]);
        }
        subresources
    }

    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut word = || words.next().expect("a line of the table has six words");
        let group_version = word();
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let (kind, plural, short, scope) = (word(), word(), word(), word());
        let traits: Vec<&str> = word().split(',').collect();
        let has = |wanted: &str| traits.contains(&wanted);
        let stored = traits.iter().find_map(|t| t.strip_prefix("as="));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            short: short
                .split(',')
                .filter(|s| *s != "-")
                .map(str::to_owned)
                .collect(),
            namespaced: scope == "namespaced",
            status: has("status"),
            status_at_birth: has("born"),
            scale: has("scale"),
            generation: has("generation"),
            review: has("review"),
            custom: has("custom"),
            storage: stored
                .map_or_else(|| qualified(plural, group), str::to_owned)
                .into(),
        }
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

/// All kinds served at the moment, in the order discovery tells them.
#[derive(Debug, Clone)]
pub(crate) struct Kinds(Vec<Arc<Kind>>);

impl Default for Kinds {
    fn default() -> Self {
        let lines = BUILT_IN
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with('#'));
        Self(lines.map(|line| Arc::new(Kind::parse(line))).collect())
    }
}

impl Kinds {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.0
            .iter()
            .find(|k| k.plural == plural && k.version == version && k.group == group)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.0.iter()
    }

    /// Whether any kind has this group and version.
    pub(crate) fn serves(&self, group: &str, version: &str) -> bool {
        self.0
            .iter()
            .any(|k| k.group == group && k.version == version)
    }

    /// Serves one more kind, unless it is served already.
    pub(crate) fn add(&mut self, kind: Kind) {
        if self
            .find(&kind.group, &kind.version, &kind.plural)
            .is_none()
        {
            self.0.push(Arc::new(kind));
        }
    }

    /// Stops serving a resource in every version, unless it is built in.
    pub(crate) fn drop_custom(&mut self, group: &str, plural: &str) {
        let built_in = Self::default();
        self.0.retain(|k| {
            k.group != group
                || k.plural != plural
                || built_in.find(&k.group, &k.version, &k.plural).is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_kind_is_in_the_table_twice() {
        let kinds = Kinds::default();
        let names: BTreeSet<_> = kinds
            .iter()
            .map(|k| (k.group_version(), &k.plural))
            .collect();
        assert_eq!(names.len(), kinds.iter().count());
    }

    #[test]
    fn versions_of_endpoint_slices_and_groups_of_felix_configurations_share_their_storage() {
        let kinds = Kinds::default();
        let storage = |g, v, p| kinds.find(g, v, p).map(|k| Arc::clone(&k.storage));
        let slices = storage("discovery.k8s.io", "v1", "endpointslices");
        assert!(slices.is_some());
        assert_eq!(
            slices,
            storage("discovery.k8s.io", "v1beta1", "endpointslices")
        );
        let felix = storage("projectcalico.org", "v3", "felixconfigurations");
        assert!(felix.is_some());
        assert_eq!(
            felix,
            storage("crd.projectcalico.org", "v1", "felixconfigurations")
        );
    }

    #[test]
    fn a_definition_cannot_take_a_built_in_kind_away() {
        let mut kinds = Kinds::default();
        kinds.drop_custom("crd.projectcalico.org", "felixconfigurations");
        assert!(
            kinds
                .find("crd.projectcalico.org", "v1", "felixconfigurations")
                .is_some()
        );
    }
}
