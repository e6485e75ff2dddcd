//! The fields of `KubeProxyConfiguration` (kubeproxy.config.k8s.io/v1alpha1) that a scenario may set: what decides rules,
//! flows and who is a pod. Mode, periods, node and API are the cluster's to say.

/// What a field is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Truth,
    /// A whole number within bounds.
    Whole(u64, u64),
    /// A time as Go writes it.
    Time,
    /// Text.
    Text,
    /// Networks, one for each family, or nothing.
    Networks,
    /// A list of networks.
    NetworkList,
    /// One of these.
    Word(&'static [&'static str]),
    /// Fields of its own.
    Part(&'static [(&'static str, Kind)]),
}

/// All fields, by name.
pub(crate) const FIELDS: &[(&str, Kind)] = &[
    ("clusterCIDR", Kind::Networks),
    (
        "detectLocalMode",
        Kind::Word(&[
            "ClusterCIDR",
            "NodeCIDR",
            "BridgeInterface",
            "InterfaceNamePrefix",
        ]),
    ),
    (
        "detectLocal",
        Kind::Part(&[
            ("bridgeInterface", Kind::Text),
            ("interfaceNamePrefix", Kind::Text),
        ]),
    ),
    ("nodePortAddresses", Kind::NetworkList),
    (
        "iptables",
        Kind::Part(&[
            ("masqueradeAll", Kind::Truth),
            ("masqueradeBit", Kind::Whole(0, 31)),
            ("localhostNodePorts", Kind::Truth),
        ]),
    ),
    ("nftables", Kind::Part(&[("masqueradeAll", Kind::Truth)])),
    (
        "conntrack",
        Kind::Part(&[
            ("maxPerCore", Kind::Whole(0, 1 << 30)),
            ("min", Kind::Whole(0, 1 << 30)),
            ("tcpBeLiberal", Kind::Truth),
            ("tcpEstablishedTimeout", Kind::Time),
            ("tcpCloseWaitTimeout", Kind::Time),
            ("udpTimeout", Kind::Time),
            ("udpStreamTimeout", Kind::Time),
        ]),
    ),
];
