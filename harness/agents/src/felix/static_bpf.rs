//! The iptables side of BPF mode (`int_dataplane.go`, `setUpIptablesBPF`; static.go,
//! `StaticBPFModeRawChains`). The BPF programs themselves are not modelled.

use super::{
    Family,
    renderer::{Layout, Renderer, mark, not_mark, set_mark, state},
    rule::Rule,
    static_iptables::icmpv6,
};

/// The marks of the BPF programs (`felix/bpf/tc/defs/defs.go`).
const SEEN: u32 = 0x0100_0000;
const BYPASS: u32 = 0x0300_0000;
const BYPASS_XDP: u32 = 0x0350_0000;
const FALL_THROUGH: u32 = 0x0500_0000;
const SKIP_FIB: u32 = 0x0110_0000;
const MASQ: (u32, u32) = (0x0360_0000, 0x03f0_0000);
const NAT_OUTGOING: (u32, u32) = (0x0380_0000, 0x03f0_0000);
const ESTABLISHED: u32 = 0x0800_0000;
const ALL: u32 = 0x1ff0_0000;
/// The device through which the programs hand packets to the host.
const OUT_DEVICE: &str = "bpfout.cali";

/// The rules that are inserted into filter FORWARD and OUTPUT before the first sync, so that
/// programs that are already attached know which flows Linux conntrack knows.
pub(super) fn early_rules() -> Vec<Rule> {
    vec![established("Mark pre-established flows.")]
}

impl Renderer {
    /// Table filter without the dispatch chain, which depends on workloads.
    pub(super) fn bpf_filter(&self) -> Layout {
        let host_comment = if self.version.inserts_early_rules() {
            "Mark pre-established flows."
        } else {
            "Mark pre-established host flows."
        };
        Layout::default()
            .insert("INPUT", self.bpf_input())
            .insert("FORWARD", self.bpf_forward())
            .insert("OUTPUT", vec![established(host_comment)])
    }

    fn bpf_input(&self) -> Vec<Rule> {
        let fell_through = || mark(FALL_THROUGH, FALL_THROUGH);
        let mut rules = vec![
            Rule::then("ACCEPT")
                .saying("Accept packets from flows that pre-date BPF.")
                .when(fell_through())
                .when(state("ESTABLISHED,RELATED")),
        ];
        let resets = self.version.resets_unknown_tcp();
        if resets {
            rules.push(
                Rule::then("REJECT --reject-with tcp-reset")
                    .saying("REJECT/rst packets from unknown TCP flows.")
                    .when(fell_through())
                    .when("-p tcp"),
            );
        }
        let unknown = if resets {
            "unknown non-TCP flows."
        } else {
            "unknown flows."
        };
        rules.push(
            Rule::then(self.deny())
                .saying(&format!("{} packets from {unknown}", self.deny_word()))
                .when(fell_through()),
        );
        for interface in self.workload_interfaces() {
            let from = format!("--in-interface {interface}");
            if self.params.word("DefaultEndpointToHostAction") == "ACCEPT" {
                rules.push(Rule::then("ACCEPT").when(&from).when(mark(SEEN, SEEN)));
            }
            rules.push(
                Rule::then(self.deny())
                    .when(&from)
                    .when(not_mark(SEEN, SEEN)),
            );
        }
        if !resets {
            rules.push(Rule::then("ACCEPT").when(mark(SEEN, SEEN)));
        }
        rules
    }

    fn bpf_forward(&self) -> Vec<Rule> {
        let mut rules = vec![
            Rule::then("ACCEPT")
                .saying("Pre-approved by BPF programs.")
                .when(mark(BYPASS, BYPASS)),
        ];
        rules.extend(self.workload_interfaces().map(|interface| {
            Rule::then(self.deny())
                .saying("From workload without BPF seen mark")
                .when(format!("--in-interface {interface}"))
                .when(not_mark(SEEN, SEEN))
        }));
        if self.family == Family::V6 {
            rules.extend(self.bpf_forward_ipv6());
        }
        if self.passes_to_workloads() {
            rules.extend(self.bpf_to_workloads());
        }
        rules
    }

    /// What is of IPv6 alone: without programs for it nothing gets to workloads, and with them what is for the host is not passed on.
    fn bpf_forward_ipv6(&self) -> Vec<Rule> {
        if self.version.has_ipv6_programs() {
            return icmpv6(self.deny());
        }
        let drop = |interface: String| {
            Rule::then(self.deny())
                .saying("To workload, drop IPv6.")
                .when(format!("--out-interface {interface}"))
        };
        self.workload_interfaces().map(drop).collect()
    }

    /// Whether what the programs let pass gets to workloads by rules of the family: v3.27 had them for one of both, and then for none
    /// (`int_dataplane.go`).
    fn passes_to_workloads(&self) -> bool {
        match self.family {
            Family::V6 => self.version.has_ipv6_rules_to_workloads(),
            Family::V4 => !self.version.is_of_one_family() || !self.params.is("Ipv6Support"),
        }
    }

