//! The second family. Each IPv4 address of the lab has a twin in IPv6 that is read as the same numbers,
//! and what is wired in IPv4 is wired in IPv6 line by line: `10.20.3.4` and `fd00:10:20::3:4`.
//!
//! A world has IPv4 also where its Kubernetes knows only IPv6: agents reach the API server by it.

use std::net::{IpAddr, Ipv4Addr};

use chainbreak_model::case::IpFamily;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{
    addresses::POD_GATEWAY,
    error::LabError,
    place::{PlaceThread, set},
    wiring,
};

/// The link-local address of every host-side pod interface, which follows from its MAC address; pods'
/// gateway in IPv6 (Calico's CNI plugin, dataplane/linux).
const POD_GATEWAY_V6: &str = "fe80::ecee:eeff:feee:eeee";
/// Cluster IPs of IPv6: an API server takes at most 20 bits.
const SERVICES_PREFIX: u8 = 112;

/// The families of a world, its default first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Families(Vec<IpFamily>);

impl Families {
    /// At least one.
    pub fn new(families: Vec<IpFamily>) -> Self {
        Self(families)
    }

    /// Each, the default first.
    pub fn iter(&self) -> impl Iterator<Item = IpFamily> {
        self.0.iter().copied()
    }

    /// Whether IPv6 is wired.
    pub fn has_v6(&self) -> bool {
        self.0.contains(&IpFamily::V6)
    }

    /// Those that a world has: IPv4, and IPv6 where it is wired.
    pub fn wired(&self) -> impl Iterator<Item = IpFamily> {
        let v6 = self.has_v6().then_some(IpFamily::V6);
        [IpFamily::V4].into_iter().chain(v6)
    }

    /// What Kubernetes knows somebody by who has this IPv4 address.
    pub fn addresses(&self, v4: IpAddr) -> Vec<IpAddr> {
        self.iter().map(|family| family.address(v4)).collect()
    }

    /// The first of [`Self::addresses`].
    pub fn first(&self, v4: IpAddr) -> IpAddr {
        self.0[0].address(v4)
    }

    /// The networks that Kubernetes knows this IPv4 network by.
    pub fn nets(&self, v4: IpNet) -> Vec<IpNet> {
        self.iter().filter_map(|family| family.net(v4)).collect()
    }

    /// The ranges of cluster IPs.
    pub fn services(&self, v4: IpNet) -> Vec<IpNet> {
        let narrow = |net: IpNet| match net {
            IpNet::V4(_) => net,
            IpNet::V6(net) => IpNet::V6(Ipv6Net::new_assert(net.addr(), SERVICES_PREFIX)),
        };
        self.nets(v4).into_iter().map(narrow).collect()
    }

    /// Wires a place in each family. To be said in IPv4, as input of `ip -batch`.
    pub async fn wire(&self, place: &PlaceThread, batch: String) -> Result<(), LabError> {
        wiring::apply(place, self.complete(batch)).await
    }

    /// The same in the worker's own namespace.
    pub async fn wire_here(&self, batch: String) -> Result<(), LabError> {
        wiring::apply_here(self.complete(batch)).await
    }

    fn complete(&self, mut batch: String) -> String {
        if self.has_v6() {
            let twins: Vec<String> = batch.lines().filter_map(mirror).collect();
            batch.extend(twins);
        }
        batch
    }

    /// Lets the calling thread's network namespace have IPv6, where it has it. To be called before there
    /// are links: addresses are usable at once, and nobody asks for routers.
    pub(crate) fn enable(&self) -> Result<(), LabError> {
        if !self.has_v6() {
            return Ok(());
        }
        for scope in ["all", "default"] {
            for (setting, value) in [
                ("accept_dad", "0"),
                ("accept_ra", "0"),
                ("disable_ipv6", "0"),
            ] {
                set(&format!("/proc/sys/net/ipv6/conf/{scope}/{setting}"), value)?;
            }
        }
        Ok(())
    }

