//! What a program says that was built without a feature, as `make demo` builds it.

/// Of the backends kind and cluster.
#[cfg(not(feature = "clusters"))]
pub(crate) const CLUSTERS: &str = "this chainbreak was built without real clusters: make build";

/// Of pulling images.
#[cfg(not(feature = "images"))]
pub(crate) const IMAGES: &str = "this chainbreak was built without images: make build";
