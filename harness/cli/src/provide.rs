//! What planned cases want of real agents is made or pulled before the first of them runs, each release once: then every source is a path.

use std::{collections::BTreeMap, path::PathBuf};

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
    let Some(spec) = &case.cluster.kube_proxy else {
        return Vec::new();
    };
    if spec.source != AgentSource::Build {
        return Vec::new();
    }
    let later = case.timeline.iter().filter_map(|step| match step {
        Step::Fault {
            fault: Fault::Upgrade { to, .. },
            ..
        } => to.get(&AgentName::KubeProxy),
        _ => None,
    });
    std::iter::once(&spec.version)
        .chain(later)
        .cloned()
        .collect()
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

/// What is said of agents that models play where real ones were asked for.
pub(crate) fn standing_in(planned: &[Planned]) -> anyhow::Result<Vec<String>> {
    let mut models = BTreeMap::<(AgentName, String), usize>::new();
    for plan in planned {
        let Planned::Run(case) = plan else { continue };
        for agent in AgentName::ALL {
            if case.cluster.source(agent) == Some(&AgentSource::Model)
                && let Some(version) = case.cluster.version(agent)
            {
                *models.entry((agent, version.to_owned())).or_default() += 1;
            }
        }
    }
    let pins = pins()?;
    let line = |((agent, version), cases): ((AgentName, String), usize)| {
        let noun = if cases == 1 { "case" } else { "cases" };
        let hint = match agent {
            AgentName::KubeProxy => pins
                .meant(&version)
                .ok()
                .filter(|it| it.can_be_built())
                .map(|release| format!(" (chainbreak agents build kube-proxy {release})")),
            #[cfg(feature = "images")]
            AgentName::Felix => images::of_version(agent, &version)
                .ok()
                .map(|(image, _)| format!(" (chainbreak agents pull {image})")),
            #[cfg(not(feature = "images"))]
            AgentName::Felix => None,
        };
        let hint = hint.unwrap_or_default();
        format!("{agent} {version}: its model stands in, in {cases} {noun}{hint}")
    };
    Ok(models.into_iter().map(line).collect())
}
