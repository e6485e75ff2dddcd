//! What Docker is asked: which containers of a cluster there are, whose they are, and which images.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use serde::Deserialize;

use crate::{error::KindError, made::config::OURS, name::ClusterName, tool::Tool};

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

/// The containers beside a cluster of ours, by name: they have our label, with the cluster's name.
pub(crate) async fn beside(name: &ClusterName) -> Result<Vec<String>, KindError> {
    let filter = format!("label={OURS}={name}");
    let listed = docker(["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"]).await?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Removes containers of ours, running or not.
pub(crate) async fn remove(containers: &[String]) -> Result<(), KindError> {
    if containers.is_empty() {
        return Ok(());
    }
    let words = ["rm", "--force", "--volumes"].map(str::to_owned);
    let removed = docker(words.into_iter().chain(containers.iter().cloned())).await;
    removed.map(drop)
}

/// The end of what a container has said, as far as Docker tells.
pub(crate) async fn said(container: &str) -> String {
    let argv = ["docker", "logs", "--tail", "10", container];
    // On standard error, too: a shell brings them together.
    let script = ["sh", "-c", "\"$@\" 2>&1", "sh"];
    let said = Tool::new(SHORT, script.into_iter().chain(argv))
        .output()
        .await;
    said.unwrap_or_else(|error| error.to_string())
}

/// A container's networks by name, with its addresses there.
pub(crate) async fn networks(container: &str) -> Result<BTreeMap<String, Vec<IpAddr>>, KindError> {
    let format = "{{json .NetworkSettings.Networks}}";
    let said = docker(["container", "inspect", container, "--format", format]).await?;
    read_networks(&said).ok_or_else(|| {
        KindError::Unable(format!(
            "Docker says of the networks of {container}: {said}"
        ))
    })
}

/// The volume that a container has at that path.
pub(crate) async fn volume(container: &str, path: &str) -> Result<String, KindError> {
    let format = format!(
        "{{{{range .Mounts}}}}{{{{if eq .Destination {path:?}}}}}{{{{.Name}}}}{{{{end}}}}{{{{end}}}}"
    );
    let said = docker(["container", "inspect", container, "--format", &format]).await?;
    match said.trim() {
        "" => Err(KindError::Unable(format!(
            "{container} has no volume at {path}, which kind gives each node"
        ))),
        name => Ok(name.to_owned()),
    }
}

/// Docker's `NetworkSettings.Networks`. An address that a container does not have is empty.
fn read_networks(json: &str) -> Option<BTreeMap<String, Vec<IpAddr>>> {
    #[derive(Deserialize)]
    struct Network {
        #[serde(rename = "IPAddress")]
        v4: String,
        #[serde(rename = "GlobalIPv6Address")]
        v6: String,
    }
    let read: BTreeMap<String, Network> = serde_json::from_str(json).ok()?;
    let networks = read.into_iter().map(|(name, network)| {
        let all = [network.v4, network.v6].into_iter();
        (name, all.filter_map(|it| it.parse().ok()).collect())
    });
    Some(networks.collect())
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

/// The clusters whose names may be ours, with nodes or only with containers beside them.
pub(crate) async fn clusters() -> Result<Vec<ClusterName>, KindError> {
    let mut names = Vec::new();
    for label in [KIND_LABEL, OURS] {
        let filter = format!("label={label}");
        let format = format!("{{{{.Label \"{label}\"}}}}");
        let listed = docker(["ps", "--all", "--filter", &filter, "--format", &format]).await?;
        names.extend(listed.lines().filter_map(ClusterName::read));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// What tells an image from others of its name; `None` when it is not here.
pub(crate) async fn id(image: &str) -> Result<Option<String>, KindError> {
    match docker(["image", "inspect", image, "--format", "{{.Id}}"]).await {
        Ok(id) => Ok(Some(id.trim().to_owned())),
        Err(KindError::Failed { said, .. }) if said.contains("No such image") => Ok(None),
        Err(other) => Err(other),
    }
}

/// The images of a repository that are here, by their whole names.
pub(crate) async fn tags(repository: &str) -> Result<Vec<String>, KindError> {
    let format = "{{.Repository}}:{{.Tag}}";
    let listed = docker(["image", "list", repository, "--format", format]).await?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Has the image here, pulled if need be.
pub(crate) async fn have(image: &str) -> Result<(), KindError> {
    if id(image).await?.is_some() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_the_addresses_that_docker_says_it_has() {
        let said = r#"{"kind":{"IPAddress":"172.18.0.4","IPPrefixLen":16,"GlobalIPv6Address":"fc00::4"},
            "other":{"IPAddress":"172.19.0.2","GlobalIPv6Address":""}}"#;
        let read = read_networks(said).unwrap();
        let kind: Vec<String> = read["kind"].iter().map(ToString::to_string).collect();
        assert_eq!(kind, ["172.18.0.4", "fc00::4"]);
        assert_eq!(read["other"].len(), 1);
        assert_eq!(read_networks("no such container"), None);
    }
}
