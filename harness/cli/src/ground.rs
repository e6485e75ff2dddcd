//! What raises the clusters of a run, as the command line says, and what follows from that.

use std::time::Duration;

use chainbreak_engine::cluster::Backend;
use chainbreak_kind::{Kind, Options};
use chainbreak_lab::Lab;
use chainbreak_model::case::Capabilities;
use serde::{Deserialize, Serialize};

use crate::args::{BackendName, Selection};

/// Cases in the lab for each core: they mostly wait.
const JOBS_PER_CORE: usize = 7;

/// A backend with its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ground {
    Lab,
    Kind(Options),
}

impl Ground {
    pub(crate) fn of(selection: &Selection) -> Self {
        let kind = &selection.kind;
        match selection.backend {
            BackendName::Lab => Self::Lab,
            BackendName::Kind => Self::Kind(Options {
                reuse: kind.reuse,
                preload: kind.preload,
                image: kind.image.clone(),
                calico_manifest: kind.calico_manifest.clone(),
            }),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Kind(_) => "kind",
        }
    }

    /// What can run; in the lab, in this one.
    pub(crate) async fn survey(&self, lab: &Lab) -> Capabilities {
        match self {
            Self::Lab => lab.survey().await,
            Self::Kind(options) => Kind::new(options.clone()).survey().await,
        }
    }

    /// What a run takes for given: a backend that was asked for by name and cannot run is trouble of every case, with its
    /// evidence, and not a reason to skip them all.
    pub(crate) fn demanded(&self, mut found: Capabilities) -> Capabilities {
        if let Self::Kind(_) = self
            && let Some(Err(reason)) = found.0.get(self.name()).cloned()
        {
            let missing = found
                .0
                .values_mut()
                .filter(|it| **it == Err(reason.clone()));
            missing.for_each(|it| *it = Ok(()));
        }
        found
    }

    /// How many cases run side by side. A real cluster takes all of a machine.
    pub(crate) fn jobs(&self) -> usize {
        match self {
            Self::Lab => {
                let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
                cores * JOBS_PER_CORE
            }
            Self::Kind(_) => 1,
        }
    }

    /// How long a cluster may take until it is ready: images may have to be pulled.
    pub(crate) fn ready_within(&self) -> Duration {
        match self {
            Self::Lab => chainbreak_engine::run::READY_WITHIN,
            Self::Kind(_) => Duration::from_secs(15 * 60),
        }
    }

    /// What a worker may take to end a run that it was told to end, its cluster included.
    pub(crate) fn grace(&self) -> Duration {
        match self {
            Self::Lab => Duration::from_secs(15),
            Self::Kind(_) => Duration::from_secs(150),
        }
    }
}
