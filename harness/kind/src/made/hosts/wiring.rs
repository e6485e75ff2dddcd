//! Who reaches whom outside of the cluster, rendered as input of `ip -batch`: a host's further addresses, everybody's routes to
//! them, and the routes that a scenario gives a host.

use std::{collections::BTreeMap, fmt::Write, net::IpAddr};

use chainbreak_model::case::{ClusterSpec, HostSpec, IpFamily, Via};
use indexmap::IndexMap;
use ipnet::IpNet;

use crate::error::KindError;

/// What marks our routes on nodes, which outlive a case where the cluster does (`ip route`'s protocol: one that nobody has).
pub(super) const PROTOCOL: &str = "217";

/// Everybody's addresses on the nodes' network, of each family that it has.
#[derive(Debug, Clone, Default)]
pub(super) struct Neighbours {
    /// By the scenario's names.
    pub(super) nodes: BTreeMap<String, Vec<IpAddr>>,
    /// By name.
    pub(super) hosts: IndexMap<String, Vec<IpAddr>>,
    /// Of each node, n1 first, the networks of its pods; empty where pods have addresses of any.
    pub(super) pods: Vec<Vec<IpNet>>,
}

impl Neighbours {
    /// For a node: routes to the further addresses of all hosts.
    pub(super) fn of_node(&self, cluster: &ClusterSpec) -> String {
        let mut batch = String::new();
        for (to, via) in self.further(cluster, None) {
            line(
                &mut batch,
                format_args!("route replace {to} via {via} proto {PROTOCOL}"),
            );
        }
        batch
    }

    /// For a host: its further addresses, and where packets go. What it has no route to leads nowhere, as in the lab, and not to
    /// the networks of the machine: packets disappear in its loopback interface.
    pub(super) fn of_host(&self, cluster: &ClusterSpec, name: &str) -> String {
        let mut batch = String::new();
        for family in &cluster.ip_families {
            let everything = match family {
                IpFamily::V4 => "0.0.0.0/0",
                IpFamily::V6 => "::/0",
            };
            line(
                &mut batch,
                format_args!("route replace {everything} dev lo"),
            );
        }
        let spec = cluster.hosts.get(name);
        for (address, _) in addresses(cluster, spec) {
            let nodad = if address.is_ipv6() { " nodad" } else { "" };
            line(
                &mut batch,
                format_args!("addr add {} dev eth0{nodad}", IpNet::from(address)),
            );
        }
        for (to, via) in self
            .further(cluster, Some(name))
            .chain(self.own(cluster, spec))
        {
            line(&mut batch, format_args!("route replace {to} via {via}"));
        }
        batch
    }

    /// The further addresses of all hosts but one, and through whom they are reached.
    fn further(
        &self,
        cluster: &ClusterSpec,
        but: Option<&str>,
    ) -> impl Iterator<Item = (IpNet, IpAddr)> {
        let others = cluster
            .hosts
            .iter()
            .filter(move |(name, _)| Some(name.as_str()) != but);
        others.flat_map(move |(name, spec)| {
            let own = self.hosts.get(name);
            let all = addresses(cluster, Some(spec));
            all.filter_map(move |(address, family)| Some((IpNet::from(address), of(own?, family)?)))
        })
    }

    /// The routes that the scenario gives a host.
    fn own(
        &self,
        cluster: &ClusterSpec,
        spec: Option<&HostSpec>,
    ) -> impl Iterator<Item = (IpNet, IpAddr)> {
        let routes = spec.into_iter().flat_map(|spec| &spec.routes);
        routes.flat_map(move |route| {
            cluster.ip_families.iter().filter_map(move |family| {
                let hop = match &route.via {
                    Via::Address(address) => family.address(*address),
                    Via::Node(name) => of(self.nodes.get(name.as_str())?, *family)?,
                    Via::Host(name) => of(self.hosts.get(name)?, *family)?,
                };
                let to = self.meant(route.to, *family)?;
                (IpFamily::of(to.addr()) == *family).then_some((to, hop))
            })
        })
    }

    /// What a network of a scenario is here. Which one a node's pods have is Kubernetes' to say, and scenarios write the lab's.
    fn meant(&self, written: IpNet, family: IpFamily) -> Option<IpNet> {
        let Some(node) = node_of(written) else {
            return family.net(written);
        };
        let mut pods = self.pods.get(node)?.iter().copied();
        pods.find(|net| IpFamily::of(net.addr()) == family)
    }
}

/// The addresses by which a host is meant: of each family the first that the scenario gives it, else its own; the cluster's default
/// family first.
pub(super) fn main_addresses(cluster: &ClusterSpec, name: &str, own: &[IpAddr]) -> Vec<IpAddr> {
    let all: Vec<_> = addresses(cluster, cluster.hosts.get(name)).collect();
    let main = |family: &IpFamily| {
        let mut given = all.iter().filter(|(_, of)| of == family);
        given.next().map(|(it, _)| *it).or_else(|| of(own, *family))
    };
    cluster.ip_families.iter().filter_map(main).collect()
}

/// What the scenario gives a host, in each family of the cluster.
fn addresses(
    cluster: &ClusterSpec,
    spec: Option<&HostSpec>,
) -> impl Iterator<Item = (IpAddr, IpFamily)> {
    let given = spec.into_iter().flat_map(|spec| &spec.addresses);
    given.flat_map(|given| {
        let families = cluster.ip_families.iter();
        let each = families.map(|family| (family.address(*given), *family));
        each.filter(|(address, family)| IpFamily::of(*address) == *family)
    })
}

