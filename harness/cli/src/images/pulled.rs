//! Images that are pulled: by their names, or as those of the versions that cases have.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context;
use chainbreak_lab::error::LabError;
use chainbreak_model::names::AgentName;
use chainbreak_sources::{
    Cache, Kept, Puller, SourceError,
    image::{ImageError, Reference, reference},
    pinned,
};

use super::Absent;
use crate::{
    agents::{patiently, pins, say},
    cases::invalid,
};

/// Pulls images, prints where their roots are.
pub(crate) async fn pull(names: &[String]) -> anyhow::Result<()> {
    let images: Vec<Reference> = names.iter().map(|it| read(it)).collect::<Result<_, _>>()?;
    let cache = Cache::of_environment()?;
    let puller = Puller::of_environment(&cache)?;
    for image in images {
        let kept = patiently(puller.pull(&image, ask, &say)).await?;
        say(&format!("{} {} is in it", kept.agent, kept.version));
        crate::say(&format!("{}\n", kept.path.display()))?;
    }
    Ok(())
}

/// An agent's image that a person named, if it is here or is to be pulled.
pub(crate) async fn named(
    agent: AgentName,
    name: &str,
    absent: Absent,
) -> anyhow::Result<Option<Kept>> {
    let image = read(name)?;
    let cache = Cache::of_environment()?;
    let puller = Puller::of_environment(&cache)?;
    let kept = match (puller.at_hand(&image)?, absent) {
        (Some(kept), _) => kept,
        (None, Absent::Left) => return Ok(None),
        (None, Absent::Pulled) => patiently(puller.pull(&image, ask, &say)).await?,
    };
    if kept.agent == agent {
        Ok(Some(kept))
    } else {
        let other = kept.agent;
        Err(invalid(format!(
            "{name} is an image of {other}, not of {agent}"
        )))
    }
}

/// Those of the versions that cases have, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Images(BTreeMap<(AgentName, String), Kept>);

impl Images {
    /// The image of that name, or of that version.
    pub(crate) async fn get(
        &mut self,
        agent: AgentName,
        name: Option<&str>,
        version: &str,
    ) -> anyhow::Result<Kept> {
        let (name, wanted) = if let Some(name) = name {
            (name.to_owned(), None)
        } else {
            let (name, version) = of_version(agent, version)?;
            (name, Some(version))
        };
        let key = (agent, name.clone());
        if !self.0.contains_key(&key) {
            let pulled = named(agent, &name, Absent::Pulled).await?;
            let kept = pulled.context("an image that is pulled is here")?;
            self.0.insert(key.clone(), kept);
        }
        let kept = self.0[&key].clone();
        match wanted {
            Some(wanted) if kept.version != wanted => {
                let has = kept.version;
                let why = ImageError::OtherVersion { agent, has, wanted };
                Err(SourceError::Image { name, why }.into())
            }
            _ => Ok(kept),
        }
    }
}

/// The image that a version comes in, and which version exactly that is.
pub(crate) fn of_version(agent: AgentName, written: &str) -> anyhow::Result<(String, String)> {
    match agent {
        AgentName::KubeProxy => {
            let release = pins()?.meant(written).map_err(invalid)?;
            let image = format!("registry.k8s.io/kube-proxy:{}", release.tag());
            Ok((image, release.to_string()))
        }
        AgentName::Felix => pinned::felix(written)?.ok_or_else(|| {
            let why = "no Calico of that version is pinned: write its patch";
            invalid(format!("felix {written}: {why}, as {written}.0"))
        }),
    }
}

fn read(name: &str) -> anyhow::Result<Reference> {
    reference(name).map_err(|error| invalid(error.to_string()))
}

/// Asks an agent for its version, in a world of its own, as before every run.
async fn ask(agent: AgentName, root: &Path) -> Result<String, String> {
    match chainbreak_lab::identify(root, agent).await {
        Ok(identity) => Ok(identity.version),
        // The path is that of a place to work in, and gone.
        Err(LabError::Agent { why, .. }) => Err(why),
        Err(error) => Err(error.to_string()),
    }
}
