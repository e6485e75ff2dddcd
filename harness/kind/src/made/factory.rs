//! Clusters that kind makes, as a program offers them.

use std::time::Duration;

use async_trait::async_trait;
use chainbreak_engine::backend::{
    Backend, BackendError, BackendFactory, BackendOption, Cleaning, Finding, Given, Ground, Takes,
    Wanted, kind_findings,
};
use chainbreak_model::case::Case;

use crate::made::{
    backend::KindBackend,
    calico::Way,
    clean,
    journal::Journal,
    spec::{Image, Options, Spec},
};

const REUSE: &str = "reuse";
const PRELOAD: &str = "preload";
const IMAGE: &str = "kind-image";
const NGINX_IMAGE: &str = "nginx-image";
const CALICO_INSTALL: &str = "calico-install";
const CALICO_MANIFEST: &str = "calico-manifest";
const CALICO_IMAGE: &str = "calico-image";
/// The word of [`CALICO_INSTALL`] for [`Way::Operator`].
const OPERATOR: &str = "operator";

const OPTIONS: [BackendOption; 7] = [
    option(
        REUSE,
        Takes::Nothing,
        "Keep clusters for cases, and runs, that need the same one; `chainbreak clean` deletes them",
    ),
    option(
        PRELOAD,
        Takes::Nothing,
        "Load pods' images into the nodes, as far as Docker has them or can pull them",
    ),
    option(
        IMAGE,
        Takes::Text("IMAGE"),
        "The node image, instead of the pinned one for the version",
    ),
    option(
        NGINX_IMAGE,
        Takes::Text("IMAGE"),
        "What answers on hosts outside of the cluster, instead of the pinned nginx",
    ),
    option(
        CALICO_INSTALL,
        Takes::OneOf(
            "CALICO_INSTALL",
            &[
                ("manifest", "By its manifests/calico.yaml"),
                (OPERATOR, "By the tigera operator"),
            ],
        ),
        "How Calico is installed",
    ),
    option(
        CALICO_MANIFEST,
        Takes::Path("FILE"),
        "Calico's manifest, or its operator's, instead of the pinned one for the version",
    ),
    option(
        CALICO_IMAGE,
        Takes::Text("[NAME=]IMAGE|ARCHIVE|FOLDER,…"),
        "Calico's images, instead of those that its manifest names: of Docker or a registry, of a `docker save`, or an unpacked root",
    ),
];

const fn option(name: &'static str, takes: Takes, help: &'static str) -> BackendOption {
    BackendOption {
        name,
        takes,
        wanted: Wanted::Freely,
        help,
    }
}

/// The backend `kind`.
#[derive(Debug)]
pub struct KindFactory;

#[async_trait]
impl BackendFactory for KindFactory {
    fn name(&self) -> &'static str {
        "kind"
    }

    fn about(&self) -> &'static str {
        "Real clusters in Docker containers, made by kind"
    }

    fn options(&self) -> (&'static str, &'static [BackendOption]) {
        ("Options of --backend kind", &OPTIONS)
    }

    fn ground(&self) -> Ground {
        Ground::Real
    }

    /// A cluster takes all of a machine.
    fn jobs(&self) -> usize {
        1
    }

    /// The cluster that it would have of an image of its Kubernetes. What can have none is at its end before it begins.
    fn kin(&self, case: &Case) -> Option<String> {
        let version = case.cluster.kubernetes_version().unwrap_or_default();
        let spec = Spec::of(case, Image::unseen(version), &Options::default());
        Some(spec.map_or_else(|_unable| String::new(), |spec| spec.name().to_string()))
    }

    /// Images may have to be pulled.
    fn ready_within(&self) -> Duration {
        Duration::from_secs(15 * 60)
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(150)
    }

    fn settle(&self, given: Given) -> Given {
        given
    }

    fn open(&self, given: &Given) -> Box<dyn Backend> {
        let text = |name| given.get(name).map(str::to_owned);
        Box::new(KindBackend::new(Options {
            reuse: given.is_on(REUSE),
            preload: given.is_on(PRELOAD),
            image: text(IMAGE),
            nginx_image: text(NGINX_IMAGE),
            calico_install: if given.get(CALICO_INSTALL) == Some(OPERATOR) {
                Way::Operator
            } else {
                Way::Manifest
            },
            calico_manifest: given.get(CALICO_MANIFEST).map(Into::into),
            calico_images: (given.get(CALICO_IMAGE).into_iter())
                .flat_map(|all| all.split(','))
                .map(str::to_owned)
                .collect(),
        }))
    }

    async fn doctor(&self) -> Vec<Finding> {
        kind_findings().into()
    }

    fn cleaning(&self) -> Option<&dyn Cleaning> {
        Some(self)
    }
}

#[async_trait]
impl Cleaning for KindFactory {
    fn options(&self) -> &'static [BackendOption] {
        &[]
    }

    async fn clean(
        &self,
        _: &Given,
        say: &mut (dyn FnMut(String) + Send),
    ) -> Result<bool, BackendError> {
        let journal = Journal::of_user();
        let left = clean::left(&journal).await?;
        for cluster in &left {
            let beside = clean::remove(&journal, cluster).await?;
            say(format!("deleted the cluster {cluster}, which no run uses"));
            for container in beside {
                say(format!("removed {container}, which stood beside it"));
            }
        }
        Ok(!left.is_empty())
    }
}
