//! `IPPool`s, and what pods' annotations ask of their network.

use ipnet::IpNet;

use super::{
    super::{
        fields::{Fields, note, truth, word},
        network::network,
    },
    unable::unable,
};
use crate::{
    case::{ClusterSpec, PodOwner, PoolSpec, Vxlan},
    diagnostic::{Gathered, Place},
    pod_network::PodNetwork,
    yaml::Node,
};

/// The fields of an `IPPool`'s spec (Calico's `ippool.go`).
const FIELDS: &[&str] = &[
    "cidr",
    "vxlanMode",
    "ipipMode",
    "natOutgoing",
    "blockSize",
    "nodeSelector",
    "namespaceSelector",
    "disabled",
    "disableBGPExport",
    "allowedUses",
    "assignmentMode",
];

/// A node has one /24 of each pool, whatever `blockSize` says: Calico would give it more blocks.
const BLOCK: u8 = 24;

/// Reads an `IPPool`.
pub(super) fn pool(gathered: &Gathered, name: &str, spec: &Node) -> Option<PoolSpec> {
    let fields = Fields::foreign(gathered, spec, "an IPPool", FIELDS)?;
    let cidr = fields.need("cidr", |node| network(gathered, node));
    let vxlan = fields.maybe("vxlanMode", |node| {
        let modes = [
            ("Never", Vxlan::Never),
            ("CrossSubnet", Vxlan::CrossSubnet),
            ("Always", Vxlan::Always),
        ];
        word(gathered, node, "vxlanMode", &modes)
    });
    let nat_outgoing = fields.or_empty("natOutgoing", |node| truth(gathered, node, "natOutgoing"));
    for (field, usual, hint) in [
        (
            "ipipMode",
            "Never",
            "VXLAN can be done: `vxlanMode: Always`",
        ),
        (
            "nodeSelector",
            "all()",
            "every node has a block of each pool",
        ),
        (
            "namespaceSelector",
            "all()",
            "pods choose a pool by annotation",
        ),
        ("disabled", "false", "leave the pool out"),
        (
            "assignmentMode",
            "Automatic",
            "pods choose a pool by annotation",
        ),
    ] {
        if let Some(node) = fields.get(field).filter(|it| it.text() != Some(usual)) {
            unable(gathered, node, field, hint);
        }
    }
    let cidr = cidr?;
    if !cidr.addr().is_ipv4() {
        let at = fields.get("cidr").unwrap_or(spec);
        unable(gathered, at, "an IPv6 pool", "write an IPv4 cidr");
    }
    Some(PoolSpec {
        name: name.to_owned(),
        cidr,
        vxlan: vxlan?.unwrap_or(Vxlan::Never),
        nat_outgoing: nat_outgoing?,
    })
}

/// What the annotations of a pod or of a template ask for.
pub(super) fn pod_network(gathered: &Gathered, metadata: &Node) -> Option<(PodNetwork, Place)> {
    let annotations = metadata.get("annotations")?;
    let read = PodNetwork::read(|key| annotations.get(key).and_then(Node::text));
    match read {
        Ok(network) if network == PodNetwork::default() => None,
        Ok(network) => Some((network, annotations.place.clone())),
        Err((key, wrong)) => {
            let at = annotations.get(key).unwrap_or(annotations);
            note(gathered, &at.place, wrong, None);
            None
        }
    }
}

/// Notes what does not fit together.
pub(super) fn check(
    gathered: &Gathered,
    cluster: &ClusterSpec,
    pools: &[(&PoolSpec, &Place)],
    pods: &[&(PodNetwork, Place)],
) {
    let owner = cluster.calico.as_ref().map(|calico| calico.pods);
    let calicos = owner == Some(PodOwner::Calico);
    for (index, (pool, place)) in pools.iter().enumerate() {
        if !calicos {
            let message = "an IPPool is Calico's, which does not own the pods' interfaces here";
            note(gathered, place, message, None);
        }
        let blocks = 1_u32 << BLOCK.saturating_sub(pool.cidr.prefix_len()).min(31);
        if pool.cidr.addr().is_ipv4() && u32::from(cluster.nodes) >= blocks {
            let message = format!("{} has no /24 for each node", pool.cidr);
            note(gathered, place, message, None);
        }
        let overlaps = |other: &IpNet| other.contains(&pool.cidr) || pool.cidr.contains(other);
        let before = pools.iter().take(index);
        for (other, _) in before.filter(|(other, _)| overlaps(&other.cidr)) {
            let message = format!("{} overlaps with pool {:?}", pool.cidr, other.name);
            note(gathered, place, message, None);
        }
    }
    for (network, place) in pods {
        if !calicos && (!network.pools.is_empty() || network.address.is_some()) {
            let message =
                "pools and addresses are Calico's, which does not own the pods' interfaces here";
            note(gathered, place, message, None);
        }
        let unknown = network.pools.iter();
        let mut unknown = unknown.filter(|name| !pools.iter().any(|(pool, _)| pool.name == **name));
        if let Some(name) = unknown.next() {
            note(gathered, place, format!("unknown IPPool {name:?}"), None);
        }
    }
}
