//! What the health servers say in the log. They use klog's own logger, so no line names a family.
//!
//! Line numbers: `service_health.go` of 1.20.2 and 1.27; of server.go, that of 1.20.2 in all releases.

use std::{io, net::SocketAddr};

use nix::errno::Errno;

use crate::{
    kube_proxy::{
        config::Config,
        klog,
        names::Namespaced,
        profile::{LogStyle, Version},
    },
    step::{LogLine, Severity},
};

/// Writes the lines of one kube-proxy's health servers. A line above the verbosity is `None`.
#[derive(Debug, Clone)]
pub struct HealthLog {
    version: Version,
    node_name: String,
    verbosity: u8,
}

impl HealthLog {
    /// The log of a kube-proxy with these settings.
    pub fn new(config: &Config) -> Self {
        Self {
            version: config.version.clone(),
            node_name: config.node_name.clone(),
            verbosity: config.verbosity,
        }
    }

    /// A port is about to be opened for a service.
    pub fn opening(&self, service: &Namespaced, port: u16) -> Option<LogLine> {
        let site = self.site("service_health.go:98", "service_health.go:127");
        self.info(site, "Opening healthcheck", service, port)
    }

    /// A service's port is about to be closed.
    pub fn closing(&self, service: &Namespaced, port: u16) -> Option<LogLine> {
        let site = self.site("service_health.go:83", "service_health.go:110");
        self.info(site, "Closing healthcheck", service, port)
    }

    /// A service's port cannot be opened; the next sync tries again.
    pub fn service_failed(
        &self,
        service: &Namespaced,
        address: SocketAddr,
        error: &io::Error,
    ) -> LogLine {
        let (node, port) = (&self.node_name, address.port());
        let error = self.listen_error(address, error);
        let text = if self.plain() {
            let service = service.to_string();
            format!("node {node} failed to start healthcheck {service:?} on port {port}: {error}")
        } else {
            let mut text = "\"Failed to start healthcheck\"".to_owned();
            klog::append(&mut text, "err", &error);
            klog::append(&mut text, "node", node);
            klog::append(&mut text, "service", &service.to_string());
            text.extend([" port=", &port.to_string()]);
            text
        };
        LogLine {
            severity: Severity::Error,
            site: self.site("service_health.go:116", "service_health.go:144"),
            text,
        }
    }

    /// The proxy's own port cannot be opened; five seconds later it is tried again.
    pub fn proxy_failed(&self, address: SocketAddr, error: &io::Error) -> LogLine {
        let what = self.version.health_server();
        // This one says its whole address in every release.
        let error = format!(
            "failed to start {what} healthz on {address}: listen tcp {address}: bind: {}",
            go_error(error)
        );
        let text = if self.version.log_style() == LogStyle::Plain {
            format!("healthz server failed: {error}")
        } else {
            let mut text = "\"Healthz server failed\"".to_owned();
            klog::append(&mut text, "err", &error);
            text
        };
        LogLine {
            severity: Severity::Error,
            site: "server.go:594",
            text,
        }
    }

    fn info(
        &self,
        site: &'static str,
        what: &str,
        service: &Namespaced,
        port: u16,
    ) -> Option<LogLine> {
        let service = service.to_string();
        let text = if self.plain() {
            format!("{what} {service:?} on port {port}")
        } else {
            format!("{what:?} service={service:?} port={port}")
        };
        (self.verbosity >= 2).then_some(LogLine {
            severity: Severity::Info,
            site,
            text,
        })
    }

    /// 1.20 listens on `:port`, later releases on `0.0.0.0:port`.
    fn listen_error(&self, address: SocketAddr, error: &io::Error) -> String {
        let error = go_error(error);
        if self.plain() {
            format!("listen tcp :{}: bind: {error}", address.port())
        } else {
            format!("listen tcp {address}: bind: {error}")
        }
    }

    fn plain(&self) -> bool {
        self.version.checks_health_in_plain_text()
    }

    fn site(&self, plain: &'static str, structured: &'static str) -> &'static str {
        if self.plain() { plain } else { structured }
    }
}

/// As Go words an error of the system: glibc's text in lower case. Not the one of this program's C library, which may be another.
fn go_error(error: &io::Error) -> String {
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.map_or_else(|| error.to_string(), |it| it.desc().to_lowercase())
}
