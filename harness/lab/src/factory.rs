//! The lab, as a program offers it.

use std::{num::NonZero, thread::available_parallelism, time::Duration};

use async_trait::async_trait;
use chainbreak_engine::{
    backend::{Backend, BackendFactory, BackendOption, EBPF, Finding, Given, Ground, HOST_CHANGES},
    run::READY_WITHIN,
};

use crate::{lab::Lab, limits::Limits};

/// The backend `lab`.
#[derive(Debug)]
pub struct LabFactory;

#[async_trait]
impl BackendFactory for LabFactory {
    fn name(&self) -> &'static str {
        "lab"
    }

    fn about(&self) -> &'static str {
        "Network namespaces on this machine's kernel"
    }

    fn options(&self) -> (&'static str, &'static [BackendOption]) {
        ("Options of --backend lab", &[])
    }

    fn ground(&self) -> Ground {
        Ground::World
    }

    fn jobs(&self) -> usize {
        // Rounded up to a core where a quota grants less.
        let cores = available_parallelism().map_or(2, NonZero::get);
        Limits::read().jobs(cores)
    }

    fn starts(&self) -> usize {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Limits::read().starts(cores)
    }

    fn ready_within(&self) -> Duration {
        READY_WITHIN
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn settle(&self, given: Given) -> Given {
        given
    }

    fn open(&self, given: &Given) -> Box<dyn Backend> {
        Box::new(Lab {
            host_changes: given.is_on(HOST_CHANGES),
            ebpf: given.is_on(EBPF),
        })
    }

    async fn doctor(&self) -> Vec<Finding> {
        let found = Lab::default().survey().await.0.into_iter();
        let findings = found.map(|(name, found)| Finding { name, found });
        findings.collect()
    }
}
