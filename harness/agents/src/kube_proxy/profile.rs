//! What differs from release to release. Every question about a version is answered here.

mod before_1_28;
mod gates;
mod nftables;

use std::{fmt, str::FromStr};

/// A Kubernetes release, `1.32` or `1.32.4`.
///
/// Without a patch number it is the last patch of its minor. Patches of a minor behave alike but for
/// what is asked about them below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    minor: u32,
    patch: Option<u32>,
    text: String,
}

/// A `version:` that no kube-proxy model answers to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Not a release number.
    #[error("{text:?} is not a Kubernetes release like \"1.32\" or \"1.32.4\"")]
    Malformed {
        /// What was written.
        text: String,
    },
    /// Older than anything modelled.
    #[error(
        "kube-proxy {text} is not modelled: the oldest is 1.{}",
        Version::OLDEST
    )]
    TooOld {
        /// What was written.
        text: String,
    },
}

/// A rule set with the way it is synced: releases of one profile differ only in small things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// 1.20 … 1.23: `KUBE-XLB-`, `KUBE-MARK-DROP`, every sync full.
    V1_20,
    /// 1.24 … 1.26: `KUBE-EXT-` and `KUBE-SVL-`, every sync full.
    V1_26,
    /// 1.27 … 1.32: partial syncs, and no full one without a reason.
    V1_27,
    /// 1.33: a full sync when the last one is an hour old.
    V1_33,
    /// 1.34 and later: the runner without bursts.
    V1_34,
}

/// How klog lines are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogStyle {
    /// `klog.Errorf`.
    Plain,
    /// `klog.ErrorS`.
    Structured,
    /// `logger.Error` of a logger that carries `ipFamily`.
    Contextual,
}

/// Which of several changes that wait for a sync makes the proxier unhealthy when it is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staleness {
    /// The latest: whoever changes something again and again keeps a dead proxier healthy
    /// (issue 105742).
    OfLatest,
    /// The oldest.
    OfOldest,
}

impl Version {
    const OLDEST: u32 = 20;

    /// The profile that models this release.
    pub fn profile(&self) -> Profile {
        match self.minor {
            ..=23 => Profile::V1_20,
            24..=26 => Profile::V1_26,
            27..=32 => Profile::V1_27,
            33 => Profile::V1_33,
            34.. => Profile::V1_34,
        }
    }

    /// Whether syncs may be partial (`MinimizeIPTablesRestore`: on by default from 1.27).
    pub(crate) fn partial_sync(&self) -> bool {
        self.profile() >= Profile::V1_27
    }

    /// Whether what is told while a partial sync takes over the changes is lost to it: which services
    /// to write was looked up first, and the changes were taken over in a second step (issue 121362;
    /// pull request 122204, in 1.27.11, 1.28.7, 1.29.2 and 1.30).
    pub(crate) fn loses_changes_told_meanwhile(&self) -> bool {
        let mended_in = match self.minor {
            27 => 11,
            28 => 7,
            29 => 2,
            _ => return false,
        };
        self.patch.is_some_and(|patch| patch < mended_in)
    }

    /// Whether the chains of the local policy of 1.23 are removed as stale ones (until 1.27).
    pub(crate) fn removes_xlb_chains(&self) -> bool {
        self.minor <= 27
    }

    /// Whether it is as new as these patches, each of its minor, the oldest first. A minor between or behind
    /// them has what the one before has; one that is older than all has not.
    fn since(&self, patches: &[(u32, u32)]) -> bool {
        let newest = patches.iter().rev().find(|(minor, _)| *minor <= self.minor);
        newest.is_some_and(|(minor, patch)| {
            *minor < self.minor || self.patch.is_none_or(|own| own >= *patch)
        })
    }

    /// Whether an hour without a full sync makes the next one full (`FullSyncPeriod`, from 1.33). Issue 138571
    /// takes it back for large clusters (proxier.go of 1.34.7 and 1.34.8, 1.35.4 and 1.35.5, 1.36.0 and 1.36.1;
    /// 1.33.13 has not).
    pub(crate) fn hourly_full_sync(&self, large_cluster: bool) -> bool {
        let spares_large = self.since(&[(34, 8), (35, 5), (36, 1)]);
        self.profile() >= Profile::V1_33 && !(large_cluster && spares_large)
    }

