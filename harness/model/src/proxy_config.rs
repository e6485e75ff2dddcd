//! The fields of `KubeProxyConfiguration` (kubeproxy.config.k8s.io/v1alpha1) that a scenario may set: what decides rules,
//! flows and who is a pod. Mode, periods, node and API are the cluster's to say.

/// What a field is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SettingKind {
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
pub(crate) type Setting = (&'static str, SettingKind, &'static str);

/// All fields, by name.
pub(crate) const FIELDS: &[Setting] = &[
    (
        "clusterCIDR",
        SettingKind::Networks,
        "Whose addresses are pods', one network a family; \"\" for none. All pods' when not given.",
    ),
    (
        "detectLocalMode",
        SettingKind::Word(&[
            "ClusterCIDR",
            "NodeCIDR",
            "BridgeInterface",
            "InterfaceNamePrefix",
        ]),
        "How kube-proxy tells what a pod of its node sends.",
    ),
    (
        "detectLocal",
        SettingKind::Part(&[
            (
                "bridgeInterface",
                SettingKind::Text,
                "The bridge that pods are on.",
            ),
            (
                "interfaceNamePrefix",
                SettingKind::Text,
                "What the names of pods' interfaces begin with.",
            ),
        ]),
        "What detectLocalMode looks for.",
    ),
    (
        "nodePortAddresses",
        SettingKind::NetworkList,
        "At which of a node's addresses node ports are: networks, or primary.",
    ),
    (
        "iptables",
        SettingKind::Part(&[
            (
                "masqueradeAll",
                SettingKind::Truth,
                "Masquerade whatever goes to a service.",
            ),
            (
                "masqueradeBit",
                SettingKind::Whole(0, 31),
                "The bit of the mark of what is to be masqueraded.",
            ),
            (
                "localhostNodePorts",
                SettingKind::Truth,
                "Node ports at loopback addresses, too.",
            ),
        ]),
        "Of iptables mode.",
    ),
    (
        "nftables",
        SettingKind::Part(&[(
            "masqueradeAll",
            SettingKind::Truth,
            "Masquerade whatever goes to a service.",
        )]),
        "Of nftables mode.",
    ),
    (
        "conntrack",
        SettingKind::Part(&[
            (
                "maxPerCore",
                SettingKind::Whole(0, 1 << 30),
                "nf_conntrack_max for each processor; the lab's nodes cannot set it.",
            ),
            (
                "min",
                SettingKind::Whole(0, 1 << 30),
                "The least nf_conntrack_max; the lab's nodes cannot set it.",
            ),
            (
                "tcpBeLiberal",
                SettingKind::Truth,
                "nf_conntrack_tcp_be_liberal: what is out of its window is not INVALID.",
            ),
            (
                "tcpEstablishedTimeout",
                SettingKind::Time,
                "How long an idle connection is remembered.",
            ),
            (
                "tcpCloseWaitTimeout",
                SettingKind::Time,
                "How long one in CLOSE_WAIT is remembered.",
            ),
            (
                "udpTimeout",
                SettingKind::Time,
                "How long a question without an answer is remembered.",
            ),
            (
                "udpStreamTimeout",
                SettingKind::Time,
                "How long UDP that was answered is remembered.",
            ),
        ]),
        "Conntrack of the node.",
    ),
];
