//! What changed in Felix from release to release, as far as the model shows it: one place that says
//! which version does what.

use std::{fmt, str::FromStr, time::Duration};

/// A release of Calico that the model knows: v3.25 to v3.32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    minor: u32,
    patch: u32,
}

/// A text that names no release the model knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no Calico version {text:?}: the model knows v3.25 to v3.32, written as v3.28.1")]
pub struct UnknownVersion {
    /// The text.
    pub text: String,
}

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let unknown = || UnknownVersion {
            text: text.to_owned(),
        };
        let number = |part: &str| match part.parse::<u32>() {
            Ok(number) if !part.starts_with('+') => Some(number),
            _ => None,
        };
        let rest = text.strip_prefix("v3.").ok_or_else(unknown)?;
        let (minor, patch) = rest.split_once('.').unwrap_or((rest, "0"));
        let minor = number(minor).filter(|minor| (25..=32).contains(minor));
        match (minor, number(patch)) {
            (Some(minor), Some(patch)) => Ok(Self { minor, patch }),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v3.{}.{}", self.minor, self.patch)
    }
}

impl Version {
    fn since(self, minor: u32) -> bool {
        self.minor >= minor
    }

    fn since_patch(self, minor: u32, patch: u32) -> bool {
        (self.minor, self.patch) >= (minor, patch)
    }

    /// `IptablesRefreshInterval`'s default (`config_params.go`).
    pub(super) fn refresh_interval(self) -> Duration {
        Duration::from_secs(if self.since(27) { 180 } else { 90 })
    }

    /// `IptablesPostWriteCheckIntervalSecs`' default (`config_params.go`).
    pub(super) fn post_write_interval(self) -> Duration {
        Duration::from_secs(if self.since(27) { 5 } else { 1 })
    }

    /// A watch of the API that cannot be begun is tried again, and not followed by a list (watchercache.go).
    pub(crate) fn watches_again(self) -> bool {
        self.since(30)
    }

    /// Felix measures its commands: slow ones stretch the post-write check, and are said in the log
    /// (table.go).
    pub(super) fn measures_commands(self) -> bool {
        self.since(27)
    }

    /// A drop mark is allocated after the pass mark (driver.go).
    pub(super) fn has_drop_mark(self) -> bool {
        self.since(30)
    }

    /// The jump from nat POSTROUTING comes after everyone else's, in iptables mode (`int_dataplane.go`).
    pub(super) fn appends_postrouting(self) -> bool {
        self.since(29)
    }

    /// VXLAN packets are not tracked (static.go).
    pub(super) fn untracks_vxlan(self) -> bool {
        self.since(29)
    }

    /// `IptablesFilterDenyAction` exists (`config_params.go`); BPF-mode rules name it in their comments.
    pub(super) fn has_deny_action(self) -> bool {
        self.since(26)
    }

    /// The rules that mark pre-established flows are inserted before the first sync, in BPF mode.
    pub(super) fn inserts_early_rules(self) -> bool {
        self.since(26)
    }

    /// BPF mode answers unknown TCP flows with RST, and no longer accepts every Seen packet to the host
    /// (`int_dataplane.go`; v3.28.0 has no such rule, v3.28.1 has).
    pub(super) fn resets_unknown_tcp(self) -> bool {
        self.since_patch(28, 1)
    }

    /// Packets that leave the cluster may get a DSCP, in iptables mode (static.go).
    pub(super) fn sets_dscp(self) -> bool {
        self.since(31)
    }

