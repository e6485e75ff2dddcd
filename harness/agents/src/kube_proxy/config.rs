//! What kube-proxy is started with.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use super::profile::Version;

/// `--proxy-mode`: what the rules are written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// iptables.
    Iptables,
    /// nft, in a table of kube-proxy's own. Modelled as it is from 1.31 on.
    Nftables,
}

impl Mode {
    /// As the logs write it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }
}

/// The settings of one kube-proxy. [`Config::new`] gives the defaults of the real one.
#[derive(Debug, Clone)]
pub struct Config {
    /// The release that is modelled.
    pub version: Version,
    /// `--proxy-mode`.
    pub mode: Mode,
    /// `--hostname-override`: the node whose endpoints are local.
    pub node_name: String,
    /// The node's address, for source ranges that contain it. Taken from the Node while `None`.
    pub node_ip: Option<IpAddr>,
    /// `--cluster-cidr`; without it no traffic is known to be a pod's, unless [`Self::detect_local`] says how.
    pub cluster_cidr: Option<IpNet>,
    /// `--detect-local-mode`.
    pub detect_local: DetectLocal,
    /// `--nodeport-addresses`: networks whose addresses of the node take node ports; none for all addresses.
    pub node_port_addresses: Vec<IpNet>,
    /// The node's own addresses, the loopback's among them. The real one looks at every sync.
    pub node_addresses: Vec<IpAddr>,
    /// `--iptables-masquerade-bit`.
    pub masquerade_bit: u8,
    /// `--iptables-min-sync-period`, in nftables mode too.
    pub min_sync_period: Duration,
    /// `--iptables-sync-period`, in nftables mode too: the canary's period and the wait after a
    /// failed sync. Not a resync period.
    pub sync_period: Duration,
    /// The age of the last full sync at which the next one is full, in releases that do so
    /// ([`Version::hourly_full_sync`]). The real one has no flag for it.
    pub full_sync_period: Duration,
    /// `--iptables-localhost-nodeports`.
    pub localhost_node_ports: bool,
    /// `--masquerade-all`.
    pub masquerade_all: bool,
    /// What `nf_conntrack_tcp_be_liberal` was when kube-proxy started: it is read once.
    pub tcp_be_liberal: bool,
    /// `-v`: lines of a higher level are not written.
    pub verbosity: u8,
    /// Orders what Go's maps leave to chance.
    pub seed: u64,
    /// Which family this proxier serves; a dual-stack kube-proxy runs two.
    pub family: Family,
    /// `--healthz-bind-address`. What listens on all addresses for health checks of services does so on this one.
    pub healthz_address: SocketAddr,
}

/// The port of `--healthz-bind-address`.
const HEALTHZ_PORT: u16 = 10256;

/// What the real one has for the age of a full sync and for the longest time without any sync.
const HOUR: Duration = Duration::from_secs(3600);

impl Config {
    /// The defaults of kube-proxy for that release and node.
    pub fn new(version: Version, node_name: impl Into<String>) -> Self {
        Self {
            version,
            mode: Mode::Iptables,
            node_name: node_name.into(),
            node_ip: None,
            cluster_cidr: None,
            detect_local: DetectLocal::ClusterCidr,
            node_port_addresses: Vec::new(),
            node_addresses: Vec::new(),
            masquerade_bit: 14,
            min_sync_period: Duration::from_secs(1),
            sync_period: Duration::from_secs(30),
            full_sync_period: HOUR,
            localhost_node_ports: true,
            masquerade_all: false,
            tcp_be_liberal: false,
            verbosity: 2,
            seed: 0,
            family: Family::Ipv4,
            healthz_address: (Ipv4Addr::UNSPECIFIED, HEALTHZ_PORT).into(),
        }
    }

