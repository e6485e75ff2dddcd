//! What 1.20 says about itself and about services (1.20.2, proxier.go and service.go). Later releases say
//! it in other words or not at all at the default verbosity; here they are silent.

use super::{Logs, Value, klog};
use crate::{
    kube_proxy::{
        config::Config,
        early::sockets::Socket,
        names::{Namespaced, PortName},
        ports::ServicePort,
        profile::LogStyle,
    },
    step::Severity,
};

impl Logs {
    /// A proxier is made.
    pub(crate) fn made(&self, config: &Config, random_fully: bool) {
        let who = format!("iptables({})", self.family);
        let mark = config.mark();
        self.early(
            2,
            "proxier.go:286",
            format!("{who} masquerade mark: {mark}"),
        );
        let [min, sync] = [config.min_sync_period, config.sync_period].map(klog::go_duration);
        let periods = format!("minSyncPeriod={min}, syncPeriod={sync}, burstSyncs=2");
        self.early(2, "proxier.go:333", format!("{who} sync params: {periods}"));
        let (site, not) = if random_fully {
            ("proxier.go:345", "")
        } else {
            ("proxier.go:347", "does not ")
        };
        let supports = if random_fully { "supports" } else { "support" };
        self.early(2, site, format!("{who} {not}{supports} --random-fully"));
    }

    /// A service waits for a sync, with so many ports.
    pub(crate) fn service_updated(&self, service: &Namespaced, ports: usize) {
        let text = format!("Service {service} updated: {ports} ports");
        self.early(2, "service.go:275", text);
    }

    /// A sync takes a port over that was not there.
    pub(crate) fn port_added(&self, name: &PortName, port: &ServicePort) {
        let text = format!("Adding new service port \"{name}\" at {}", address(port));
        self.early(1, "service.go:390", text);
    }

    /// A sync takes a port over that was there.
    pub(crate) fn port_updated(&self, name: &PortName, port: &ServicePort) {
        let text = format!(
            "Updating existing service port \"{name}\" at {}",
            address(port)
        );
        self.early(1, "service.go:392", text);
    }

    /// A sync forgets a port.
    pub(crate) fn port_removed(&self, name: &PortName) {
        let text = format!("Removing service port \"{name}\"");
        self.early(1, "service.go:415", text);
    }

    /// A UDP service has endpoints again: its old flows end after the sync.
    pub(crate) fn stale_udp(&self, name: &PortName, port: &ServicePort) {
        if self.style == LogStyle::Structured && self.version.tells_of_stale_services() {
            self.stale_service(name, port);
        }
        let text = format!("Stale udp service {name} -> {}", port.cluster_ip);
        self.early(2, "proxier.go:853", text);
    }

    /// The same from 1.21 to 1.26, the node port by itself (1.23 proxier.go; earlier it is `svcPortName`).
    fn stale_service(&self, name: &PortName, port: &ServicePort) {
        let name = name.to_string();
        let ip = port.cluster_ip.to_string();
        let pairs = [
            ("protocol", Value::Text("udp")),
            ("servicePortName", Value::Text(&name)),
            ("clusterIP", Value::Text(&ip)),
        ];
        self.info(2, self.sites.not_ready, "Stale service", &pairs);
        if port.node_port != 0 {
            let pairs = [
                ("protocol", Value::Text("udp")),
                ("servicePortName", Value::Text(&name)),
                ("nodePort", Value::Bare(port.node_port.to_string())),
            ];
            self.info(2, self.sites.not_ready, "Stale service", &pairs);
        }
    }

    /// A node port is kept from others.
    pub(crate) fn port_opened(&self, socket: &Socket) {
        let text = format!("Opened local port {}", described(socket));
        self.early(2, "proxier.go:1707", text);
    }

    /// A node port is not kept from others: it was not given back yet.
    pub(crate) fn port_taken(&self, socket: &Socket) {
        let Socket { port, protocol, .. } = socket;
        let error = format!("listen {protocol}4 :{port}: bind: address already in use");
        let text = format!(
            "can't open {}, skipping this nodePort: {error}",
            described(socket)
        );
        self.plain(0, Severity::Error, "proxier.go:1278", text);
    }

    fn early(&self, level: u8, site: &'static str, text: String) {
        if self.style == LogStyle::Plain {
            self.plain(level, Severity::Info, site, text);
        }
    }
}

/// `"nodePort for default/web" (:30080/tcp)`.
fn described(socket: &Socket) -> String {
    let Socket {
        service,
        port,
        protocol,
    } = socket;
    format!("\"nodePort for {service}\" (:{port}/{protocol})")
}

/// `10.96.0.1:443/TCP`.
fn address(port: &ServicePort) -> String {
    let protocol = port.protocol.to_string().to_uppercase();
    format!("{}:{}/{protocol}", port.cluster_ip, port.port)
}
