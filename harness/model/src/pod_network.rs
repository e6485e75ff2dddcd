//! What a pod's annotations ask of its network: Calico's pools and addresses, and further interfaces as Multus
//! attaches them. Read by the language, which says mistakes, and by the backend, which follows them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

/// Names of pools, a JSON list (Calico).
pub const POOLS: &str = "cni.projectcalico.org/ipv4pools";
/// The pod's addresses, a JSON list (Calico).
pub const ADDRESSES: &str = "cni.projectcalico.org/ipAddrs";
/// Further interfaces: names, or a JSON list of objects (Multus).
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The network of nodes and hosts, to which an interface can be attached.
pub const UNDERLAY: &str = "underlay";

/// What a pod's annotations ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodNetwork {
    /// Pools to choose from; empty means the first one there is.
    pub pools: Vec<String>,
    /// Its address, instead of any of a pool.
    pub address: Option<IpAddr>,
    /// Interfaces beside `eth0`.
    pub attachments: Vec<Attachment>,
}

/// An interface beside `eth0`, on the network of nodes and hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// `net1`, or as asked for.
    pub interface: String,
    /// Its addresses; with a prefix of `/32` nothing is reached through it, but it is reached.
    pub addresses: Vec<IpNet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    name: String,
    interface: Option<String>,
    #[serde(default)]
    ips: Vec<String>,
}

/// An annotation, and what is wrong with it.
pub type Wrong = (&'static str, String);

impl PodNetwork {
    /// Reads what there is; `annotation` gives the value of one.
    pub fn read<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Result<Self, Wrong> {
        let pools = annotation(POOLS).map(names).transpose();
        let address = annotation(ADDRESSES).map(one_address).transpose();
        let attachments = annotation(NETWORKS).map(attachments).transpose();
        Ok(Self {
            pools: pools.map_err(|wrong| (POOLS, wrong))?.unwrap_or_default(),
            address: address.map_err(|wrong| (ADDRESSES, wrong))?,
            attachments: attachments
                .map_err(|wrong| (NETWORKS, wrong))?
                .unwrap_or_default(),
        })
    }
}

fn names(json: &str) -> Result<Vec<String>, String> {
    serde_json::from_str(json).map_err(|_odd| format!("{json:?} is not a JSON list of names"))
}

fn one_address(json: &str) -> Result<IpAddr, String> {
    match names(json)?.as_slice() {
        [one] => one
            .parse()
            .map_err(|_odd| format!("{one:?} is not an address")),
        _ => Err("a pod has one address".to_owned()),
    }
}

fn attachments(text: &str) -> Result<Vec<Attachment>, String> {
    if !text.trim_start().starts_with('[') {
        return Err(format!(
            "say the addresses too: [{{\"name\": {UNDERLAY:?}, \"ips\": [\"10.0.3.5/16\"]}}]"
        ));
    }
    let networks: Vec<Network> =
        serde_json::from_str(text).map_err(|error| format!("no list of networks: {error}"))?;
    let numbered = networks.into_iter().zip(1..);
    numbered
        .map(|(network, n)| attachment(network, n))
        .collect()
}

fn attachment(network: Network, number: u32) -> Result<Attachment, String> {
    if network.name != UNDERLAY {
        let name = network.name;
        return Err(format!("there is no network {name:?}, only {UNDERLAY:?}"));
    }
    if network.ips.is_empty() {
        return Err("an interface needs its addresses, as `ips`".to_owned());
    }
    let address = |text: &String| {
        let read = text.parse().ok();
        read.ok_or_else(|| format!("{text:?} is not an address with a prefix, as 10.0.3.5/16"))
    };
    Ok(Attachment {
        interface: network.interface.unwrap_or_else(|| format!("net{number}")),
        addresses: network.ips.iter().map(address).collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(all: &[(&str, &str)]) -> Result<PodNetwork, Wrong> {
        PodNetwork::read(|key| {
            let mut all = all.iter();
            all.find(|(name, _)| *name == key).map(|(_, value)| *value)
        })
    }

    #[test]
    fn annotations_are_read_as_calico_and_multus_write_them() {
        let networks = r#"[{"name": "underlay", "ips": ["10.0.3.5/32"]}]"#;
        let read = read(&[
            (POOLS, r#"["overlay"]"#),
            (ADDRESSES, r#"["10.20.1.5"]"#),
            (NETWORKS, networks),
        ]);
        let attachment = Attachment {
            interface: "net1".to_owned(),
            addresses: vec!["10.0.3.5/32".parse().unwrap()],
        };
        let expected = PodNetwork {
            pools: vec!["overlay".to_owned()],
            address: Some([10, 20, 1, 5].into()),
            attachments: vec![attachment],
        };
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_its_annotation() {
        for (name, value) in [
            (POOLS, "overlay"),
            (ADDRESSES, r#"["10.20.1.5", "10.20.1.6"]"#),
            (NETWORKS, "underlay"),
            (NETWORKS, r#"[{"name": "macvlan", "ips": ["10.0.3.5/16"]}]"#),
            (NETWORKS, r#"[{"name": "underlay"}]"#),
        ] {
            let wrong = read(&[(name, value)]).unwrap_err();
            assert_eq!(wrong.0, name, "{value}");
        }
    }
}
