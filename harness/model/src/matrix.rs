//! The matrix: settings of the cluster that take several values, each combination a cell.

use std::fmt;

use crate::{
    case::{ClusterSpec, Dataplane, IpFamily, IptablesVariant, ProxyMode},
    names::AgentName,
    version,
};

/// The value of `ip-family` by which a cluster has both families.
pub(crate) const DUAL: &str = "dual";

/// A setting that a matrix can vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatrixKey {
    /// What kube-proxy programs services with.
    Mode,
    /// Which iptables the nodes have.
    Iptables,
    /// Which IP families there are, or which comes first.
    IpFamily,
    /// kube-proxy's version.
    KubeProxy,
    /// Calico's version.
    Calico,
    /// Kubernetes' version, which is kube-proxy's, too.
    Kubernetes,
    /// What Felix programs with.
    Dataplane,
}

impl MatrixKey {
    /// All of them, by the word that a scenario or `--matrix` uses.
    pub const ALL: [(&'static str, Self); 7] = [
        ("mode", Self::Mode),
        ("iptables", Self::Iptables),
        ("ip-family", Self::IpFamily),
        ("kube-proxy", Self::KubeProxy),
        ("calico", Self::Calico),
        ("kubernetes", Self::Kubernetes),
        ("dataplane", Self::Dataplane),
    ];

    /// Each of two keys that say the same version, with the other one: a cell has one of them.
    pub const SAME: [(Self, Self); 2] = [
        (Self::Kubernetes, Self::KubeProxy),
        (Self::KubeProxy, Self::Kubernetes),
    ];

    /// The key that a word means.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, key)| *key)
    }

    /// As [`Self::parse`]; an error names the words that there are.
    pub fn named(word: &str) -> Result<Self, String> {
        Self::parse(word).ok_or_else(|| {
            let words = Self::ALL.map(|(word, _)| word).join(", ");
            format!("the matrix cannot vary {word:?}; it can vary {words}")
        })
    }

    /// The values that a word means: `nft`, or `1.28..1.31` for the minor versions from one to the other.
    fn values(self, word: &str) -> Result<Vec<String>, String> {
        let ends = word.split_once("..").filter(|_| self.is_version());
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

    /// Whether its values are versions.
    pub(crate) fn is_version(self) -> bool {
        matches!(self, Self::KubeProxy | Self::Calico | Self::Kubernetes)
    }

    /// The version that the cluster has, of what this varies the version of. A kube-proxy that runs is of Kubernetes' version.
    pub(crate) fn version(self, cluster: &ClusterSpec) -> Option<&str> {
        match self {
            Self::Kubernetes => cluster.kubernetes_version(),
            _ => cluster.version(self.agent()?),
        }
    }

    /// Why keys cannot stand side by side in a matrix; `None` when they can.
    pub fn twice(keys: &[Self]) -> Option<&'static str> {
        let both = |(one, other): &(Self, Self)| keys.contains(one) && keys.contains(other);
        let said = "kube-proxy is of Kubernetes' version: vary kubernetes or kube-proxy, not both";
        Self::SAME.iter().any(both).then_some(said)
    }

    /// The agent whose version it is.
    pub(crate) fn agent(self) -> Option<AgentName> {
        match self {
            Self::Mode | Self::Iptables | Self::IpFamily | Self::Kubernetes | Self::Dataplane => {
                None
            }
            Self::KubeProxy => Some(AgentName::KubeProxy),
            Self::Calico => Some(AgentName::Felix),
        }
    }

    /// Whether the setting can have the value; if not, why not.
    pub fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Mode => mode(value).map(|_| ()),
            Self::Iptables => iptables(value).map(|_| ()),
            Self::IpFamily => ip_families(value, &mut Vec::new()),
            Self::KubeProxy => version::kube_proxy(value),
            Self::Calico => version::calico(value),
            Self::Kubernetes => version::kubernetes(value),
            Self::Dataplane => Dataplane::parse(value).map(|_| ()),
        }
    }

    /// The value that the setting has, where the cluster has it.
    pub(crate) fn value(self, cluster: &ClusterSpec) -> Option<String> {
        let word = match self {
            Self::Mode => cluster.kube_proxy.as_ref()?.mode.as_str(),
            Self::Iptables => match cluster.iptables {
                IptablesVariant::Legacy => "legacy",
                IptablesVariant::Nft => "nft",
            },
            Self::IpFamily => cluster.default_family().as_str(),
            Self::Dataplane => Dataplane::of(cluster)?.as_str(),
            Self::KubeProxy | Self::Calico | Self::Kubernetes => self.version(cluster)?,
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
            Self::IpFamily => ip_families(value, &mut cluster.ip_families)?,
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
            Self::Kubernetes => {
                version::kubernetes(value)?;
                cluster.kubernetes = Some(value.to_owned());
                Self::KubeProxy.apply(value, cluster)?;
            }
            Self::Dataplane => Dataplane::parse(value)?.choose(cluster),
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
    let mut all = ProxyMode::ALL.into_iter();
    let found = all.find(|(word, _)| *word == value);
    let known = "mode is iptables, nftables or ipvs";
    found
        .map(|(_, mode)| mode)
        .ok_or_else(|| format!("{known}, not {value:?}"))
}

fn iptables(value: &str) -> Result<IptablesVariant, String> {
    match value {
        "legacy" => Ok(IptablesVariant::Legacy),
        "nft" => Ok(IptablesVariant::Nft),
        _ => Err(format!("iptables is legacy or nft, not {value:?}")),
    }
}

/// A cluster with both families keeps both, the one that is named first; one with a single family has that one
/// instead, or gets the other one, too.
fn ip_families(value: &str, families: &mut Vec<IpFamily>) -> Result<(), String> {
    if value == DUAL {
        for (_, family) in IpFamily::ALL {
            if !families.contains(&family) {
                families.push(family);
            }
        }
        return Ok(());
    }
    let mut all = IpFamily::ALL.iter();
    let named = all.find(|(word, _)| *word == value).map(|(_, it)| *it);
    let named = named.ok_or_else(|| format!("ip-family is IPv4, IPv6 or {DUAL}, not {value:?}"))?;
    if families.len() < 2 {
        *families = vec![named];
    } else {
        families.sort_by_key(|it| *it != named);
    }
    Ok(())
}
