//! What Docker is asked: which containers of a cluster there are, whose they are, and which images.

use std::time::Duration;

use crate::{
    config::OURS,
    error::KindError,
    name::{ClusterName, PREFIX},
    tool::Tool,
};

/// The label that kind gives its containers; the value is the cluster's name.
const KIND_LABEL: &str = "io.x-k8s.kind.cluster";
/// What Docker may take to answer.
const SHORT: Duration = Duration::from_secs(30);
/// What it may take to pull an image.
const PULL: Duration = Duration::from_secs(600);

/// A node's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) running: bool,
}

/// Runs `docker` with a short deadline.
pub(crate) async fn docker<S: Into<String>>(
    arguments: impl IntoIterator<Item = S>,
) -> Result<String, KindError> {
    command(SHORT, arguments).output().await
}

fn command<S: Into<String>>(within: Duration, arguments: impl IntoIterator<Item = S>) -> Tool {
    let arguments = arguments.into_iter().map(Into::into);
    Tool::new(
        within,
        std::iter::once("docker".to_owned()).chain(arguments),
    )
}

/// What puts a command into a container.
pub(crate) fn entry(container: &str) -> Vec<String> {
    ["docker", "exec", "--interactive", container]
        .map(str::to_owned)
        .to_vec()
}

/// The containers of a cluster, whoever made it.
pub(crate) async fn containers(name: &ClusterName) -> Result<Vec<Container>, KindError> {
    let filter = format!("label={KIND_LABEL}={name}");
    let format = "{{.Names}}\t{{.State}}";
    let listed = docker(["ps", "--all", "--filter", &filter, "--format", format]).await?;
    let container = |line: &str| {
        let (name, state) = line.split_once('\t')?;
        Some(Container {
            name: name.to_owned(),
            running: state == "running",
        })
    };
    Ok(listed.lines().filter_map(container).collect())
}

/// Whether we made the container of a node: kubeadm's configuration, which kind puts there before anything runs, has
/// our label with the cluster's name.
pub(crate) async fn is_ours(container: &str, name: &ClusterName) -> Result<bool, KindError> {
    let file = format!("{container}:/kind/kubeadm.conf");
    match docker(["cp", &file, "-"]).await {
        Ok(archive) => Ok(archive.contains(&format!("{OURS}={name}"))),
        // The container is another's, or has not come so far.
        Err(KindError::Failed { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

/// The clusters whose names may be ours.
pub(crate) async fn clusters() -> Result<Vec<ClusterName>, KindError> {
    let filter = format!("label={KIND_LABEL}");
    let format = format!("{{{{.Label \"{KIND_LABEL}\"}}}}");
    let listed = docker(["ps", "--all", "--filter", &filter, "--format", &format]).await?;
    let ours = listed.lines().filter(|name| name.starts_with(PREFIX));
    let mut names: Vec<ClusterName> = ours.filter_map(ClusterName::read).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// An image's labels, as JSON; `None` when it is not here.
pub(crate) async fn labels(image: &str) -> Result<Option<serde_json::Value>, KindError> {
    let format = "{{json .Config.Labels}}";
    match docker(["image", "inspect", image, "--format", format]).await {
        Ok(labels) => Ok(Some(serde_json::from_str(&labels).unwrap_or_default())),
        Err(KindError::Failed { said, .. }) if said.contains("No such image") => Ok(None),
        Err(other) => Err(other),
    }
}

/// Has the image here, pulled if need be.
pub(crate) async fn have(image: &str) -> Result<(), KindError> {
    if labels(image).await?.is_some() {
        return Ok(());
    }
    match command(PULL, ["pull", "--quiet", image]).output().await {
        Ok(_id) => Ok(()),
        Err(KindError::Failed { said, .. }) => Err(KindError::Image {
            image: image.to_owned(),
            said,
        }),
        Err(other) => Err(other),
    }
}
