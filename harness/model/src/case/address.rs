//! Addresses and ports that a promise speaks of.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// A network: an address and how many of its bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether the address lies in it.
    pub fn contains(self, address: IpAddr) -> bool {
        let (width, network, address) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (32, a.to_bits().into(), b.to_bits().into()),
            (IpAddr::V6(a), IpAddr::V6(b)) => (128, a.to_bits(), b.to_bits()),
            _ => return false,
        };
        let differ: u128 = network ^ address;
        differ
            .checked_shr(width - u32::from(self.prefix))
            .unwrap_or(0)
            == 0
    }

    /// Whether every address lies in it.
    pub fn is_everything(self) -> bool {
        self.prefix == 0
    }
}

impl FromStr for Network {
    type Err = String;

    /// Reads `10.0.1.0/24`, or one address.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(a, p)| (a, Some(p)));
        let wrong = || format!("{text:?} is no address and no network");
        let address: IpAddr = address.parse().map_err(|_unparsable| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|p| *p <= width)
                .ok_or_else(wrong)?,
            None => width,
        };
        Ok(Self { address, prefix })
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Ports, both ends among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ports {
    /// The lowest.
    pub low: u16,
    /// The highest.
    pub high: u16,
}

impl Ports {
    /// Whether the port is among them.
    pub fn contain(self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(network: &str, address: &str) -> bool {
        let network: Network = network.parse().unwrap();
        network.contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_holds_its_addresses_and_no_others() {
        for (network, address, held) in [
            ("10.0.1.0/24", "10.0.1.255", true),
            ("10.0.1.0/24", "10.0.2.0", false),
            ("10.0.1.7", "10.0.1.7", true),
            ("10.0.1.7", "10.0.1.6", false),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("fd00:10::/64", "fd00:10::ffff", true),
            ("fd00:10::/64", "fd00:11::1", false),
            ("::/0", "fd00::1", true),
            ("10.0.1.0/24", "::ffff:10.0.1.2", true),
        ] {
            assert_eq!(holds(network, address), held, "{address} in {network}");
        }
        for wrong in ["10.0.1", "10.0.1.0/33", "10.0.1.0/", "n1", ""] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
