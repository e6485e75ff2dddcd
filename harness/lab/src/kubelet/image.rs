//! What the lab runs for a container. There are no images here: nginx is the machine's own, commands
//! are the machine's, and what is neither does nothing.

use k8s_openapi::api::core::v1::Container;

use chainbreak_model::plan::{image_name, is_nginx};

/// The port of an nginx that declares none.
const HTTP: u16 = 80;

/// Images without an entrypoint: a container's arguments are its command.
const BARE: [&str; 5] = ["alpine", "busybox", "debian", "fedora", "ubuntu"];

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
        let image = container.image.as_deref().unwrap_or_default();
        if !command.is_empty() || BARE.contains(&image_name(image)) {
            command.extend(container.args.iter().flatten().cloned());
        }
        if !command.is_empty() {
            return Self::Command(command);
        }
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

    /// The ports at which somebody must be there before the container is ready.
    pub(super) fn awaited(&self, container: &Container) -> Vec<Awaited> {
        let tcp = |ports: Vec<u16>| ports.into_iter().map(Awaited::Accepts);
        match self {
            Self::Nginx(ports) => tcp(ports.clone()).collect(),
            Self::Command(_) => tcp(tcp_ports(container))
                .chain(ports_of(container, "UDP").into_iter().map(Awaited::IsBound))
                .collect(),
            Self::Idle => Vec::new(),
        }
    }
}

/// What must be seen of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// It accepts a TCP connection.
    Accepts(u16),
    /// A UDP socket has it.
    IsBound(u16),
}

fn tcp_ports(container: &Container) -> Vec<u16> {
    ports_of(container, "TCP")
}

fn ports_of(container: &Container, protocol: &str) -> Vec<u16> {
    let ports = container.ports.iter().flatten();
    let ports = ports.filter(|port| port.protocol.as_deref().unwrap_or("TCP") == protocol);
    ports
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect()
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
    fn arguments_are_the_command_of_an_image_without_an_entrypoint() {
        let of = |image: &str| {
            let args = Some(vec!["sleep".to_owned(), "1".to_owned()]);
            Program::of(&Container {
                args,
                ..container(image, &[], &[])
            })
        };
        let sleep = Program::Command(vec!["sleep".to_owned(), "1".to_owned()]);
        assert_eq!(of("docker.io/library/busybox:1.36"), sleep);
        assert_eq!(of("alpine@sha256:12"), sleep);
        assert_eq!(of("redis:7"), Program::Idle);
    }

    #[test]
    fn a_port_of_udp_is_awaited_as_one() {
        let mut perl = container("perl:5.36", &["perl"], &[80, 8125]);
        let ports = perl.ports.as_mut().unwrap();
        ports[1].protocol = Some("UDP".to_owned());
        let awaited = Program::of(&perl).awaited(&perl);
        assert_eq!(awaited, [Awaited::Accepts(80), Awaited::IsBound(8125)]);
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
