//! Where two kube-proxies play: iptables backend, mode and families of both places.

use std::{env, fmt};

use chainbreak_model::case::{IpFamily, ProxyMode};
use serde_json::{Value, json};

use crate::families;

/// The iptables backend of both places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IptablesBackend {
    Legacy,
    Nft,
}

impl IptablesBackend {
    /// As a node's `iptables` field has it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Nft => "nft",
        }
    }
}

/// The families of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Families {
    V4,
    V6,
    /// Both, IPv4 first.
    Dual,
}

impl Families {
    /// Each, the default first.
    pub(crate) fn all(self) -> &'static [IpFamily] {
        match self {
            Self::V4 => &[IpFamily::V4],
            Self::V6 => &[IpFamily::V6],
            Self::Dual => &[IpFamily::V4, IpFamily::V6],
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
            Self::Dual => "dual",
        }
    }
}

/// What a pair is raised with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) backend: IptablesBackend,
    pub(crate) mode: ProxyMode,
    pub(crate) families: Families,
}

impl Stage {
    /// iptables mode in IPv4.
    pub(crate) fn iptables(backend: IptablesBackend) -> Self {
        Self {
            backend,
            mode: ProxyMode::Iptables,
            families: Families::V4,
        }
    }

    /// That of `CHAINBREAK_MODE` (`iptables`, `nftables`) and `CHAINBREAK_IP_FAMILY` (`IPv4`, `IPv6`,
    /// `dual`), by default iptables mode in IPv4.
    pub(crate) fn asked(backend: IptablesBackend) -> Self {
        let value = |variable: &str| env::var(variable).ok();
        let mode = value("CHAINBREAK_MODE");
        let mode = mode.map_or(ProxyMode::Iptables, |mode| match &*mode {
            "iptables" => ProxyMode::Iptables,
            "nftables" => ProxyMode::Nftables,
            other => panic!("CHAINBREAK_MODE is iptables or nftables, not {other}"),
        });
        let families = value("CHAINBREAK_IP_FAMILY");
        let families = families.map_or(Families::V4, |asked| {
            let known = [Families::V4, Families::V6, Families::Dual];
            let known = known.into_iter().find(|it| it.as_str() == asked);
            known.unwrap_or_else(|| panic!("CHAINBREAK_IP_FAMILY is IPv4, IPv6 or dual"))
        });
        Self {
            backend,
            mode,
            families,
        }
    }

    /// The part of the worker's setup that says this.
    pub(crate) fn setup(self) -> Value {
        let mode = match self.mode {
            ProxyMode::Iptables => "iptables",
            ProxyMode::Nftables => "nftables",
            ProxyMode::Ipvs => unreachable!("no model plays it"),
        };
        json!({
            "iptables": self.backend.as_str(), "mode": mode, "ip-families": self.families.all(),
        })
    }

    /// A script that is written for IPv4, for each family.
    pub(crate) fn script(self, script: &str) -> String {
        let families = self.families.all().iter();
        let scripts = families.map(|&family| families::script(family, script));
        scripts.collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (backend, families) = (self.backend.as_str(), self.families.as_str());
        match self.mode {
            ProxyMode::Iptables => write!(f, "iptables mode ({backend}), {families}"),
            ProxyMode::Nftables => write!(f, "nftables mode, {families}"),
            ProxyMode::Ipvs => unreachable!("no model plays it"),
        }
    }
}
