//! What a program says that was built without a feature, as `make demo` builds it.

#[cfg(not(feature = "profiles"))]
use std::path::Path;

#[cfg(not(feature = "clusters"))]
use chainbreak_engine::backend::{Finding, kind_findings};
#[cfg(not(feature = "profiles"))]
use clap::ArgMatches;

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

/// Of `chainbreak.toml`, where there is one, or a profile is named: a run without what it says is not the one that was wanted.
#[cfg(not(feature = "profiles"))]
pub(crate) fn profiles(folder: &Path, matches: &ArgMatches) -> anyhow::Result<()> {
    let given = matches.subcommand().map(|(_, given)| given);
    let names_one = given.and_then(|given| given.try_contains_id("profile").ok());
    match names_one {
        Some(names_one) if names_one || folder.join("chainbreak.toml").exists() => {
            let words = "this chainbreak was built without chainbreak.toml: make build";
            Err(crate::cases::invalid(words))
        }
        _ => Ok(()),
    }
}
