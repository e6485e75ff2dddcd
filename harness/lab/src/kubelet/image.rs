//! What the lab runs for a container. There are no images here: nginx is the machine's own, commands
//! are the machine's, and what is neither does nothing.

use std::fmt::Write;

use k8s_openapi::api::core::v1::Container;

use chainbreak_probe::wire::{BACKEND_HEADER, CLIENT_HEADER};

/// The port of an nginx that declares none.
const HTTP: u16 = 80;

/// What a container runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Program {
    /// The machine's nginx on these ports.
    Nginx(Vec<u16>),
    /// Program and arguments.
    Command(Vec<String>),
    /// Nothing.
    Idle,
}

impl Program {
    pub(super) fn of(container: &Container) -> Self {
        let mut command = container.command.clone().unwrap_or_default();
        if !command.is_empty() {
            command.extend(container.args.iter().flatten().cloned());
            return Self::Command(command);
        }
        let image = container.image.as_deref().unwrap_or_default();
        if repository(image).starts_with("nginx") {
            let mut ports = tcp_ports(container);
            if ports.is_empty() {
                ports.push(HTTP);
            }
            return Self::Nginx(ports);
        }
        Self::Idle
    }

    /// The ports that must accept a connection before the container is ready.
    pub(super) fn awaited(&self, container: &Container) -> Vec<u16> {
        match self {
            Self::Nginx(ports) => ports.clone(),
            Self::Command(_) => tcp_ports(container),
            Self::Idle => Vec::new(),
        }
    }
}

fn tcp_ports(container: &Container) -> Vec<u16> {
    let ports = container.ports.iter().flatten();
    let tcp = ports.filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    tcp.filter_map(|port| u16::try_from(port.container_port).ok())
        .collect()
}

/// The last part of an image's repository: `nginx-unprivileged` of `ghcr.io/x/nginx-unprivileged:1@sha256:…`.
fn repository(image: &str) -> &str {
    let untagged = image.split('@').next().unwrap_or_default();
    let last = untagged.rsplit('/').next().unwrap_or_default();
    last.split(':').next().unwrap_or_default()
}

/// The configuration of a pod's nginx: one process, which names the pod and the client it saw, and
/// writes nothing outside `folder`.
pub(super) fn nginx_config(pod: &str, ports: &[u16], folder: &str) -> String {
    let mut listens = String::new();
    for port in ports {
        write!(listens, " listen {port} backlog=4096;").expect("a String takes everything");
    }
    let mut folders = String::new();
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        write!(folders, " {kind}_temp_path {folder}/{kind};").expect("a String takes everything");
    }
    format!(
        "daemon off; master_process off; user root; pid {folder}/pid;\n\
         error_log stderr crit;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n\
         access_log off; server_tokens off; keepalive_timeout 1h; keepalive_requests 100000000;\n\
         {folders}\n\
         server {{{listens}\n\
         add_header {BACKEND_HEADER} \"{pod}\" always;\n\
         add_header {CLIENT_HEADER} \"$remote_addr:$remote_port\" always;\n\
         return 200 \"{pod}\\n\";\n\
         }}\n\
         }}\n"
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerPort;

    use super::*;

    fn container(image: &str, command: &[&str], ports: &[i32]) -> Container {
        let port = |&container_port| ContainerPort {
            container_port,
            ..ContainerPort::default()
        };
        Container {
            image: Some(image.to_owned()),
            command: Some(command.iter().map(|&word| word.to_owned()).collect()),
            ports: Some(ports.iter().map(port).collect()),
            ..Container::default()
        }
    }

    #[test]
    fn nginx_is_known_by_its_repository_and_a_command_comes_first() {
        let of = |image: &str| Program::of(&container(image, &[], &[]));
        for image in [
            "nginx",
            "nginx:1.25",
            "docker.io/library/nginx:1",
            "ghcr.io:443/x/nginx-unprivileged@sha256:00",
        ] {
            assert_eq!(of(image), Program::Nginx(vec![80]), "{image}");
        }
        assert_eq!(of("nginx.example/busybox:1"), Program::Idle);
        let own = container("nginx", &["sh", "-c", "true"], &[80]);
        assert!(matches!(Program::of(&own), Program::Command(_)));
        let ports = container("nginx", &[], &[8080, 9090]);
        assert_eq!(Program::of(&ports), Program::Nginx(vec![8080, 9090]));
    }
}