    /// Whether the sync line says `fullSync=`.
    pub(crate) fn logs_full_sync(&self) -> bool {
        self.profile() >= Profile::V1_33
    }

    /// The layout of log lines.
    pub(crate) fn log_style(&self) -> LogStyle {
        match self.minor {
            ..=20 => LogStyle::Plain,
            21..=30 => LogStyle::Structured,
            31.. => LogStyle::Contextual,
        }
    }

    /// Whether one process serves both families (`IPv6DualStack` is on from 1.21).
    pub fn has_dual_stack(&self) -> bool {
        self.minor >= 21
    }

    /// Whether an endpoint that serves while it terminates is the last resort
    /// (`ProxyTerminatingEndpoints`: on by default from 1.26).
    pub(crate) fn terminating_endpoints(&self) -> bool {
        self.minor >= 26
    }

    /// Whether `internalTrafficPolicy` is heeded (`ServiceInternalTrafficPolicy`: on by default from 1.22).
    pub(crate) fn internal_traffic_policy(&self) -> bool {
        self.minor >= 22
    }

    /// Whether `ipMode: Proxy` takes a load balancer's address out of the rules (on from 1.30).
    pub(crate) fn load_balancer_ip_mode(&self) -> bool {
        self.minor >= 30
    }

    /// Whether zone hints are heeded at all.
    pub(crate) fn zone_hints(&self) -> bool {
        self.profile() >= Profile::V1_26
    }

    /// Whether hints need the service's topology annotation (until `trafficDistribution` came on).
    pub(crate) fn hints_need_annotation(&self) -> bool {
        self.minor < 31
    }

    /// Whether hints for this very node are heeded (`PreferSameTrafficDistribution`: on by default from 1.34).
    pub(crate) fn node_hints(&self) -> bool {
        self.minor >= 34
    }

    /// Whether a change of the node's labels matters.
    pub(crate) fn follows_node_labels(&self) -> bool {
        self.profile() >= Profile::V1_26
    }

    /// Whether only the labels of the topology count (the node manager of 1.34).
    pub(crate) fn topology_labels_only(&self) -> bool {
        self.profile() >= Profile::V1_34
    }

    /// Whether a slice that is told again counts as changed when only its metadata differs: the
    /// cache compares whole objects since 1.27.
    pub(crate) fn compares_whole_slices(&self) -> bool {
        self.profile() >= Profile::V1_27
    }

    /// Whether an address has one endpoint of a port at most, whatever its numbers in several slices
    /// (1.20 and 1.21 endpointslicecache.go, `addEndpointsByIP`).
    pub(crate) fn endpoint_is_an_address(&self) -> bool {
        self.minor <= 21
    }

    /// Whether a liberal conntrack keeps the INVALID rule away (from 1.29).
    pub(crate) fn heeds_tcp_be_liberal(&self) -> bool {
        self.minor >= 29
    }

    /// How long a change may wait for a sync (pull request 109483, from 1.25).
    pub(crate) fn staleness(&self) -> Staleness {
        if self.minor < 25 {
            Staleness::OfLatest
        } else {
            Staleness::OfOldest
        }
    }

    /// Whether a service's health check fails while the proxier is unhealthy, and says so (pull
    /// request 111661, from 1.27).
    pub(crate) fn service_needs_healthy_proxier(&self) -> bool {
        self.minor >= 27
    }

    /// Whether a service's health check tells its endpoints in a header too (pull request 118999,
    /// from 1.28).
    pub(crate) fn tells_endpoint_weight(&self) -> bool {
        self.minor >= 28
    }

    /// Whether there is `/livez` (KEP 3836, from 1.28).
    pub(crate) fn has_livez(&self) -> bool {
        self.minor >= 28
    }

    /// Whether `/healthz` tells if the node is eligible (KEP 3836, from 1.28).
    pub(crate) fn tells_node_eligible(&self) -> bool {
        self.minor >= 28
    }

    /// Whether a node that is about to be deleted is not eligible
    /// (`KubeProxyDrainingTerminatingNodes`: on by default from 1.30).
    pub(crate) fn heeds_draining_node(&self) -> bool {
        self.minor >= 30
    }