/// Refuses routes to the pods of a node that have no network of their own.
pub(super) fn check(cluster: &ClusterSpec, pods: &[Vec<IpNet>]) -> Result<(), KindError> {
    let routes = cluster.hosts.values().flat_map(|host| &host.routes);
    for route in routes {
        let Some(node) = node_of(route.to) else {
            continue;
        };
        if pods.get(node).is_none_or(Vec::is_empty) {
            return Err(KindError::Unable(format!(
                "a host has a route to {}: the pods of n{} have no network of their own here",
                route.to,
                node + 1
            )));
        }
    }
    Ok(())
}

/// The index of the node whose pods have that network in the lab: 10.20.N.0/24 is nN's.
fn node_of(written: IpNet) -> Option<usize> {
    match (written, written.addr()) {
        (IpNet::V4(net), IpAddr::V4(address)) if net.prefix_len() == 24 => {
            let [10, 20, number, _] = address.octets() else {
                return None;
            };
            usize::from(number).checked_sub(1)
        }
        _ => None,
    }
}

/// The one of that family.
fn of(addresses: &[IpAddr], family: IpFamily) -> Option<IpAddr> {
    let mut all = addresses.iter().copied();
    all.find(|address| IpFamily::of(*address) == family)
}

fn line(batch: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(batch, "{text}").expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::{IptablesVariant, Route};

    use super::*;

    /// `db` has an address and routes through both nodes, `outside` nothing of its own.
    fn cluster(families: &[IpFamily]) -> ClusterSpec {
        let route = |to: &str, via: &str| Route {
            to: to.parse().unwrap(),
            via: Via::Node(via.into()),
        };
        let db = HostSpec {
            addresses: vec!["192.0.2.10".parse().unwrap()],
            routes: vec![route("10.20.1.0/24", "n2"), route("10.30.0.0/16", "n1")],
            nginx: Some(80),
        };
        let mut cluster = ClusterSpec::new(2, IptablesVariant::Nft);
        cluster.ip_families = families.to_vec();
        let hosts = std::sync::Arc::make_mut(&mut cluster.hosts);
        hosts.insert("db".to_owned(), db);
        let outside = HostSpec::default();
        hosts.insert("outside".to_owned(), outside);
        cluster
    }

    fn both(v4: &str, v6: &str) -> Vec<IpAddr> {
        vec![v4.parse().unwrap(), v6.parse().unwrap()]
    }

    fn neighbours() -> Neighbours {
        let node = |number: u8| {
            let own = both(&format!("172.18.0.{number}"), &format!("fc00::{number}"));
            (format!("n{number}"), own)
        };
        let pods = |number: u8| {
            let v4 = format!("10.20.{}.0/24", number + 6);
            let v6 = format!("fd00:10:20:{}::/64", number + 6);
            vec![v4.parse().unwrap(), v6.parse().unwrap()]
        };
        Neighbours {
            nodes: [node(1), node(2)].into(),
            hosts: [
                ("db".to_owned(), both("172.18.0.3", "fc00::3")),
                ("outside".to_owned(), both("172.18.0.4", "fc00::4")),
            ]
            .into(),
            pods: vec![pods(1), pods(2)],
        }
    }

    /// Networks of a node's pods are this cluster's, whatever the lab's are.
    #[test]
    fn a_host_has_its_addresses_its_routes_and_else_none() {
        let cluster = cluster(&[IpFamily::V6, IpFamily::V4]);
        insta::assert_snapshot!(neighbours().of_host(&cluster, "db"), @r"
        route replace ::/0 dev lo
        route replace 0.0.0.0/0 dev lo
        addr add fd00:192::2:10/128 dev eth0 nodad
        addr add 192.0.2.10/32 dev eth0
        route replace fd00:10:20:7::/64 via fc00::2
        route replace 10.20.7.0/24 via 172.18.0.2
        route replace fd00:10:30::/96 via fc00::1
        route replace 10.30.0.0/16 via 172.18.0.1
        ");
        check(&cluster, &neighbours().pods).unwrap();
    }

    #[test]
    fn everybody_else_has_a_route_to_a_hosts_further_addresses_and_nodes_mark_theirs() {
        let cluster = cluster(&[IpFamily::V4]);
        insta::assert_snapshot!(neighbours().of_host(&cluster, "outside"), @r"
        route replace 0.0.0.0/0 dev lo
        route replace 192.0.2.10/32 via 172.18.0.3
        ");
        let node = neighbours().of_node(&cluster);
        assert_eq!(
            node,
            "route replace 192.0.2.10/32 via 172.18.0.3 proto 217\n"
        );
    }

    #[test]
    fn a_host_is_meant_by_what_the_scenario_gives_it_or_by_its_own_address() {
        let cluster = cluster(&[IpFamily::V6, IpFamily::V4]);
        let neighbours = neighbours();
        let meant = |host: &str| {
            let main = main_addresses(&cluster, host, &neighbours.hosts[host]);
            main.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(meant("db"), ["fd00:192::2:10", "192.0.2.10"]);
        assert_eq!(meant("outside"), ["fc00::4", "172.18.0.4"]);
    }

    #[test]
    fn a_route_to_a_nodes_pods_is_refused_where_they_have_no_network() {
        let refused = check(&cluster(&[IpFamily::V4]), &[]).unwrap_err();
        let words = "a host has a route to 10.20.1.0/24: the pods of n1 have no network";
        assert!(refused.to_string().starts_with(words), "{refused}");
        let node = |net: &str| node_of(net.parse().unwrap());
        assert_eq!(node("10.20.2.0/24"), Some(1));
        for other in [
            "10.20.0.0/24",
            "10.20.0.0/16",
            "10.30.1.0/24",
            "10.20.1.5/32",
        ] {
            assert_eq!(node(other), None, "{other}");
        }
    }
}
