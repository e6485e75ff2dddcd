//! What Calico has in a cluster before Felix starts: `calico-node -startup` and the installation make
//! it (clientv3's `EnsureInitialized`, v3.25 to v3.32), and Felix waits for it.

use std::net::IpAddr;

use chainbreak_model::{
    case::{CalicoSpec, Case, IpFamily, PodOwner, PoolSpec, Vxlan},
    names::NodeName,
};
use futures::future::try_join_all;
use ipnet::IpNet;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::refused;
use crate::{
    error::LabError,
    families::Families,
    pools::{Pools, tunnel_mac},
    world::{Node, World},
};

/// Where Calico looks for a node's addresses on the underlay and in the tunnel, as annotations of the Node.
pub(super) fn node_addresses(world: &World, node: &Node, prefix: u8) -> Value {
    let net = IpNet::new_assert(node.address, prefix);
    let tunnel = world.pools.tunnel(node.number);
    let of = |family: IpFamily| {
        let length = family.net(net.trunc()).map(|net| net.prefix_len());
        let address = family.address(node.address);
        let on_underlay =
            length.map(|length| (format!("{family}Address"), format!("{address}/{length}")));
        let in_tunnel = tunnel.map(|end| in_tunnel(&node.name, family.address(end), family));
        on_underlay
            .into_iter()
            .chain(in_tunnel.into_iter().flatten())
    };
    let all = world.families.iter().flat_map(of);
    let all = all.map(|(key, value)| (format!("projectcalico.org/{key}"), value.into()));
    Value::Object(all.collect())
}

/// The annotations of a node's end of the tunnel, which `calico-node -allocate-tunnel-addrs` and Felix write.
fn in_tunnel(node: &NodeName, address: IpAddr, family: IpFamily) -> [(String, String); 2] {
    let suffix = match family {
        IpFamily::V4 => "",
        IpFamily::V6 => "V6",
    };
    let mac = tunnel_mac(node.as_str(), family);
    [
        (format!("{family}VXLANTunnelAddr"), address.to_string()),
        (format!("VXLANTunnelMACAddr{suffix}"), mac),
    ]
}

/// A node's parts of the pools, as Calico's own IPAM has them: by them a real Felix knows which nodes its tunnels lead to. Which addresses are
/// taken is left out, as Felix asks the pods.
fn ipam_blocks(pools: &Pools, families: &Families, node: &NodeName, number: u16) -> Vec<Object> {
    let nets = pools.blocks(number).flat_map(|block| families.nets(block));
    let block = |cidr: IpNet| {
        let name = cidr.to_string().replace(['.', ':', '/'], "-");
        let spec = json!({
            "cidr": cidr, "affinity": format!("host:{node}"), "strictAffinity": false, "deleted": false,
            "allocations": vec![Value::Null; 256], "unallocated": (0..256).collect::<Vec<u16>>(),
            "attributes": [], "sequenceNumber": 0, "sequenceNumberForAllocation": {},
        });
        ("IPAMBlock", "ipamblocks", name, spec)
    };
    nets.map(block).collect()
}

/// Kind and plural, name, spec.
type Object = (&'static str, &'static str, String, Value);

/// Makes what a case's Calico needs; nothing when it has none.
pub(super) async fn provision(client: &Client, world: &World, case: &Case) -> Result<(), LabError> {
    let Some(calico) = &case.cluster.calico else {
        return Ok(());
    };
    let felix = json!(case.cluster.felix);
    let mut all = objects(&world.pools, &world.families, calico, felix, case.seed);
    if calico.pods == PodOwner::Calico && world.pools.are_declared {
        let (pools, families) = (&world.pools, &world.families);
        let nodes = world.nodes();
        all.extend(nodes.flat_map(|it| ipam_blocks(pools, families, &it.name, it.number)));
    }
    try_join_all(all.into_iter().map(|object| add(client, object)))
        .await
        .map(drop)
}

fn resource((kind, plural, ..): &Object) -> ApiResource {
    let group = GroupVersionKind::gvk("crd.projectcalico.org", "v1", kind);
    ApiResource::from_gvk_with_plural(&group, plural)
}

fn api_of(client: &Client, object: &Object) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(object))
}

async fn add(client: &Client, object: Object) -> Result<(), LabError> {
    let (api, resource) = (api_of(client, &object), resource(&object));
    let (kind, _, name, spec) = object;
    let object = DynamicObject::new(&name, &resource).data(json!({ "spec": spec }));
    let created = api.create(&PostParams::default(), &object).await;
    created
        .map(drop)
        .map_err(refused(format!("create {kind} {name}")))
}

