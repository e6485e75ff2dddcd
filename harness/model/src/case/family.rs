//! IP families.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// An IP family.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum IpFamily {
    /// IPv4.
    #[default]
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    V6,
}

impl IpFamily {
    /// Both, by the word that a scenario and the API use.
    pub const ALL: [(&'static str, Self); 2] = [("IPv4", Self::V4), ("IPv6", Self::V6)];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// `IPv4` or `IPv6`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// `iptables` or `ip6tables`, to which `-save` and `-restore` are added.
    pub fn iptables(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }

    /// What an address that is written in IPv4 means in this family: in IPv6 its twin, which is read as the same numbers,
    /// `10.20.3.4` and `fd00:10:20::3:4`.
    pub fn address(self, written: IpAddr) -> IpAddr {
        match (written, self) {
            (IpAddr::V4(v4), Self::V6) => twin(v4).into(),
            _ => written,
        }
    }

    /// What a network that is written in IPv4 means in this family; `None` where no IPv6 network has just the twins of its
    /// addresses.
    pub fn net(self, written: IpNet) -> Option<IpNet> {
        match (written, self) {
            (IpNet::V4(v4), Self::V6) => twin_net(v4).map(IpNet::V6),
            _ => Some(written),
        }
    }

    /// The family of a cluster that says nothing.
    pub(crate) fn default_list() -> Vec<Self> {
        vec![Self::V4]
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Each number of an IPv4 address is read in IPv6 as it is in IPv4.
fn twin(v4: Ipv4Addr) -> Ipv6Addr {
    let read = |n: u8| {
        let n = u16::from(n);
        ((n / 100) << 8) | ((n / 10 % 10) << 4) | (n % 10)
    };
    let [a, b, c, d] = v4.octets().map(read);
    Ipv6Addr::new(0xfd00, a, b, 0, 0, 0, c, d)
}

fn twin_net(v4: Ipv4Net) -> Option<Ipv6Net> {
    let prefix = match v4.prefix_len() {
        0 => return Some(Ipv6Net::default()),
        8 => 32,
        16 => 96,
        24 => 112,
        32 => 128,
        _ => return None,
    };
    Some(Ipv6Net::new_assert(twin(v4.network()), prefix).trunc())
}
