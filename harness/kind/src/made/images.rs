//! Which images a case needs: the nodes' own, and those of its pods.

use std::{collections::BTreeSet, time::Duration};

use chainbreak_model::case::Case;
use serde_json::Value;

use crate::{
    error::KindError,
    made::{
        docker,
        spec::{self, Image, Options},
    },
    shared::{
        nodes::{Node, Nodes},
        pods::spec_path,
    },
    tool::Tool,
    versions::{Version, Versions},
};

/// What loading an image into a node may take.
const LOAD: Duration = Duration::from_secs(300);
/// What reads an image into a node's containerd.
const IMPORT: [&str; 6] = ["ctr", "-n", "k8s.io", "images", "import", "-"];

/// The node image for a case, which is here when this returns.
pub(crate) async fn of_nodes(
    case: &Case,
    options: &Options,
    pins: &Versions,
) -> Result<Image, KindError> {
    let Some(name) = &options.image else {
        let image = spec::pinned(&case.cluster, pins)?;
        docker::have(&image.name).await?;
        return Ok(image);
    };
    docker::have(name).await?;
    let image = chosen(name).await?;
    match case.cluster.kubernetes_version() {
        Some(wanted) if !image.version.is(wanted) => Err(KindError::Unable(format!(
            "{name} is Kubernetes {}, the case is about {wanted}\nrun it with --matrix kubernetes={}",
            image.version,
            image.version.to_string().trim_start_matches('v')
        ))),
        _ => Ok(image),
    }
}

/// What is known of an image that is here.
pub(crate) async fn chosen(name: &str) -> Result<Image, KindError> {
    let version = match tagged(name) {
        Some(version) => version,
        None => asked(name).await?,
    };
    Ok(Image::of(name.to_owned(), version))
}

/// The version that the image's tag tells.
pub(crate) fn tagged(name: &str) -> Option<Version> {
    let name = name.split('@').next()?;
    let (_, tag) = name.rsplit_once(':')?;
    Version::parse(tag).filter(|_| tag.starts_with('v'))
}

/// The version that kind keeps in its node images.
async fn asked(name: &str) -> Result<Version, KindError> {
    let version = docker::docker(["run", "--rm", "--entrypoint", "cat", name, "/kind/version"]);
    let version = version.await?;
    Version::parse(version.trim()).ok_or_else(|| {
        KindError::Unable(format!(
            "{name} is no node image: /kind/version is {version:?}"
        ))
    })
}

/// The images of a case's pods.
pub(crate) fn of_pods(manifests: &[Value]) -> BTreeSet<String> {
    let mut images = BTreeSet::new();
    for manifest in manifests {
        let Some(spec) = manifest.pointer(spec_path(manifest)) else {
            continue;
        };
        for containers in ["initContainers", "containers"] {
            let all = spec[containers].as_array().into_iter().flatten();
            images.extend(all.filter_map(|it| it["image"].as_str()).map(str::to_owned));
        }
    }
    images
}

/// Loads an image that Docker has into the nodes that lack it. By containerd's own tool: `kind load` wants another one, too,
/// which a node image may not have.
pub(crate) async fn load(image: &str, nodes: &Nodes) -> Result<(), KindError> {
    let lacking = lacking(image, nodes).await?;
    give(image, lacking).await
}

/// Gives these nodes an image that Docker has.
pub(crate) async fn give(
    image: &str,
    nodes: impl IntoIterator<Item = &Node>,
) -> Result<(), KindError> {
    const SCRIPT: &str = "image=$1; shift; docker save \"$image\" | \"$@\"";
    for node in nodes {
        import(node, SCRIPT, &[image]).await?;
    }
    Ok(())
}

/// Gives a node the images that a script writes. It has its arguments first, and behind them what reads the images.
pub(crate) async fn import(node: &Node, script: &str, arguments: &[&str]) -> Result<(), KindError> {
    let script = ["sh", "-c", script, "sh"];
    let script = script.into_iter().chain(arguments.iter().copied());
    let argv = script.map(str::to_owned).chain(node.argv(IMPORT));
    Tool::new(LOAD, argv).output().await.map(drop)
}

/// The nodes that lack an image.
pub(crate) async fn lacking<'a>(image: &str, nodes: &'a Nodes) -> Result<Vec<&'a Node>, KindError> {
    let listed = format!("name=={}", qualified(image));
    let list = ["ctr", "-n", "k8s.io", "images", "list", "-q", &listed];
    let mut lacking = Vec::new();
    for node in &nodes.0 {
        if node.run(&list).await?.trim().is_empty() {
            lacking.push(node);
        }
    }
    Ok(lacking)
}

/// As containerd calls it: `docker.io/library/nginx:1.27`.
pub(crate) fn qualified(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or_default();
    let tag = if name.contains([':', '@']) {
        ""
    } else {
        ":latest"
    };
    match image.split_once('/') {
        None => format!("docker.io/library/{image}{tag}"),
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => {
            format!("{image}{tag}")
        }
        Some(_) => format!("docker.io/{image}{tag}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tag_tells_the_version_if_it_is_one() {
        let told = |name| tagged(name).map(|version| version.to_string());
        assert_eq!(
            told("kindest/node:v1.32.8@sha256:00").as_deref(),
            Some("v1.32.8")
        );
        assert_eq!(
            told("localhost:5000/node:v1.20.2").as_deref(),
            Some("v1.20.2")
        );
        assert_eq!(told("localhost:5000/node"), None);
        assert_eq!(told("kindest/node:latest"), None);
        assert_eq!(told("node:1.2.3"), None, "some other version");
    }

    #[test]
    fn containerd_has_images_under_their_whole_names() {
        assert_eq!(qualified("nginx:1.27"), "docker.io/library/nginx:1.27");
        assert_eq!(qualified("calico/node:v3"), "docker.io/calico/node:v3");
        assert_eq!(
            qualified("quay.io/calico/node:v3"),
            "quay.io/calico/node:v3"
        );
        assert_eq!(qualified("localhost:5000/x"), "localhost:5000/x:latest");
    }

    #[test]
    fn images_of_pods_and_of_templates_are_found_once_each() {
        let pod = |image: &str| json!({ "containers": [{ "image": image }] });
        let images = of_pods(&[
            json!({ "kind": "Pod", "spec": pod("busybox:1.36") }),
            json!({ "kind": "Deployment", "spec": { "template": { "spec": pod("nginx:1.27") } } }),
            json!({ "kind": "DaemonSet", "spec": { "template": { "spec": {
                "initContainers": [{ "image": "perl:5.36" }],
                "containers": [{ "image": "nginx:1.27" }],
            } } } }),
            json!({ "kind": "Service", "spec": {} }),
        ]);
        let expected = ["busybox:1.36", "nginx:1.27", "perl:5.36"];
        assert_eq!(images.into_iter().collect::<Vec<_>>(), expected);
    }
}
