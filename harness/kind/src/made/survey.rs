//! What of the clusters that kind makes this machine can run, found out by asking.

use std::path::Path;

use chainbreak_model::case::Capabilities;

use super::{calico, docker, images, spec::Options};
use crate::{
    error::KindError,
    shared::{
        restart::repository,
        survey::{HOSTS, SHORT, of, upgrade_to},
    },
    tool::Tool,
    versions::{Version, Versions},
};

/// What we do for a cluster of ours, and not for somebody's: hosts beside it, which are containers as its nodes are, and what makes
/// nodes fit for a case.
const OURS: [&str; 6] = [
    "ended-commands",
    "held-commands",
    HOSTS,
    "load-balancers",
    "node-sysctls",
    "vpc-cni",
];

/// Every capability that cases may need.
pub(crate) async fn survey(options: &Options) -> Capabilities {
    let mut found = of("kind", here(options).await);
    if let Some(kind) = found.0.get("kind").cloned() {
        let ours = OURS.map(|name| (name.to_owned(), kind.clone()));
        found.0.extend(ours);
        let ipvs = kind.clone().and_then(|()| has_ipvs());
        found.0.insert("ipvs".to_owned(), ipvs);
        let later = later(options).await.unwrap_or_default().into_iter();
        found
            .0
            .extend(later.map(|version| (upgrade_to(version), kind.clone())));
    }
    found
}

/// The versions that nodes can be upgraded to: those that Docker has of the chosen image's repository, or all that are pinned.
async fn later(options: &Options) -> Result<Vec<Version>, KindError> {
    let Some(image) = &options.image else {
        return Ok(Versions::pinned()?.versions());
    };
    let all = docker::tags(repository(image)).await?;
    Ok(all.iter().filter_map(|name| images::tagged(name)).collect())
}

/// The Kubernetes versions that can be run: the chosen image's, or all that are pinned.
async fn here(options: &Options) -> Result<Vec<Version>, KindError> {
    let pins = Versions::pinned()?;
    kind(&pins).await?;
    docker::docker(["info", "--format", "{{.ServerVersion}}"]).await?;
    if let Some(manifest) = &options.calico_manifest {
        calico::is_readable(manifest)?;
    }
    calico::own_images::is_there(&options.calico_images)?;
    match &options.image {
        Some(image) => {
            docker::have(image).await?;
            Ok(vec![images::chosen(image).await?.version])
        }
        None => Ok(pins.versions()),
    }
}

/// Whether the kernel, which is that of the nodes, too, has IPVS: loaded, or to be loaded when kube-proxy asks for it.
fn has_ipvs() -> Result<(), String> {
    if Path::new("/proc/net/ip_vs").exists() {
        return Ok(());
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = Path::new("/lib/modules").join(release.trim());
    let listed = ["modules.dep", "modules.builtin"].map(|list| modules.join(list));
    let mut listed = listed
        .iter()
        .filter_map(|list| std::fs::read_to_string(list).ok());
    if listed.any(|list| list.contains("/ip_vs.ko")) {
        return Ok(());
    }
    Err("this machine's kernel has no ip_vs, which kube-proxy's ipvs mode takes".to_owned())
}

/// What the kind that is here says of itself, if it is new enough.
pub(crate) async fn kind(pins: &Versions) -> Result<String, KindError> {
    let said = Tool::new(SHORT, ["kind", "version"]).output().await?;
    let said = said.trim();
    // `kind v0.27.0 go1.23.6 linux/amd64`, or `kind version 0.27.0` with `-q`.
    let version = said.split_whitespace().find_map(Version::parse);
    let wanted = pins.kind.at_least;
    if version.is_some_and(|version| version >= wanted) {
        Ok(said.to_owned())
    } else {
        let found = version.map_or_else(|| said.to_owned(), |version| version.to_string());
        Err(KindError::OldKind { found, wanted })
    }
}