    fn bpf_to_workloads(&self) -> Vec<Rule> {
        let mut rules = vec![established("Mark pre-established flows.")];
        rules.extend(self.workload_interfaces().map(|interface| {
            Rule::jump("cali-to-wl-dispatch")
                .saying("To workload, check workload is known.")
                .when(format!("--out-interface {interface}"))
        }));
        rules.extend(self.workload_interfaces().map(|interface| {
            Rule::then("ACCEPT")
                .saying("To workload, mark has already been verified.")
                .when(format!("--in-interface {interface}"))
        }));
        rules.push(
            Rule::then("ACCEPT")
                .saying("From ")
                .saying(OUT_DEVICE)
                .saying(" device, mark verified, accept.")
                .when(format!("--in-interface {OUT_DEVICE}")),
        );
        rules
    }

    /// Table nat; nothing in PREROUTING and OUTPUT: service NAT is the programs' work.
    pub(super) fn bpf_nat(&self, nat_outgoing: bool) -> Layout {
        let loopback = self
            .masquerade()
            .saying("BPF loopback SNAT")
            .when(mark(MASQ.0, MASQ.1));
        let mut postrouting = vec![loopback];
        postrouting.extend(self.nat_postrouting());
        let outgoing =
            nat_outgoing.then(|| self.masquerade().when(mark(NAT_OUTGOING.0, NAT_OUTGOING.1)));
        Layout::default()
            .insert("POSTROUTING", vec![Rule::jump("cali-POSTROUTING")])
            .chain("cali-POSTROUTING", postrouting)
            .chain("cali-nat-outgoing", outgoing.into_iter().collect())
            .chain("cali-fip-dnat", vec![])
            .chain("cali-fip-snat", vec![])
    }

    /// Table raw: keeps forwarded packets out of Linux conntrack where it is bypassed.
    pub(super) fn bpf_raw(&self) -> Layout {
        let untracked_policy = if self.version.has_xdp_mark() {
            set_mark(0, ALL)
        } else {
            set_mark(0, 0)
        };
        let layout = Layout::default()
            .insert("PREROUTING", vec![Rule::jump("cali-PREROUTING")])
            .chain("cali-PREROUTING", self.bpf_raw_prerouting())
            .chain(
                "cali-untracked-policy",
                vec![untracked_policy, Rule::then("NOTRACK")],
            )
            .chain("cali-untracked-flows", self.untracked_flows())
            .chain("cali-OUTPUT", self.raw_output(Some(BYPASS)))
            .chain("cali-to-host-endpoint", vec![]);
        if self.family == Family::V6 && !self.version.inserts_early_rules() {
            // v3.25 left the host's IPv6 packets alone.
            return layout;
        }
        layout.insert("OUTPUT", vec![Rule::jump("cali-OUTPUT")])
    }

    fn bpf_raw_prerouting(&self) -> Vec<Rule> {
        let bypass = if self.version.has_xdp_mark() {
            BYPASS_XDP
        } else {
            BYPASS
        };
        let mut rules = vec![
            Rule::goto("cali-untracked-policy")
                .saying("Jump to target for packets with Bypass mark")
                .when(mark(bypass, u32::MAX)),
            set_mark(SKIP_FIB, SKIP_FIB)
                .saying("Mark traffic towards the host - it is TRACKed")
                .when("-m addrtype --dst-type LOCAL"),
        ];
        if self.params.is("BPFHostConntrackBypass") || !self.version.drops_unused_bypass() {
            rules.push(
                Rule::goto("cali-untracked-flows")
                    .saying("Check if forwarded traffic needs to be TRACKed")
                    .when("-m addrtype ! --dst-type LOCAL"),
            );
        }
        rules
    }

    fn untracked_flows(&self) -> Vec<Rule> {
        if !self.params.is("BPFHostConntrackBypass") {
            return vec![];
        }
        let mut rules = Vec::new();
        if self.version.forces_tracking() {
            rules.extend(
                self.params
                    .list("BPFForceTrackPacketsFromIfaces")
                    .iter()
                    .map(|interface| {
                        Rule::then("RETURN")
                            .saying(&format!("Track interface {interface}"))
                            .when(format!("--in-interface {interface}"))
                    }),
            );
        }
        if self.version.has_xdp_mark() {
            let net = match self.family {
                Family::V4 => "169.254.0.0/16",
                Family::V6 => "fe80::/10",
            };
            rules.push(
                Rule::then("RETURN")
                    .saying("link-local")
                    .when(format!("--destination {net}")),
            );
        }
        let marks = [
            ("MarkSeenSkipFIB Mark", (SKIP_FIB, SKIP_FIB)),
            ("MarkSeenFallThrough Mark", (FALL_THROUGH, FALL_THROUGH)),
            ("MarkSeenMASQ Mark", MASQ),
            ("MarkSeenNATOutgoing Mark", NAT_OUTGOING),
        ];
        rules.extend(marks.map(|(comment, (value, mask))| {
            Rule::then("RETURN").saying(comment).when(mark(value, mask))
        }));
        rules.push(Rule::then("NOTRACK"));
        rules
    }
}

fn established(comment: &str) -> Rule {
    set_mark(ESTABLISHED, ESTABLISHED)
        .saying(comment)
        .when(state("ESTABLISHED,RELATED"))
}
