//! The backend.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_engine::{
    backend::{Backend, BackendError, RaiseError},
    cluster::Cluster,
    log::EventLog,
};
use chainbreak_model::case::{Capabilities, Case};
use tokio::time::Instant;

use crate::made::{
    journal::Journal, owned_cluster::OwnedCluster, raise::Raising, spec::Options, survey,
};

/// Real clusters, made by kind.
#[derive(Debug)]
pub(super) struct KindBackend {
    options: Options,
    journal: Journal,
    held: Mutex<Option<Arc<OwnedCluster>>>,
}

impl KindBackend {
    /// With what a person chose.
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            journal: Journal::of_user(),
            held: Mutex::new(None),
        }
    }
}

#[async_trait]
impl Backend for KindBackend {
    async fn survey(&self) -> Capabilities {
        survey::survey(&self.options).await
    }

    async fn raise(
        &self,
        case: &Case,
        log: &EventLog,
        within: Duration,
    ) -> Result<Box<dyn Cluster>, RaiseError> {
        let raising = Raising {
            case,
            log,
            options: &self.options,
            until: Instant::now() + within * 5 / 6,
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

    async fn finish(&self) -> Result<(), BackendError> {
        let held = self
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match held {
            Some(owned) => Ok(owned.delete().await?),
            None => Ok(()),
        }
    }
}
