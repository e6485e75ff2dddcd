//! What a program says that was built without a feature, as `make demo` builds it.

#[cfg(not(feature = "clusters"))]
use chainbreak_engine::backend::{Finding, kind_findings};

/// Of the backends kind and cluster.
#[cfg(not(feature = "clusters"))]
pub(crate) const CLUSTERS: &str = "this chainbreak was built without real clusters: make build";

/// Of pulling images.
#[cfg(not(feature = "images"))]
pub(crate) const IMAGES: &str = "this chainbreak was built without images: make build";

/// Of the report as a page.
#[cfg(not(feature = "html"))]
pub(crate) const HTML: &str = "this chainbreak was built without HTML reports: make build";

/// Of what the backends kind and cluster need, where they are not: a person who will build the whole program wants to know.
#[cfg(not(feature = "clusters"))]
pub(crate) fn doctor() -> impl Iterator<Item = Finding> {
    let real = Finding {
        name: "real clusters".to_owned(),
        found: Err(CLUSTERS.to_owned()),
    };
    kind_findings().into_iter().chain([real])
}

/// Of `chainbreak.toml`, where there is one: a run without what it says is not the one that was wanted.
#[cfg(not(feature = "profiles"))]
pub(crate) fn profiles() -> anyhow::Result<()> {
    let verb = std::env::args_os().nth(1).unwrap_or_default();
    let takes = ["run", "plan", "list", "mutate", "matrix", "parity"];
    let takes = takes.iter().any(|it| verb == *it);
    if takes && std::path::Path::new("chainbreak.toml").exists() {
        let words = "this chainbreak was built without chainbreak.toml, which is here: make build";
        return Err(crate::cases::invalid(words));
    }
    Ok(())
}