/// What another version of Calico makes: its tiers beside those that are there, and its name.
pub(super) async fn upgrade(client: &Client, version: &str) -> Result<(), LabError> {
    for tier in tier_objects(version) {
        let api = api_of(client, &tier);
        let what = format!("look for tier {}", tier.2);
        let found = api.get_opt(&tier.2).await.map_err(refused(what))?;
        if found.is_none() {
            add(client, tier).await?;
        }
    }
    let cluster = (
        "ClusterInformation",
        "clusterinformations",
        "default".to_owned(),
        Value::Null,
    );
    let patch = Patch::Merge(json!({ "spec": { "calicoVersion": version } }));
    let api = api_of(client, &cluster);
    let patched = api.patch("default", &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(refused("write Calico's version"))
}

fn tier_objects(version: &str) -> impl Iterator<Item = Object> + use<> {
    tiers(version).iter().map(|(name, order, action)| {
        let spec = json!({ "order": order, "defaultAction": action });
        ("Tier", "tiers", (*name).to_owned(), spec)
    })
}

fn objects(
    pools: &Pools,
    families: &Families,
    calico: &CalicoSpec,
    felix: Value,
    seed: u64,
) -> Vec<Object> {
    let cluster = json!({
        "calicoVersion": calico.version, "clusterType": "k8s,kdd", "datastoreReady": true,
        "clusterGUID": format!("{seed:032x}"),
    });
    let mut objects = vec![
        (
            "ClusterInformation",
            "clusterinformations",
            "default".to_owned(),
            cluster,
        ),
        (
            "FelixConfiguration",
            "felixconfigurations",
            "default".to_owned(),
            felix,
        ),
    ];
    objects.extend(tier_objects(&calico.version));
    if calico.pods == PodOwner::Calico {
        // They are there before Felix is: what a scenario says of them more, it says when it applies them.
        let all = pools.iter();
        objects.extend(all.flat_map(|pool| ip_pools(pool, pools.are_declared, families)));
    }
    objects
}

/// A pool as each family knows it. What a scenario declares is there as it says, too, where Kubernetes knows IPv6
/// only.
fn ip_pools(pool: &PoolSpec, is_declared: bool, families: &Families) -> Vec<Object> {
    let vxlan = match pool.vxlan {
        Vxlan::Never => "Never",
        Vxlan::CrossSubnet => "CrossSubnet",
        Vxlan::Always => "Always",
    };
    let mut cidrs = families.nets(pool.cidr);
    if is_declared && !cidrs.contains(&pool.cidr) {
        cidrs.push(pool.cidr);
    }
    let object = |cidr: IpNet| {
        let (name, block) = match cidr {
            IpNet::V4(_) => (pool.name.clone(), 26),
            IpNet::V6(_) if pool.name.contains("ipv4") => (pool.name.replace("ipv4", "ipv6"), 122),
            IpNet::V6(_) => (format!("{}-ipv6", pool.name), 122),
        };
        let spec = json!({
            "cidr": cidr, "blockSize": block, "ipipMode": "Never", "vxlanMode": vxlan,
            "natOutgoing": pool.nat_outgoing, "nodeSelector": "all()",
            "allowedUses": ["Workload", "Tunnel"],
        });
        ("IPPool", "ippools", name, spec)
    };
    cidrs.into_iter().map(object).collect()
}

/// Name, order and default action of the tiers that a version makes.
type Tiers = &'static [(&'static str, u32, &'static str)];

fn tiers(version: &str) -> Tiers {
    const DEFAULT: (&str, u32, &str) = ("default", 1_000_000, "Deny");
    const ADMIN: (&str, u32, &str) = ("adminnetworkpolicy", 1_000, "Pass");
    match minor(version) {
        Some(..=28) => &[],
        Some(29) => &[DEFAULT, ADMIN],
        Some(30 | 31) => &[
            DEFAULT,
            ADMIN,
            ("baselineadminnetworkpolicy", 10_000_000, "Pass"),
        ],
        _ => &[
            DEFAULT,
            ("kube-admin", 1_000, "Pass"),
            ("kube-baseline", 10_000_000, "Pass"),
        ],
    }
}

/// 28 of `v3.28.1`.
fn minor(version: &str) -> Option<u32> {
    version.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chainbreak_model::case::{AgentSource, ClusterSpec, IptablesVariant};

    use super::*;
    use crate::addresses::Plan;

    fn of(version: &str, pods: PodOwner) -> Vec<String> {
        let families = Families::new(vec![IpFamily::V4, IpFamily::V6]);
        let calico = CalicoSpec::new(version, AgentSource::Model, pods);
        let bare = ClusterSpec::new(1, IptablesVariant::Legacy);
        let pools = Pools::of(&bare, Plan::ipv4());
        let objects = objects(&pools, &families, &calico, json!({}), 7).into_iter();
        objects
            .map(|(kind, _, name, spec)| format!("{kind} {name} {spec}"))
            .collect()
    }

    #[test]
    fn felix_finds_a_ready_datastore_and_a_pool_only_where_calico_owns_the_pods() {
        let theirs = of("v3.28.1", PodOwner::ThirdParty);
        assert_eq!(theirs.len(), 2);
        assert!(theirs[0].contains("\"datastoreReady\":true"));
        assert!(theirs[0].contains("\"clusterGUID\":\"00000000000000000000000000000007\""));
        assert_eq!(theirs[1], "FelixConfiguration default {}");
        let ours = of("v3.28.1", PodOwner::Calico);
        assert_eq!(ours.len(), 4);
        assert!(ours[2].starts_with("IPPool default-ipv4-ippool"));
        assert!(ours[2].contains("\"cidr\":\"10.20.0.0/16\""));
        assert!(ours[3].starts_with("IPPool default-ipv6-ippool"));
        assert!(ours[3].contains("\"cidr\":\"fd00:10:20::/96\""));
    }

    #[test]
    fn a_declared_pool_has_a_twin_and_is_there_itself_where_kubernetes_knows_ipv6_only() {
        let pool = PoolSpec {
            name: "overlay".to_owned(),
            cidr: "10.30.0.0/16".parse().unwrap(),
            vxlan: Vxlan::Always,
            nat_outgoing: false,
        };
        let of = |is_declared, families: &[IpFamily]| -> Vec<String> {
            let families = Families::new(families.to_vec());
            let pools = ip_pools(&pool, is_declared, &families).into_iter();
            pools
                .map(|(_, _, name, spec)| {
                    assert_eq!(spec["vxlanMode"], "Always");
                    format!("{name} {}", spec["cidr"].as_str().unwrap())
                })
                .collect()
        };
        let (v4, v6) = ("overlay 10.30.0.0/16", "overlay-ipv6 fd00:10:30::/96");
        assert_eq!(of(true, &[IpFamily::V4]), [v4]);
        assert_eq!(of(true, &[IpFamily::V4, IpFamily::V6]), [v4, v6]);
        assert_eq!(of(true, &[IpFamily::V6]), [v6, v4]);
        assert_eq!(of(false, &[IpFamily::V6]), [v6]);
    }

    #[test]
    fn a_node_has_its_part_of_every_pool_and_an_end_of_the_tunnel_in_each_family() {
        let pool = |name: &str, cidr: &str, vxlan| PoolSpec {
            name: name.to_owned(),
            cidr: cidr.parse().unwrap(),
            vxlan,
            nat_outgoing: false,
        };
        let mut spec = ClusterSpec::new(2, IptablesVariant::Legacy);
        spec.pools = Arc::new(vec![
            pool("routed", "10.20.0.0/16", Vxlan::Never),
            pool("overlay", "10.30.0.0/16", Vxlan::Always),
        ]);
        let pools = Pools::of(&spec, Plan::ipv4());
        let families = Families::new(vec![IpFamily::V4, IpFamily::V6]);
        let node = NodeName::from("n2");
        let blocks = ipam_blocks(&pools, &families, &node, 2).into_iter();
        let told = blocks.map(|(_, _, name, spec)| {
            assert_eq!(spec["affinity"], "host:n2");
            assert_eq!(spec["allocations"].as_array().unwrap().len(), 256);
            format!("{name} {}", spec["cidr"].as_str().unwrap())
        });
        let expected = [
            "10-20-2-0-24 10.20.2.0/24",
            "fd00-10-20--2-0-112 fd00:10:20::2:0/112",
            "10-30-2-0-24 10.30.2.0/24",
            "fd00-10-30--2-0-112 fd00:10:30::2:0/112",
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        let end = IpFamily::V6.address(pools.tunnel(2).unwrap());
        let [(address, _), (mac, at)] = in_tunnel(&node, end, IpFamily::V6);
        assert_eq!(
            [address.as_str(), &mac],
            ["IPv6VXLANTunnelAddr", "VXLANTunnelMACAddrV6"]
        );
        assert_eq!(at, tunnel_mac("n2", IpFamily::V6));
    }

    #[test]
    fn each_version_has_the_tiers_it_makes() {
        let of = |version: &str| -> Vec<&str> {
            let tiers = tiers(version).iter();
            tiers.map(|(name, ..)| *name).collect()
        };
        assert!(of("v3.28.1").is_empty());
        assert_eq!(of("v3.29"), ["default", "adminnetworkpolicy"]);
        assert_eq!(of("v3.31.0-0.dev").len(), 3);
        assert_eq!(of("v3.32.1"), ["default", "kube-admin", "kube-baseline"]);
    }
}