    /// What the set of all pools is called (`rule_defs.go`): v3.32.0 came before v3.31.6.
    pub(super) fn all_pools(self) -> &'static str {
        let is_late = match self.minor {
            31 => self.patch >= 6,
            _ => self.since_patch(32, 1),
        };
        if is_late {
            "network-ip-pools"
        } else {
            "all-ipam-pools"
        }
    }

    /// Programs serve IPv6, too, where `Ipv6Support` is on.
    pub(super) fn has_ipv6_programs(self) -> bool {
        self.since(27)
    }

    /// In BPF mode rules of IPv6 let pass to workloads what those of IPv4 do.
    pub(super) fn has_ipv6_rules_to_workloads(self) -> bool {
        self.since(29)
    }

    /// In BPF mode rules to workloads are not of IPv4 where programs serve IPv6.
    pub(super) fn is_of_one_family(self) -> bool {
        self.minor == 27
    }

    /// `BPFForceTrackPacketsFromIfaces` exists.
    pub(super) fn forces_tracking(self) -> bool {
        self.since(27)
    }

    /// `BPFHostConntrackBypass`' default.
    pub(super) fn bypasses_conntrack(self) -> bool {
        !self.since(30)
    }

    /// Without the conntrack bypass there is no jump to its chain either.
    pub(super) fn drops_unused_bypass(self) -> bool {
        self.since(29)
    }

    /// XDP has a bypass mark of its own, and link-local traffic stays tracked.
    pub(super) fn has_xdp_mark(self) -> bool {
        self.since(30)
    }

    /// `BPFConnectTimeLoadBalancing` exists: connect-time load balancing of TCP alone, which is the default.
    pub(super) fn balances_tcp_alone(self) -> bool {
        self.since(27)
    }

    /// The links of connect-time load balancing are pinned, and stay when Felix ends (felix/bpf/nat/connecttime.go).
    pub(super) fn pins_connect_time_links(self) -> bool {
        match self.minor {
            ..=27 => false,
            28 | 29 => self.patch >= 5,
            30 => self.patch >= 1,
            _ => true,
        }
    }

    /// Programs at interfaces are attached by links (TCX), which are pinned (felix/bpf/tc/attach.go), where the kernel knows them (6.6) and
    /// `bpfAttachType` does not say otherwise.
    pub(super) fn pins_links_of_interfaces(self) -> bool {
        self.since(31)
    }

    /// The Kubernetes whose proxy parts Felix links (go.mod).
    pub(super) fn kubernetes(self) -> &'static str {
        match self.minor {
            ..=25 => "1.25",
            26 => "1.26",
            27 => "1.27",
            28 => "1.28",
            29 => "1.30",
            30 => "1.32",
            31 => "1.33",
            _ => "1.35",
        }
    }

    /// What the start-up line calls the layer that cleans up after kube-proxy.
    pub(super) fn cleanup_layer(self) -> &'static str {
        if self.since(31) {
            "iptables/nftables"
        } else {
            "iptables"
        }
    }

    /// `NFTablesMode` may be `Auto`, and is by default: as kube-proxy has it.
    pub(super) fn follows_kube_proxys_mode(self) -> bool {
        self.since(32)
    }

    /// The nftables tables `ip kube-proxy` and `ip6 kube-proxy` are deleted by the cleanup too (`int_dataplane.go`; not
    /// in v3.31.3).
    pub(super) fn deletes_nft_tables(self) -> bool {
        self.since_patch(31, 4)
    }

    /// Whether a table that returns is deleted with the next update of any kind. Later ones read it again by the
    /// refresh timer only.
    pub(super) fn reads_nft_tables_each_time(self) -> bool {
        (self.minor, self.patch) == (31, 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_have_what_they_brought() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(
            !version("v3.28.0").resets_unknown_tcp() && version("v3.28.1").resets_unknown_tcp()
        );
        assert!(
            !version("v3.31.3").deletes_nft_tables() && version("v3.31.4").deletes_nft_tables()
        );
        let pools = ["v3.31.5", "v3.31.6", "v3.32.0", "v3.32.1"];
        let pools = pools.map(|it| version(it).all_pools());
        let (early, late) = ("all-ipam-pools", "network-ip-pools");
        assert_eq!(pools, [early, late, early, late]);
        assert!(version("v3.31.4").reads_nft_tables_each_time());
        assert!(!version("v3.31.5").reads_nft_tables_each_time());
    }

    #[test]
    fn a_version_outside_the_known_releases_is_an_error() {
        for good in ["v3.25.0", "v3.28.1", "v3.32"] {
            assert!(good.parse::<Version>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "v3",
            "3.28.1",
            "v3.24.9",
            "v3.33.0",
            "v3.28.x",
            "v3.+28.1",
            "v2.28.1",
            "v3.28.1.2",
        ] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_timers_changed_with_v3_27() {
        let timers = |text: &str| {
            let version: Version = text.parse().unwrap();
            (
                version.refresh_interval().as_secs(),
                version.post_write_interval().as_secs(),
            )
        };
        assert_eq!(timers("v3.26.5"), (90, 1));
        assert_eq!(timers("v3.27.0"), (180, 5));
    }
}
