//! IP families.

use std::fmt;

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
    pub fn of(address: std::net::IpAddr) -> Self {
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
