//! What raises the clusters of a run, as the command line says, and what follows from that.

use chainbreak_engine::backend::{
    Backend, BackendError, BackendFactory, Doing, EBPF, Given, Ground, HOST_CHANGES,
};
use chainbreak_model::{
    case::{Capabilities, Case},
    plan::Planned,
};
use serde::{Deserialize, Serialize};

use crate::{args::selection::Selection, registry::Registered};

/// A backend with its options.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BackendChoice {
    backend: Registered,
    given: Given,
}

impl BackendChoice {
    pub(crate) fn of(selection: &Selection) -> Self {
        let backend = selection.backend;
        let given = backend.factory().settle(selection.of_backends.0.clone());
        Self { backend, given }
    }

    /// The same where cases may change what the machine's worlds share, if a person lets them.
    pub(crate) fn with_host_changes(mut self, allowed: bool) -> Self {
        if allowed {
            self.given.set(HOST_CHANGES, "");
        }
        self
    }

    /// The same where worlds may load eBPF programs, if a person lets them.
    pub(crate) fn with_ebpf(mut self, allowed: bool) -> Self {
        if allowed {
            self.given.set(EBPF, "");
        }
        self
    }

    /// Whether they may.
    pub(crate) fn has_ebpf(&self) -> bool {
        self.given.is_on(EBPF)
    }

    pub(crate) fn factory(&self) -> &'static dyn BackendFactory {
        self.backend.factory()
    }

    /// With its options.
    pub(crate) fn open(&self) -> Box<dyn Backend> {
        self.factory().open(&self.given)
    }

    /// What can run.
    pub(crate) async fn survey(&self) -> Capabilities {
        self.open().survey().await
    }

    /// The name of a cluster of others that is not to be disturbed.
    pub(crate) fn undisturbed(&self) -> Result<Option<String>, BackendError> {
        let backend = self.open();
        match backend.shared() {
            Some(shared) => shared.undisturbed(),
            None => Ok(None),
        }
    }

    /// What is planned, as it runs there: in a cluster of others in namespaces of its own.
    pub(crate) async fn rewrite_namespaces(&self, planned: Vec<Planned>) -> Vec<Planned> {
        let backend = self.open();
        let Some(shared) = backend.shared() else {
            return planned;
        };
        let run = planned.iter().filter_map(|it| match it {
            Planned::Run(case) => Some(Case::clone(case)),
            Planned::Skip(_) => None,
        });
        let cases = shared.rewrite_namespaces(run.collect()).await;
        let mut rewritten = cases.into_iter();
        let rewritten = |it| match it {
            Planned::Run(case) => Planned::Run(rewritten.next().map_or(case, Box::new)),
            skip @ Planned::Skip(_) => skip,
        };
        planned.into_iter().map(rewritten).collect()
    }

    /// What each of the cases that are to run would do to a cluster of others, in their order; nothing where they have one for themselves.
    pub(crate) async fn rehearse(
        &self,
        planned: &[Planned],
    ) -> Result<Vec<Vec<Doing>>, BackendError> {
        let backend = self.open();
        let Some(shared) = backend.shared() else {
            return Ok(Vec::new());
        };
        let run = planned.iter().filter_map(|it| match it {
            Planned::Run(case) => Some(case.as_ref()),
            Planned::Skip(_) => None,
        });
        shared.rehearse(&run.collect::<Vec<_>>()).await
    }

    /// Why the real clusters that were asked for cannot be had.
    pub(crate) fn absent(&self, found: &Capabilities) -> Option<String> {
        let real = self.factory().ground() == Ground::Real;
        let own = found.0.get(self.factory().name()).filter(|_| real)?;
        own.clone().err()
    }

    /// What a run takes for given: real clusters that were asked for and cannot be had are trouble of every case, with its
    /// evidence, and not a reason to skip them all.
    pub(crate) fn demanded(&self, mut found: Capabilities) -> Capabilities {
        if let Some(reason) = self.absent(&found) {
            let missing = found
                .0
                .values_mut()
                .filter(|it| **it == Err(reason.clone()));
            missing.for_each(|it| *it = Ok(()));
        }
        found
    }
}
