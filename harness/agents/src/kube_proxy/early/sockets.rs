//! The sockets by which 1.20 keeps node ports from others (proxier.go, `openLocalPort`).
//!
//! No socket is opened here: what is kept is which ones the real one would have open. A UDP port that is
//! newly opened has its flows deleted, which later releases do when endpoints come back. Ports of external
//! IPs that the node itself has are left out.

use std::collections::BTreeSet;

use crate::{
    kube_proxy::{
        Event,
        config::Config,
        conntrack::{self, Complaint, Deletion},
        logs::Logs,
        names::{PortName, Protocol},
        ports::ServicePort,
    },
    step::Io,
};

/// The open sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sockets {
    open: BTreeSet<Socket>,
}

/// What a socket is for is part of its name, so that one port can be wanted twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Socket {
    /// `namespace/name:port`.
    pub(crate) service: String,
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
}

impl Sockets {
    /// Opens what these ports need and is not open yet; answers with what is to be kept once the rules
    /// are written. A number that another service's port still holds is left for the next sync.
    pub(crate) async fn open(
        &self,
        io: &Io<Event>,
        config: &Config,
        logs: &Logs,
        ports: &[(&PortName, &ServicePort)],
    ) -> Self {
        let mut kept = Self::default();
        for socket in ports.iter().filter_map(|(name, port)| wanted(name, port)) {
            if !self.open.contains(&socket) {
                if self
                    .open
                    .iter()
                    .chain(&kept.open)
                    .any(|it| it.collides(&socket))
                {
                    logs.port_taken(&socket);
                    continue;
                }
                logs.port_opened(&socket);
                if socket.protocol == Protocol::Udp {
                    conntrack::delete(io, config, logs, flows_to(socket.port)).await;
                }
            }
            kept.open.insert(socket);
        }
        kept
    }
}

impl Socket {
    fn collides(&self, other: &Self) -> bool {
        (self.port, self.protocol) == (other.port, other.protocol)
    }
}

/// The real one cannot open a socket for SCTP.
fn wanted(name: &PortName, port: &ServicePort) -> Option<Socket> {
    if port.node_port == 0 || port.protocol == Protocol::Sctp {
        return None;
    }
    Some(Socket {
        service: name.to_string(),
        port: port.node_port,
        protocol: port.protocol,
    })
}

fn flows_to(port: u16) -> Deletion {
    Deletion {
        command: format!("-D -p udp --dport {port}"),
        complaint: Complaint::Early {
            site: "proxier.go:1285",
            text: format!(
                "Failed to clear udp conntrack for port {port}, error: error deleting conntrack \
                 entries for UDP port: {port}"
            ),
        },
    }
}