    /// Whether a node that is not known is not eligible (the node manager of 1.34).
    pub(crate) fn needs_node_to_be_eligible(&self) -> bool {
        self.minor >= 34
    }

    /// Whether the health of each family is told (pull request 129271, from 1.34).
    pub(crate) fn tells_families(&self) -> bool {
        self.minor >= 34
    }

    /// How errors name the server of `/healthz`. It was renamed for [`Self::tells_families`].
    pub(crate) fn health_server(&self) -> &'static str {
        if self.tells_families() {
            "proxy"
        } else {
            "proxier"
        }
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let malformed = || VersionError::Malformed {
            text: text.to_owned(),
        };
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let mut number = || parts.next().map(|part| digits(part).ok_or_else(malformed));
        let (Some(major), Some(minor)) = (number().transpose()?, number().transpose()?) else {
            return Err(malformed());
        };
        let patch = number().transpose()?;
        if major != 1 || parts.next().is_some() {
            return Err(malformed());
        }
        if minor < Self::OLDEST {
            return Err(VersionError::TooOld {
                text: text.to_owned(),
            });
        }
        Ok(Self {
            minor,
            patch,
            text: text.to_owned(),
        })
    }
}

/// `u32::from_str` would take a sign.
fn digits(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V1_20 => "1.20",
            Self::V1_26 => "1.26",
            Self::V1_27 => "1.27-1.32",
            Self::V1_33 => "1.33",
            Self::V1_34 => "1.34+",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_has_the_profile_of_its_rule_set() {
        let profile = |text: &str| text.parse::<Version>().unwrap().profile();
        assert_eq!(profile("1.20"), Profile::V1_20);
        assert_eq!(profile("v1.20.2"), Profile::V1_20);
        assert_eq!(profile("1.26"), Profile::V1_26);
        assert_eq!(profile("1.27.0"), Profile::V1_27);
        assert_eq!(profile("1.32.4"), Profile::V1_27);
        assert_eq!(profile("1.33"), Profile::V1_33);
        assert_eq!(profile("1.34"), Profile::V1_34);
        assert_eq!(profile("1.40"), Profile::V1_34);
    }

    #[test]
    fn a_patch_release_behaves_as_it_did_and_a_minor_as_its_last_patch() {
        let loses = |text: &str| {
            let version: Version = text.parse().unwrap();
            version.loses_changes_told_meanwhile()
        };
        for affected in ["1.27.0", "1.27.10", "v1.28.6", "1.29.1"] {
            assert!(loses(affected), "{affected}");
        }
        for mended in [
            "1.26.5", "1.27", "1.27.11", "1.28.7", "1.29.2", "1.29", "1.30.0",
        ] {
            assert!(!loses(mended), "{mended}");
        }
    }

    #[test]
    fn large_clusters_lose_the_hourly_full_sync_with_the_patch_that_says_so() {
        let full = |text: &str| {
            let version: Version = text.parse().unwrap();
            [false, true].map(|large| version.hourly_full_sync(large))
        };
        for never in ["1.20.2", "1.32.13", "1.32"] {
            assert_eq!(full(never), [false, false], "{never}");
        }
        for both in ["1.33.0", "1.33.13", "1.33", "1.34.7", "1.35.4", "1.36.0"] {
            assert_eq!(full(both), [true, true], "{both}");
        }
        for small in [
            "1.34.8", "1.34", "1.35.5", "1.35", "1.36.1", "1.36", "1.37.0",
        ] {
            assert_eq!(full(small), [true, false], "{small}");
        }
    }

    #[test]
    fn what_is_not_a_release_is_an_error_that_quotes_it() {
        for text in [
            "", "1", "1.", "1.x", "2.1", "1.32.4.5", "1.+32", "1.32-rc", "one",
        ] {
            let error = text.parse::<Version>().unwrap_err();
            assert!(matches!(error, VersionError::Malformed { .. }), "{text:?}");
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
        let error = "1.19".parse::<Version>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "kube-proxy 1.19 is not modelled: the oldest is 1.20"
        );
    }
}
