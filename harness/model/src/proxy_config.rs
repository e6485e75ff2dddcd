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
    Part(&'static [Setting]),
}

/// A field: its name, what stands there, and what it means.
pub(crate) type Setting = (&'static str, Kind, &'static str);

/// All fields, by name.
pub(crate) const FIELDS: &[Setting] = &[
    (
        "clusterCIDR",
        Kind::Networks,
        "Whose addresses are pods', one network a family; \"\" for none. All pods' when not given.",
    ),
    (
        "detectLocalMode",
        Kind::Word(&[
            "ClusterCIDR",
            "NodeCIDR",
            "BridgeInterface",
            "InterfaceNamePrefix",
        ]),
        "How kube-proxy tells what a pod of its node sends.",
    ),
    (
        "detectLocal",
        Kind::Part(&[
            (
                "bridgeInterface",
                Kind::Text,
                "The bridge that pods are on.",
            ),
            (
                "interfaceNamePrefix",
                Kind::Text,
                "What the names of pods' interfaces begin with.",
            ),
        ]),
        "What detectLocalMode looks for.",
    ),
    (
        "nodePortAddresses",
        Kind::NetworkList,
        "At which of a node's addresses node ports are: networks, or primary.",
    ),
    (
        "iptables",
        Kind::Part(&[
            (
                "masqueradeAll",
                Kind::Truth,
                "Masquerade whatever goes to a service.",
            ),
            (
                "masqueradeBit",
                Kind::Whole(0, 31),
                "The bit of the mark of what is to be masqueraded.",
            ),
            (
                "localhostNodePorts",
                Kind::Truth,
                "Node ports at loopback addresses, too.",
            ),
        ]),
        "Of iptables mode.",
    ),
    (
        "nftables",
        Kind::Part(&[(
            "masqueradeAll",
            Kind::Truth,
            "Masquerade whatever goes to a service.",
        )]),
        "Of nftables mode.",
    ),
    (
        "conntrack",
        Kind::Part(&[
            (
                "maxPerCore",
                Kind::Whole(0, 1 << 30),
                "nf_conntrack_max for each processor; the lab's nodes cannot set it.",
            ),
            (
                "min",
                Kind::Whole(0, 1 << 30),
                "The least nf_conntrack_max; the lab's nodes cannot set it.",
            ),
            (
                "tcpBeLiberal",
                Kind::Truth,
                "nf_conntrack_tcp_be_liberal: what is out of its window is not INVALID.",
            ),
            (
                "tcpEstablishedTimeout",
                Kind::Time,
                "How long an idle connection is remembered.",
            ),
            (
                "tcpCloseWaitTimeout",
                Kind::Time,
                "How long one in CLOSE_WAIT is remembered.",
            ),
            (
                "udpTimeout",
                Kind::Time,
                "How long a question without an answer is remembered.",
            ),
            (
                "udpStreamTimeout",
                Kind::Time,
                "How long UDP that was answered is remembered.",
            ),
        ]),
        "Conntrack of the node.",
    ),
];
