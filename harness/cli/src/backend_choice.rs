//! What raises the clusters of a run, as the command line says, and what follows from that.

use std::time::Duration;

use chainbreak_engine::cluster::Backend;
#[cfg(feature = "clusters")]
use chainbreak_kind::{
    Kind, Options, Way,
    error::KindError,
    existing::{Existing, InExisting},
};
use chainbreak_lab::Lab;
use chainbreak_model::case::Capabilities;
#[cfg(feature = "clusters")]
use chainbreak_model::{case::Case, plan::Planned};
use serde::{Deserialize, Serialize};

#[cfg(feature = "clusters")]
use crate::args::selection::CalicoInstall;
use crate::args::selection::{BackendName, Selection};

/// Cases in the lab for each core: they mostly wait.
const JOBS_PER_CORE: usize = 7;

/// A backend with its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BackendChoice {
    Lab,
    #[cfg(feature = "clusters")]
    Kind(Options),
    #[cfg(feature = "clusters")]
    Cluster(Existing),
}

impl BackendChoice {
    pub(crate) fn of(selection: &Selection) -> Self {
        match selection.backend {
            BackendName::Lab => Self::Lab,
            #[cfg(feature = "clusters")]
            BackendName::Kind => {
                let kind = selection.kind.clone();
                Self::Kind(Options {
                    reuse: kind.reuse,
                    preload: kind.preload,
                    image: kind.image,
                    nginx_image: kind.nginx_image,
                    calico_install: match kind.calico_install {
                        CalicoInstall::Manifest => Way::Manifest,
                        CalicoInstall::Operator => Way::Operator,
                    },
                    calico_manifest: kind.calico_manifest,
                })
            }
            #[cfg(feature = "clusters")]
            BackendName::Cluster => {
                let cluster = selection.cluster.clone();
                Self::Cluster(Existing {
                    node_image: cluster.node_image,
                    allow_disruption: cluster.allow_disruption,
                    ..Existing::new(cluster.kubeconfig.unwrap_or_default(), cluster.context)
                })
            }
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Lab => "lab",
            #[cfg(feature = "clusters")]
            Self::Kind(_) => "kind",
            #[cfg(feature = "clusters")]
            Self::Cluster(_) => "cluster",
        }
    }

    /// What can run; in the lab, in this one.
    pub(crate) async fn survey(&self, lab: &Lab) -> Capabilities {
        match self {
            Self::Lab => lab.survey().await,
            #[cfg(feature = "clusters")]
            Self::Kind(options) => Kind::new(options.clone()).survey().await,
            #[cfg(feature = "clusters")]
            Self::Cluster(existing) => InExisting::new(existing.clone()).survey().await,
        }
    }

    /// The name of an existing cluster that is not to be disturbed.
    #[cfg(feature = "clusters")]
    pub(crate) fn undisturbed(&self) -> Result<Option<String>, KindError> {
        match self {
            Self::Lab | Self::Kind(_) => Ok(None),
            Self::Cluster(existing) => existing.undisturbed(),
        }
    }

    /// What is planned, as it runs there: in an existing cluster in namespaces of its own.
    #[cfg(feature = "clusters")]
    pub(crate) async fn rewrite_namespaces(&self, planned: Vec<Planned>) -> Vec<Planned> {
        let Self::Cluster(existing) = self else {
            return planned;
        };
        let run = planned.iter().filter_map(|it| match it {
            Planned::Run(case) => Some(Case::clone(case)),
            Planned::Skip(_) => None,
        });
        let cases = existing.rewrite_namespaces(run.collect()).await;
        let mut rewritten = cases.into_iter();
        let rewritten = |it| match it {
            Planned::Run(case) => Planned::Run(rewritten.next().map_or(case, Box::new)),
            skip @ Planned::Skip(_) => skip,
        };
        planned.into_iter().map(rewritten).collect()
    }

    /// What a run takes for given: a backend that was asked for by name and cannot run is trouble of every case, with its
    /// evidence, and not a reason to skip them all.
    pub(crate) fn demanded(&self, mut found: Capabilities) -> Capabilities {
        if *self != Self::Lab
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
            #[cfg(feature = "clusters")]
            Self::Kind(_) | Self::Cluster(_) => 1,
        }
    }

    /// How long a cluster may take until it is ready: images may have to be pulled.
    pub(crate) fn ready_within(&self) -> Duration {
        match self {
            Self::Lab => chainbreak_engine::run::READY_WITHIN,
            #[cfg(feature = "clusters")]
            Self::Kind(_) => chainbreak_kind::READY_WITHIN,
            #[cfg(feature = "clusters")]
            Self::Cluster(_) => Duration::from_secs(5 * 60),
        }
    }

    /// What a worker may take to end a run that it was told to end, its cluster included.
    pub(crate) fn grace(&self) -> Duration {
        match self {
            Self::Lab => Duration::from_secs(15),
            #[cfg(feature = "clusters")]
            Self::Kind(_) | Self::Cluster(_) => Duration::from_secs(150),
        }
    }
}
