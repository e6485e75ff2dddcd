//! What the lab runs for a container. There are no images here: nginx is the machine's own, commands
//! are the machine's, and what is neither does nothing.

use std::fmt::Write;

use k8s_openapi::api::core::v1::Container;

use chainbreak_model::plan::is_nginx;
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
        if is_nginx(image) {
            let mut ports = tcp_ports(container);
            if ports.is_empty() {
                ports.push(HTTP);
            }
            return Self::Nginx(ports);
        }
        Self::Idle
    }

    /// What stands in for the container's image, as the report's head says it.
    pub(super) fn stand_in(&self) -> String {
        match self {
            Self::Nginx(_) => "the machine's nginx".to_owned(),
            Self::Command(argv) => format!("the machine's own {}", argv[0]),
            Self::Idle => "nothing runs: it has no command, and there are no images".to_owned(),
        }
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

/// The configuration of a pod's or a host's nginx: one process, which names the pod and the client it saw, and
/// writes nothing outside `folder`.
pub(crate) fn nginx_config(pod: &str, ports: &[u16], has_v6: bool, folder: &str) -> String {
    let mut listens = String::new();
    for port in ports {
        write!(listens, " listen {port} backlog=4096;").expect("a String takes everything");
        if has_v6 {
            write!(listens, " listen [::]:{port} backlog=4096;")
                .expect("a String takes everything");
        }
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
         map $remote_addr $client {{ ~: \"[$remote_addr]\"; default $remote_addr; }}\n\
         server {{{listens}\n\
         add_header {BACKEND_HEADER} \"{pod}\" always;\n\
         add_header {CLIENT_HEADER} \"$client:$remote_port\" always;\n\
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
        assert_eq!(of("nginx:1.25"), Program::Nginx(vec![80]));
        assert_eq!(of("nginx/nginx-prometheus-exporter:1"), Program::Idle);
        let own = container("nginx", &["sh", "-c", "true"], &[80]);
        assert!(matches!(Program::of(&own), Program::Command(_)));
        let ports = container("nginx", &[], &[8080, 9090]);
        assert_eq!(Program::of(&ports), Program::Nginx(vec![8080, 9090]));
    }
    #[test]
    fn what_stands_in_for_an_image_is_said() {
        let said =
            |image, command: &[&str]| Program::of(&container(image, command, &[])).stand_in();
        assert_eq!(said("nginx:1.27", &[]), "the machine's nginx");
        let sleep = said("busybox:1.36", &["sleep", "inf"]);
        assert_eq!(sleep, "the machine's own sleep");
        assert!(said("redis:7", &[]).starts_with("nothing runs"));
    }
}
