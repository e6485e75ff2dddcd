//! What planned cases want of real agents is made or pulled before the first of them runs, each release once: then every source is a path.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use chainbreak_model::{
    case::{AgentSource, Case, Fault, KubeProxySpec, Step},
    names::AgentName,
    plan::Planned,
};
use chainbreak_sources::{Builder, Cache, Release};

#[cfg(feature = "images")]
use crate::images::{self, Images};
use crate::{
    agents::{patiently, pins, say},
    cases::invalid,
};

/// The cases with paths where they have `build` or `image`. The first that cannot be had ends all: a run without it would not be what was
/// asked for.
pub(crate) async fn provide(mut planned: Vec<Planned>) -> anyhow::Result<Vec<Planned>> {
    let mut built = BTreeMap::<Release, PathBuf>::new();
    #[cfg(feature = "images")]
    let mut images = Images::default();
    #[cfg(not(feature = "images"))]
    without_images(&planned)?;
    let pins = pins()?;
    for plan in &mut planned {
        let Planned::Run(case) = plan else { continue };
        let wanted = wanted(case);
        let mut releases = BTreeMap::new();
        for written in wanted {
            let release = pins.meant(&written).map_err(invalid)?;
            if let std::collections::btree_map::Entry::Vacant(entry) = built.entry(release) {
                let cache = Cache::of_environment()?;
                let builder = Builder::new(&cache);
                let path = match builder.at_hand(release)? {
                    Some(path) => path,
                    None => patiently(builder.build(release, &say)).await?,
                };
                entry.insert(path);
            }
            releases.insert(written, (release, built[&release].clone()));
        }
        give(case, releases);
        #[cfg(feature = "images")]
        for agent in AgentName::ALL {
            unpack(case, agent, &mut images).await?;
        }
    }
    Ok(planned)
}

/// Refuses cases that want an image: it would have to be pulled.
#[cfg(not(feature = "images"))]
fn without_images(planned: &[Planned]) -> anyhow::Result<()> {
    let wants = |case: &Case| {
        let mut sources = AgentName::ALL
            .iter()
            .map(|agent| case.cluster.source(*agent));
        sources.any(|source| matches!(source, Some(AgentSource::Image(_))))
    };
    let first = planned.iter().find_map(|plan| match plan {
        Planned::Run(case) if wants(case) => Some(case.id()),
        _ => None,
    });
    match first {
        Some(id) => Err(invalid(format!(
            "{id}: {}",
            crate::without_features::IMAGES
        ))),
        None => Ok(()),
    }
}

/// Gives a case the root of the image that it wants for an agent.
#[cfg(feature = "images")]
async fn unpack(case: &mut Case, agent: AgentName, images: &mut Images) -> anyhow::Result<()> {
    let cluster = &mut case.cluster;
    let (Some(AgentSource::Image(name)), Some(version)) =
        (cluster.source(agent).cloned(), cluster.version(agent))
    else {
        return Ok(());
    };
    let kept = images.get(agent, name.as_deref(), version).await?;
    let source = AgentSource::Path(kept.path);
    if let Some(spec) = cluster.agent_mut(agent) {
        *spec.source = source;
        *spec.version = kept.version;
    }
    Ok(())
}

/// The versions of kube-proxy that are to be built for a case, the one that it begins with first.
fn wanted(case: &Case) -> Vec<String> {
    let builds = |spec: &KubeProxySpec| spec.source == AgentSource::Build;
    if !case.cluster.kube_proxy.as_ref().is_some_and(builds) {
        return Vec::new();
    }
    versions(case, AgentName::KubeProxy)
}

/// The versions of an agent in a case: what it begins with, and what it is upgraded to.
fn versions(case: &Case, agent: AgentName) -> Vec<String> {
    let later = case.timeline.iter().filter_map(|step| match step {
        Step::Fault {
            fault: Fault::Upgrade { to, .. },
            ..
        } => to.get(&agent).cloned(),
        _ => None,
    });
    let first = case.cluster.version(agent).map(str::to_owned);
    first.into_iter().chain(later).collect()
}

fn give(case: &mut Case, mut releases: BTreeMap<String, (Release, PathBuf)>) {
    let Some(spec) = &mut case.cluster.kube_proxy else {
        return;
    };
    if let Some((release, path)) = releases.get(&spec.version) {
        *spec = KubeProxySpec {
            source: AgentSource::Path(path.clone()),
            ..spec.at(&release.to_string())
        };
        let later = std::mem::take(&mut releases).into_iter();
        let later = later.map(|(written, (_, path))| (written, path));
        case.cluster.releases = later.collect();
    }
}

/// What is said of agents that models play where real ones were asked for, and what would bring those. Of an upgrade one of two
/// versions may be what is missing.
pub(crate) fn standing_in(planned: &[Planned]) -> anyhow::Result<Vec<String>> {
    let mut models = BTreeMap::<(AgentName, String), (usize, BTreeSet<String>)>::new();
    for plan in planned {
        let Planned::Run(case) = plan else { continue };
        for agent in AgentName::ALL {
            if case.cluster.source(agent) == Some(&AgentSource::Model)
                && let Some(version) = case.cluster.version(agent)
            {
                let (cases, needed) = models.entry((agent, version.to_owned())).or_default();
                *cases += 1;
                needed.extend(versions(case, agent));
            }
        }
    }
    let mut lines = Vec::new();
    for ((agent, version), (cases, needed)) in models {
        let noun = if cases == 1 { "case" } else { "cases" };
        let hints = match agent {
            AgentName::KubeProxy => to_build(&needed)?,
            AgentName::Felix => to_pull(agent, &needed),
        };
        let stands_in = format!("{agent} {version}: its model stands in, in {cases} {noun}");
        let hints = hints.iter().map(|hint| format!("({hint})"));
        let line: Vec<String> = std::iter::once(stands_in).chain(hints).collect();
        lines.push(line.join(" "));
    }
    Ok(lines)
}

/// The commands that build the releases of kube-proxy that are not at hand.
fn to_build(needed: &BTreeSet<String>) -> anyhow::Result<BTreeSet<String>> {
    let (pins, cache) = (pins()?, Cache::of_environment()?);
    let builder = Builder::new(&cache);
    let mut commands = BTreeSet::new();
    for version in needed {
        let Ok(release) = pins.meant(version) else {
            continue;
        };
        if release.can_be_built() && builder.at_hand(release)?.is_none() {
            commands.insert(format!("chainbreak agents build kube-proxy {release}"));
        }
    }
    Ok(commands)
}

#[cfg(feature = "images")]
fn to_pull(agent: AgentName, needed: &BTreeSet<String>) -> BTreeSet<String> {
    let images = needed.iter();
    let images = images.filter_map(|version| images::of_version(agent, version).ok());
    images
        .map(|(image, _)| format!("chainbreak agents pull {image}"))
        .collect()
}

#[cfg(not(feature = "images"))]
fn to_pull(_agent: AgentName, _needed: &BTreeSet<String>) -> BTreeSet<String> {
    BTreeSet::new()
}
