//! What a program says that was built without a feature, as `make demo` builds it.

#[cfg(not(feature = "clusters"))]
use chainbreak_engine::backend::{Finding, succeeds};

/// Of the backends kind and cluster.
#[cfg(not(feature = "clusters"))]
pub(crate) const CLUSTERS: &str = "this chainbreak was built without real clusters: make build";

/// Of pulling images.
#[cfg(not(feature = "images"))]
pub(crate) const IMAGES: &str = "this chainbreak was built without images: make build";

/// Of what the backends kind and cluster need, where they are not: whoever builds the whole program wants to know.
#[cfg(not(feature = "clusters"))]
pub(crate) fn doctor() -> [Finding; 3] {
    let docker = succeeds(&["docker", "info"])
        .map_err(|why| format!("no Docker engine answers ({why})\nsudo apt-get install docker.io"));
    let kind = succeeds(&["kind", "version"])
        .map_err(|why| format!("{why}\nsee https://kind.sigs.k8s.io/docs/user/quick-start"));
    let real = Err(CLUSTERS.to_owned());
    [("docker", docker), ("kind", kind), ("real clusters", real)].map(|(name, found)| Finding {
        name: name.to_owned(),
        found,
    })
}