    /// Lets the calling thread's node pass packets on.
    pub(crate) fn forward(&self) -> Result<(), LabError> {
        set("/proc/sys/net/ipv4/ip_forward", "1")?;
        if self.has_v6() {
            set("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
        }
        Ok(())
    }
}

/// The IPv6 line to one of `ip -batch`; links have no family.
fn mirror(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let gateway = POD_GATEWAY.to_string();
    let (&object, rest) = words.split_first()?;
    // A link-local gateway is there without a route.
    if !matches!(object, "addr" | "route" | "neigh") || rest.get(1) == Some(&gateway.as_str()) {
        return None;
    }
    let mut mirrored = vec![object.to_owned()];
    for word in rest {
        mirrored.push(if *word == "default" {
            "::/0".to_owned()
        } else if *word == gateway {
            POD_GATEWAY_V6.to_owned()
        } else if let Ok(v4) = word.parse::<Ipv4Addr>() {
            IpFamily::V6.address(v4.into()).to_string()
        } else if let Ok(v4) = word.parse::<Ipv4Net>() {
            let prefix = IpFamily::V6.net(v4.trunc().into())?.prefix_len();
            format!("{}/{prefix}", IpFamily::V6.address(v4.addr().into()))
        } else {
            (*word).to_owned()
        });
    }
    let mut mirrored = mirrored.join(" ");
    if object == "addr" {
        mirrored.push_str(" nodad");
    }
    mirrored.push('\n');
    Some(mirrored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> Families {
        Families(vec![IpFamily::V6, IpFamily::V4])
    }

    #[test]
    fn a_twin_is_read_as_its_ipv4_address_and_lies_in_the_twin_of_its_network() {
        let twin = |text: &str| IpFamily::V6.address(text.parse().unwrap()).to_string();
        assert_eq!(twin("10.20.3.254"), "fd00:10:20::3:254");
        assert_eq!(twin("10.0.0.1"), "fd00:10::1");
        let nets = |text: &str| both().nets(text.parse().unwrap());
        assert_eq!(
            format!("{:?}", nets("10.20.0.0/16")),
            "[fd00:10:20::/96, 10.20.0.0/16]"
        );
        for (net, inside) in [
            ("10.20.0.0/16", "10.20.255.255"),
            ("10.20.3.0/24", "10.20.3.199"),
        ] {
            let inside: IpAddr = inside.parse().unwrap();
            assert!(
                nets(net)[0].contains(&IpFamily::V6.address(inside)),
                "{net}"
            );
        }
        assert_eq!(nets("10.20.0.0/20"), ["10.20.0.0/20".parse().unwrap()]);
    }

    #[test]
    fn cluster_ips_are_of_a_range_that_an_api_server_takes() {
        let services = both().services("10.96.0.0/16".parse().unwrap());
        assert_eq!(format!("{services:?}"), "[fd00:10:96::/112, 10.96.0.0/16]");
    }

    #[test]
    fn what_is_wired_in_ipv4_is_wired_in_ipv6_line_by_line() {
        let batch = "link set lo up\n\
            addr add 10.0.1.1/16 dev eth0\n\
            link add v type vxlan local 10.0.1.1 dev eth0\n\
            route add default via 10.0.0.1\n\
            route add 10.20.2.0/24 via 10.0.1.2\n\
            route add 10.20.1.2/32 dev cali1 scope link\n\
            route add 169.254.1.1 dev eth0 scope link\n\
            route add default via 169.254.1.1 dev eth0\n";
        let complete = both().complete(batch.to_owned());
        insta::assert_snapshot!(complete.strip_prefix(batch).unwrap(), @r"
        addr add fd00:10::1:1/96 dev eth0 nodad
        route add ::/0 via fd00:10::1
        route add fd00:10:20::2:0/112 via fd00:10::1:2
        route add fd00:10:20::1:2/128 dev cali1 scope link
        route add ::/0 via fe80::ecee:eeff:feee:eeee dev eth0
        ");
        let alone = Families(vec![IpFamily::V4]);
        assert_eq!(alone.complete(batch.to_owned()), batch);
    }
}
