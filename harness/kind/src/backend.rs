//! The backend.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_engine::{
    cluster::{Backend, Cluster, RaiseError},
    log::EventLog,
};
use chainbreak_model::case::{Capabilities, Case};

use crate::{
    error::KindError, journal::Journal, owned_cluster::OwnedCluster, raise::Raising, spec::Options,
    survey,
};

/// What a cluster may take to be ready: images may have to be pulled.
pub const READY_WITHIN: Duration = Duration::from_secs(15 * 60);

/// Real clusters, made by kind.
#[derive(Debug)]
pub struct Kind {
    options: Options,
    ready_within: Duration,
    journal: Journal,
    held: Mutex<Option<Arc<OwnedCluster>>>,
}

impl Kind {
    /// With what a person chose.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            ready_within: READY_WITHIN,
            journal: Journal::of_user(),
            held: Mutex::new(None),
        }
    }

    /// The same with another deadline for a cluster to be ready, which who calls `raise` keeps.
    #[must_use]
    pub fn ready_within(self, ready_within: Duration) -> Self {
        Self {
            ready_within,
            ..self
        }
    }

    /// Deletes what was begun and never handed over: a cluster whose raising failed, was too slow, or was interrupted.
    /// To be called when a case is over, whatever became of it.
    pub async fn finish(&self) -> Result<(), KindError> {
        let held = self
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match held {
            Some(owned) => owned.delete().await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Backend for Kind {
    fn name(&self) -> &'static str {
        "kind"
    }

    async fn survey(&self) -> Capabilities {
        survey::survey(&self.options).await
    }

    async fn raise(&self, case: &Case, log: &EventLog) -> Result<Box<dyn Cluster>, RaiseError> {
        let raising = Raising {
            case,
            log,
            options: &self.options,
            ready_within: self.ready_within,
            journal: &self.journal,
            held: &self.held,
        };
        match Box::pin(raising.raise()).await {
            Ok(raised) => {
                // From here on the cluster is destroyed by whoever has it.
                self.held
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                Ok(Box::new(raised))
            }
            Err(error) => Err(RaiseError {
                what: "raise a cluster with kind".to_owned(),
                source: Box::new(error),
            }),
        }
    }
}
