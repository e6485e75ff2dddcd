//! The matrix: settings of the cluster that take several values, each combination a cell.

use std::fmt;

use crate::{
    case::{ClusterSpec, IpFamily, IptablesVariant, ProxyMode},
    names::AgentName,
    version,
};

/// A setting that a matrix can vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatrixKey {
    /// What kube-proxy programs services with.
    Mode,
    /// Which iptables the nodes have.
    Iptables,
    /// Which IP family comes first.
    IpFamily,
    /// kube-proxy's version.
    KubeProxy,
    /// Calico's version.
    Calico,
}

impl MatrixKey {
    /// All of them, by the word that a scenario or `--matrix` uses.
    pub const ALL: [(&'static str, Self); 5] = [
        ("mode", Self::Mode),
        ("iptables", Self::Iptables),
        ("ip-family", Self::IpFamily),
        ("kube-proxy", Self::KubeProxy),
        ("calico", Self::Calico),
    ];

    /// The key that a word means.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, key)| *key)
    }

    /// As [`Self::parse`]; an error names the words that there are.
    pub(crate) fn named(word: &str) -> Result<Self, String> {
        Self::parse(word).ok_or_else(|| {
            let words = Self::ALL.map(|(word, _)| word).join(", ");
            format!("the matrix cannot vary {word:?}; it can vary {words}")
        })
    }

    /// The values that a word means: `nft`, or `1.28..1.31` for the minor versions from one to the other.
    fn values(self, word: &str) -> Result<Vec<String>, String> {
        let ends = word.split_once("..").filter(|_| self.agent().is_some());
        let Some((first, last)) = ends else {
            return self.check(word).map(|()| vec![word.to_owned()]);
        };
        self.check(first)?;
        self.check(last)?;
        version::minors(first, last)
    }

    /// A key and its values as a command line gives them: `iptables=legacy,nft`, `kube-proxy=1.28..1.31`.
    pub fn parse_values(text: &str) -> Result<(Self, Vec<String>), String> {
        let (word, values) = text.split_once('=').ok_or_else(|| {
            format!("{text:?} gives no values: write KEY=VALUE,VALUE, as in iptables=legacy,nft")
        })?;
        let key = Self::named(word)?;
        let values = values.split(',').map(|value| key.values(value));
        let values = values.collect::<Result<Vec<_>, _>>()?.concat();
        let twice = |at: &usize| values[..*at].contains(&values[*at]);
        match (0..values.len()).find(twice) {
            Some(at) => Err(format!("{:?} is given twice", values[at])),
            None => Ok((key, values)),
        }
    }

    /// The agent whose version it is.
    pub(crate) fn agent(self) -> Option<AgentName> {
        match self {
            Self::Mode | Self::Iptables | Self::IpFamily => None,
            Self::KubeProxy => Some(AgentName::KubeProxy),
            Self::Calico => Some(AgentName::Felix),
        }
    }

    /// Whether the setting can have the value; if not, why not.
    pub fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Mode => mode(value).map(|_| ()),
            Self::Iptables => iptables(value).map(|_| ()),
            Self::IpFamily => ip_family(value).map(|_| ()),
            Self::KubeProxy => version::kube_proxy(value),
            Self::Calico => version::calico(value),
        }
    }

    /// The value that the setting has, where the cluster has it.
    pub(crate) fn value(self, cluster: &ClusterSpec) -> Option<String> {
        let word = match self {
            Self::Mode => match cluster.kube_proxy.as_ref()?.mode {
                ProxyMode::Iptables => "iptables",
                ProxyMode::Nftables => "nftables",
            },
            Self::Iptables => match cluster.iptables {
                IptablesVariant::Legacy => "legacy",
                IptablesVariant::Nft => "nft",
            },
            Self::IpFamily => cluster.default_family().as_str(),
            Self::KubeProxy | Self::Calico => cluster.version(self.agent()?)?,
        };
        Some(word.to_owned())
    }

    /// Gives the setting the value, which [`Self::check`] accepts. An agent that does not run has no
    /// version to set.
    pub(crate) fn apply(self, value: &str, cluster: &mut ClusterSpec) -> Result<(), String> {
        match self {
            Self::Mode => {
                let mode = mode(value)?;
                if let Some(kube_proxy) = &mut cluster.kube_proxy {
                    kube_proxy.mode = mode;
                }
            }
            Self::Iptables => {
                cluster.iptables = iptables(value)?;
                if let Some(kube_proxy) = &mut cluster.kube_proxy {
                    kube_proxy.iptables = cluster.iptables;
                }
            }
            Self::IpFamily => prefer(ip_family(value)?, &mut cluster.ip_families),
            Self::KubeProxy => {
                version::kube_proxy(value)?;
                if let Some(kube_proxy) = &mut cluster.kube_proxy {
                    value.clone_into(&mut kube_proxy.version);
                }
            }
            Self::Calico => {
                version::calico(value)?;
                if let Some(calico) = &mut cluster.calico {
                    value.clone_into(&mut calico.version);
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for MatrixKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL
            .iter()
            .find(|(_, key)| key == self)
            .map_or("", |(word, _)| word);
        f.pad(word)
    }
}

fn mode(value: &str) -> Result<ProxyMode, String> {
    match value {
        "iptables" => Ok(ProxyMode::Iptables),
        "nftables" => Ok(ProxyMode::Nftables),
        _ => Err(format!("mode is iptables or nftables, not {value:?}")),
    }
}

fn iptables(value: &str) -> Result<IptablesVariant, String> {
    match value {
        "legacy" => Ok(IptablesVariant::Legacy),
        "nft" => Ok(IptablesVariant::Nft),
        _ => Err(format!("iptables is legacy or nft, not {value:?}")),
    }
}

fn ip_family(value: &str) -> Result<IpFamily, String> {
    let mut all = IpFamily::ALL.iter();
    let found = all.find(|(word, _)| *word == value).map(|(_, it)| *it);
    found.ok_or_else(|| format!("an IP family is IPv4 or IPv6, not {value:?}"))
}

/// Of a cluster with both families it becomes the first; one with another has it instead.
fn prefer(family: IpFamily, families: &mut Vec<IpFamily>) {
    if families.len() < 2 {
        *families = vec![family];
    } else {
        families.sort_by_key(|it| *it != family);
    }
}
