//! The containers of a host outside of the cluster, as testcontainers is asked for them: one that has its network and does
//! nothing, and one for nginx in the same network.

use std::time::Duration;

use chainbreak_engine::nginx;
use testcontainers::{
    ContainerAsync, ContainerRequest, GenericImage, ImageExt,
    core::{AccessMode, CopyDataSource, Mount},
    runners::AsyncRunner,
};

use crate::{error::KindError, made::config::OURS, name::ClusterName};

/// The label with the host's name. That with the cluster's is [`OURS`], as on the nodes.
const HOST: &str = "chainbreak.dev/host";
/// Where a host has the volume of the cluster's first node.
const NODE: &str = "/node";
/// Where this program is there: as it is on that node, and not copied once more.
pub(super) const PROGRAM: &str = "/node/lib/chainbreak";
/// Where nginx finds what it is to do.
const NGINX: &str = "/etc/nginx/chainbreak.conf";
/// Where it writes.
const NGINX_FOLDER: &str = "/tmp";
/// What a container of an image that is here may take to start.
const START: Duration = Duration::from_secs(60);

/// Which host, beside which cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) cluster: &'a ClusterName,
    pub(super) host: &'a str,
}

impl Whose<'_> {
    /// What has the host's network: the nodes' image, which has the programs of nodes, and runs none of them here.
    pub(super) fn pause(
        self,
        image: &str,
        network: &str,
        volume: &str,
    ) -> ContainerRequest<GenericImage> {
        let volume = Mount::volume_mount(volume, NODE).with_access_mode(AccessMode::ReadOnly);
        let image = generic(image).with_entrypoint("sleep");
        self.marked("host", image.with_cmd(["infinity"]))
            .with_network(network)
            .with_mount(volume)
            .with_cap_add("NET_ADMIN")
            .with_host_config_modifier(|config| {
                config.publish_all_ports = Some(false);
                // As `--security-opt systempaths=unconfined`: its network's kernel settings are the scenario's to change.
                config.masked_paths = Some(Vec::new());
                config.readonly_paths = Some(Vec::new());
            })
    }

    /// nginx at that port, in the network of [`Self::pause`]'s container.
    pub(super) fn nginx(
        self,
        image: &str,
        port: u16,
        has_v6: bool,
    ) -> ContainerRequest<GenericImage> {
        let config = nginx::config(self.host, &[port], has_v6, NGINX_FOLDER);
        let network = format!("container:{}", self.cluster.beside("host", self.host));
        let image = generic(image).with_entrypoint("nginx");
        self.marked("nginx", image.with_cmd(["-c", NGINX]))
            .with_copy_to(NGINX, CopyDataSource::Data(config.into_bytes()))
            // Not `with_network`: that one makes a network which nobody has.
            .with_host_config_modifier(move |config| {
                config.network_mode = Some(network.clone());
                config.publish_all_ports = Some(false);
            })
    }

    fn marked(
        self,
        what: &str,
        request: ContainerRequest<GenericImage>,
    ) -> ContainerRequest<GenericImage> {
        request
            .with_container_name(self.cluster.beside(what, self.host))
            .with_label(OURS, self.cluster.as_str())
            .with_label(HOST, self.host)
            .with_startup_timeout(START)
    }
}

/// Makes and starts it.
pub(super) async fn start(
    request: ContainerRequest<GenericImage>,
) -> Result<ContainerAsync<GenericImage>, KindError> {
    let name = request.container_name().clone().unwrap_or_default();
    let started = request.start().await;
    started.map_err(KindError::container(format!("start the container {name}")))
}

/// testcontainers puts a `:` between an image's name and its tag.
fn generic(image: &str) -> GenericImage {
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => GenericImage::new(name, tag),
        _ => GenericImage::new(image, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use testcontainers::Image;

    use super::*;

    fn labels(request: &ContainerRequest<GenericImage>) -> Vec<(&str, &str)> {
        let labels = request.labels().iter();
        labels
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    #[test]
    fn a_hosts_containers_tell_whose_they_are_by_their_names_and_labels() {
        let cluster = ClusterName::of_hash("0f");
        let whose = Whose {
            cluster: &cluster,
            host: "db",
        };
        let pause = whose.pause("localhost:5000/node", "kind", "of-n1");
        let nginx = whose.nginx("nginx:1.27@sha256:00", 80, false);
        for (request, name) in [
            (&pause, "chainbreak-0f-host-db"),
            (&nginx, "chainbreak-0f-nginx-db"),
        ] {
            assert_eq!(request.container_name().as_deref(), Some(name));
            let ours = [(OURS, "chainbreak-0f"), (HOST, "db")];
            assert_eq!(labels(request), ours);
        }
    }

    #[test]
    fn a_host_is_on_the_nodes_network_and_its_nginx_in_that_hosts() {
        let cluster = ClusterName::of_hash("0f");
        let whose = Whose {
            cluster: &cluster,
            host: "db",
        };
        let pause = whose.pause("localhost:5000/node", "kind", "of-n1");
        assert_eq!(pause.descriptor(), "localhost:5000/node:latest");
        assert_eq!(pause.network().as_deref(), Some("kind"));
        assert_eq!(pause.cap_add().unwrap(), &["NET_ADMIN"]);
        assert!(!pause.privileged());
        let volume = pause.mounts().next().unwrap();
        assert_eq!(volume.source(), Some("of-n1"));
        assert_eq!(volume.access_mode(), AccessMode::ReadOnly);
        assert!(PROGRAM.starts_with(volume.target().unwrap()));
        assert_eq!(pause.image().entrypoint(), Some("sleep"));
        let nginx = whose.nginx("nginx:1.27@sha256:00", 8080, true);
        assert_eq!(nginx.descriptor(), "nginx:1.27@sha256:00");
        // testcontainers would make a network of that name.
        assert_eq!(nginx.network(), &None);
        let mut config = testcontainers::bollard::models::HostConfig::default();
        nginx.host_config_modifier().unwrap()(&mut config);
        assert_eq!(
            config.network_mode.as_deref(),
            Some("container:chainbreak-0f-host-db")
        );
        assert_eq!(config.publish_all_ports, Some(false));
    }
}