    /// What the proxier of that number, from 0, takes for the node's address without asking for it.
    pub fn assumed_node_ip(&self, number: usize) -> Option<IpAddr> {
        let zero: IpAddr = match self.family {
            Family::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        (number > 0 && !self.version.knows_both_node_ips()).then_some(zero)
    }

    /// Whether networks of cluster IPs are followed: only the rules of nftables mode heed them.
    pub fn follows_service_cidrs(&self) -> bool {
        self.mode == Mode::Nftables && self.version.follows_service_cidrs()
    }

    /// The longest time without a sync: an hour, and as much as a full sync may be old where that is
    /// asked (proxier.go 1.33, `FullSyncPeriod`).
    pub(crate) fn longest_interval(&self) -> Duration {
        if self.version.hourly_full_sync(false) {
            self.full_sync_period
        } else {
            HOUR
        }
    }

    /// The match for packets of this node's pods, if there is one; `None` when they cannot be told. An interface is the
    /// node's own, a network all pods'.
    pub(crate) fn if_local(&self) -> Option<String> {
        match &self.detect_local {
            DetectLocal::ClusterCidr => self.cluster_cidr.map(|cidr| format!("-s {cidr}")),
            DetectLocal::Bridge(name) => Some(format!("-i {name}")),
            DetectLocal::Prefix(prefix) => Some(format!("-i {prefix}+")),
        }
    }

    /// The same in nft's words, for packets of this node's pods or for all others. `ip` is nft's word for the family.
    pub(crate) fn nft_from_pods(&self, ip: &str, are: bool) -> Option<String> {
        let not = if are { "" } else { "!= " };
        let interface = if self.version.names_no_interface_by_index() {
            "iifname"
        } else {
            "iif"
        };
        match &self.detect_local {
            DetectLocal::ClusterCidr => self
                .cluster_cidr
                .map(|cidr| format!("{ip} saddr {not}{cidr}")),
            DetectLocal::Bridge(name) => Some(format!("{interface} {not}{name}")),
            DetectLocal::Prefix(prefix) => Some(format!("{interface} {not}{prefix}*")),
        }
    }

    /// Whether node ports work on the loopback. `--nodeport-addresses` that leave it out switch them off.
    pub(crate) fn takes_localhost(&self) -> bool {
        self.family == Family::Ipv4
            && self.localhost_node_ports
            && (self.takes_all_addresses()
                || self
                    .node_port_addresses
                    .iter()
                    .any(|net| net.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST))))
    }

    /// Whether node ports are taken at any address of the node (`MatchAll`): with nothing said about its family, too.
    pub(crate) fn takes_all_addresses(&self) -> bool {
        let mut own = self.node_port_addresses.iter();
        let mut own = own
            .by_ref()
            .filter(|net| self.family.has(net.addr()))
            .peekable();
        own.peek().is_none() || own.any(|net| net.prefix_len() == 0)
    }

    /// The node's addresses that take node ports, where not all do.
    pub(crate) fn node_port_ips(&self) -> impl Iterator<Item = IpAddr> {
        let own = self.node_addresses.iter().copied();
        let taken = move |ip: &IpAddr| self.node_port_addresses.iter().any(|net| net.contains(ip));
        own.filter(|ip| self.family.has(*ip)).filter(taken)
    }

    /// The addresses at which node ports are open; `None` for all of the node's. In nftables mode it is the node's own
    /// while nothing is said of them (`--nodeport-addresses=primary` is the default of this mode), and all while that is
    /// not known.
    pub(crate) fn node_ports_at(&self, node_ip: IpAddr) -> Option<Vec<IpAddr>> {
        if self.mode == Mode::Nftables && self.node_port_addresses.is_empty() {
            return (!node_ip.is_loopback()).then(|| vec![node_ip]);
        }
        (!self.takes_all_addresses()).then(|| self.node_port_ips().collect())
    }

    /// The addresses at which health checks of services listen: those of node ports (`newServiceHealthServer`, 1.28.15
    /// to 1.36.4), and all of the node's until 1.22.
    pub(crate) fn health_checks_at(&self, node_ip: IpAddr) -> Option<Vec<IpAddr>> {
        if self.version.checks_health_everywhere() {
            None
        } else {
            self.node_ports_at(node_ip)
        }
    }

    /// The mark for packets to be masqueraded, as `%#08x` prints it.
    pub(crate) fn mark(&self) -> String {
        format!("{:#010x}", 1_u32 << self.masquerade_bit)
    }

    /// Whether the rule that drops INVALID packets is left out.
    pub(crate) fn accepts_invalid(&self) -> bool {
        self.tcp_be_liberal && self.version.heeds_tcp_be_liberal()
    }
}

/// How packets of this node's pods are told from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetectLocal {
    /// By [`Config::cluster_cidr`], which with `NodeCIDR` is that of the node.
    ClusterCidr,
    /// They come in by this bridge.
    Bridge(String),
    /// They come in by an interface whose name begins so.
    Prefix(String),
}

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Whether the address is of this family.
    pub fn has(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == (self == Self::Ipv4)
    }

    /// The first internal address of that family that a node has.
    pub(crate) fn internal_ip(self, node: &Node) -> Option<IpAddr> {
        let addresses = node.status.as_ref()?.addresses.as_ref()?.iter();
        addresses
            .filter(|it| it.type_ == "InternalIP")
            .filter_map(|it| it.address.parse().ok())
            .find(|&ip| self.has(ip))
    }

    /// As the API and the logs write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }

    /// The loopback network as rules name it.
    pub(crate) fn loopback(self) -> &'static str {
        match self {
            Self::Ipv4 => "127.0.0.0/8",
            Self::Ipv6 => "::1/128",
        }
    }

    /// The address that stands for "not known yet", which no source range contains by accident
    /// but an all-embracing one (server.go falls back to the loopback address).
    pub(crate) fn unknown_node(self) -> IpAddr {
        match self {
            Self::Ipv4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Self::Ipv6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }
}
