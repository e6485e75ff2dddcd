//! The chains of iptables mode that do not depend on workloads, with the empty chains that host
//! endpoints would fill (`felix/rules/static.go` and nat.go).

use super::{
    Family,
    renderer::{Layout, Renderer, clear, mark, mark_clear, set_mark, state},
    rule::Rule,
};

const POLICY_ACCEPTED: &str = "Host endpoint policy accepted packet.";
/// Router and neighbour messages that a workload must be able to send (static.go, `ICMPv6Filter`).
const ICMPV6_TYPES: [u8; 6] = [130, 131, 132, 133, 135, 136];

impl Renderer {
    /// Table raw: marks what comes from workloads and drops what they spoof.
    pub(super) fn raw(&self) -> Layout {
        Layout::default()
            .insert("PREROUTING", vec![Rule::jump("cali-PREROUTING")])
            .insert("OUTPUT", vec![Rule::jump("cali-OUTPUT")])
            .chain("cali-PREROUTING", self.raw_prerouting())
            .chain("cali-OUTPUT", self.raw_output(None))
            .chain("cali-rpf-skip", vec![])
            .chain("cali-from-host-endpoint", vec![])
            .chain("cali-to-host-endpoint", vec![])
    }

    fn raw_prerouting(&self) -> Vec<Rule> {
        let from_workload = self.marks.scratch0;
        let marked = || mark(from_workload, from_workload);
        let mut rules = vec![self.clear_marks()];
        rules.extend(self.untracked_vxlan());
        rules.extend(self.workload_interfaces().map(|interface| {
            set_mark(from_workload, from_workload).when(format!("--in-interface {interface}"))
        }));
        rules.extend([
            Rule::jump("cali-rpf-skip").when(marked()),
            Rule::then(self.deny())
                .when(marked())
                .when("-m rpfilter --invert --validmark"),
            Rule::jump("cali-from-host-endpoint").when(mark_clear(from_workload)),
            Rule::then("ACCEPT").when(self.accepted()),
        ]);
        rules
    }

    /// With a mark of the BPF programs, accepted packets bypass them.
    pub(super) fn raw_output(&self, bypass: Option<u32>) -> Vec<Rule> {
        let mut rules = vec![self.clear_marks(), Rule::jump("cali-to-host-endpoint")];
        rules.extend(self.untracked_vxlan());
        match bypass {
            None => rules.push(Rule::then("ACCEPT").when(self.accepted())),
            Some(bypass) => rules.extend([
                set_mark(bypass, u32::MAX).when(self.accepted()),
                Rule::then("ACCEPT").when(mark(bypass, u32::MAX)),
            ]),
        }
        rules
    }

    fn untracked_vxlan(&self) -> Option<Rule> {
        let port = self.params.number("VXLANPort");
        let wanted = self.vxlan && self.version.untracks_vxlan();
        wanted.then(|| {
            Rule::then("NOTRACK")
                .when("-p udp")
                .when(format!("--dport {port}"))
        })
    }

    /// Table mangle: host endpoint policy before DNAT, and after it for the host's own packets.
    pub(super) fn mangle(&self) -> Layout {
        let allow = self.params.word("IptablesMangleAllowAction");
        let prerouting = vec![
            Rule::then(allow).when(state("RELATED,ESTABLISHED")),
            Rule::then(allow).when(self.accepted()),
            Rule::jump("cali-from-host-endpoint"),
            Rule::then(allow)
                .saying(POLICY_ACCEPTED)
                .when(self.accepted()),
        ];
        let mut postrouting = Vec::from_iter(self.egress_dscp());
        postrouting.extend([
            Rule::then("RETURN").when(self.accepted()),
            self.clear_marks(),
            Rule::jump("cali-to-host-endpoint").when(state("DNAT")),
            Rule::then("RETURN")
                .saying(POLICY_ACCEPTED)
                .when(self.accepted()),
        ]);
        Layout::default()
            .chain("cali-egress-dscp", vec![])
            .insert("PREROUTING", vec![Rule::jump("cali-PREROUTING")])
            .insert("POSTROUTING", vec![Rule::jump("cali-POSTROUTING")])
            .chain("cali-PREROUTING", prerouting)
            .chain("cali-POSTROUTING", postrouting)
            .chain("cali-from-host-endpoint", vec![])
            .chain("cali-to-host-endpoint", vec![])
    }

    /// For packets that leave the cluster from pods which ask for it.
    fn egress_dscp(&self) -> Option<Rule> {
        let (pods, pools) = (self.set("dscp-src-net"), self.set(self.version.all_pools()));
        let host = self.set("this-host");
        self.version.sets_dscp().then(|| {
            Rule::jump("cali-egress-dscp")
                .saying("set dscp for traffic leaving cluster.")
                .when(format!("-m set --match-set {pods} src"))
                .when(format!("-m set ! --match-set {pools} dst"))
                .when(format!("-m set ! --match-set {host} dst"))
        })
    }

    /// Table nat. `nat_outgoing` says that some pool wants its packets masqueraded.
    pub(super) fn nat(&self, nat_outgoing: bool) -> Layout {
        let postrouting = vec![Rule::jump("cali-POSTROUTING")];
        let layout = Layout::default()
            .insert("PREROUTING", vec![Rule::jump("cali-PREROUTING")])
            .insert("OUTPUT", vec![Rule::jump("cali-OUTPUT")])
            .chain("cali-PREROUTING", vec![Rule::jump("cali-fip-dnat")])
            .chain("cali-OUTPUT", vec![Rule::jump("cali-fip-dnat")])
            .chain("cali-POSTROUTING", self.nat_postrouting())
            .chain("cali-nat-outgoing", self.nat_outgoing(nat_outgoing))
            .chain("cali-fip-dnat", vec![])
            .chain("cali-fip-snat", vec![]);
        if self.version.appends_postrouting() {
            layout.append("POSTROUTING", postrouting)
        } else {
            layout.insert("POSTROUTING", postrouting)
        }
    }

    pub(super) fn nat_postrouting(&self) -> Vec<Rule> {
        let mut rules = vec![Rule::jump("cali-fip-snat"), Rule::jump("cali-nat-outgoing")];
        if self.vxlan {
            let device = self.family.vxlan_device();
            let rule = self.masquerade().when(format!("--out-interface {device}"));
            rules.push(
                rule.when("-m addrtype ! --src-type LOCAL --limit-iface-out")
                    .when("-m addrtype --src-type LOCAL"),
            );
        }
        rules
    }

    fn nat_outgoing(&self, wanted: bool) -> Vec<Rule> {
        let masq = self.set("masq-ipam-pools");
        let all = self.set(self.version.all_pools());
        let rule = || {
            self.masquerade()
                .when(format!("-m set --match-set {masq} src"))
                .when(format!("-m set ! --match-set {all} dst"))
        };
        wanted.then(rule).into_iter().collect()
    }

    /// Table filter without what depends on workloads.
    pub(super) fn filter(&self) -> Layout {
        let appended = vec![
            Rule::then(self.allow())
                .saying("Policy explicitly accepted packet.")
                .when(self.accepted()),
            set_mark(self.marks.accept, self.marks.accept),
        ];
        Layout::default()
            .insert("FORWARD", vec![Rule::jump("cali-FORWARD")])
            .insert("INPUT", vec![Rule::jump("cali-INPUT")])
            .insert("OUTPUT", vec![Rule::jump("cali-OUTPUT")])
            .append("FORWARD", appended)
            .chain("cali-FORWARD", self.filter_forward())
            .chain("cali-INPUT", self.filter_input())
            .chain("cali-OUTPUT", self.filter_output())
            .chain("cali-wl-to-host", self.workload_to_host())
            .chain("cali-from-host-endpoint", vec![])
            .chain("cali-to-host-endpoint", vec![])
            .chain("cali-from-hep-forward", vec![])
            .chain("cali-to-hep-forward", vec![])
            .chain("cali-cidr-block", vec![])
    }

    fn filter_forward(&self) -> Vec<Rule> {
        let mut rules = vec![
            clear(self.marks.all() & !self.marks.accept),
            Rule::jump("cali-from-hep-forward").when(mark_clear(self.marks.accept)),
        ];
        for interface in self.workload_interfaces() {
            rules.extend([
                Rule::jump("cali-from-wl-dispatch").when(format!("--in-interface {interface}")),
                Rule::jump("cali-to-wl-dispatch").when(format!("--out-interface {interface}")),
            ]);
        }
        rules.extend([
            Rule::jump("cali-to-hep-forward"),
            Rule::jump("cali-cidr-block"),
        ]);
        rules
    }

    fn filter_input(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        if self.vxlan {
            let port = self.params.number("VXLANPort");
            let to_port = |rule: Rule| {
                rule.when("-p 17")
                    .when(format!("-m multiport --destination-ports {port}"))
            };
            let packets = format!("IPv{} VXLAN packets", self.family.number());
            // The deny action that a cluster chooses is IPv6's alone.
            let (deny, denies) = match self.family {
                Family::V4 => ("DROP", "Drop"),
                Family::V6 => (self.deny(), self.deny_word()),
            };
            rules.extend([
                to_port(Rule::then(self.allow()))
                    .saying(&format!("Allow {packets} from allowed hosts"))
                    .when(format!(
                        "-m set --match-set {} src",
                        self.set("all-vxlan-net")
                    ))
                    .when("-m addrtype --dst-type LOCAL"),
                to_port(Rule::then(deny))
                    .saying(&format!("{denies} {packets} from non-allowed hosts"))
                    .when("-m addrtype --dst-type LOCAL"),
            ]);
        }
        rules.extend(self.workload_interfaces().map(|interface| {
            Rule::goto("cali-wl-to-host").when(format!("--in-interface {interface}"))
        }));
        rules.extend([
            Rule::then(self.allow()).when(self.accepted()),
            self.clear_marks(),
            Rule::jump("cali-from-host-endpoint"),
            Rule::then(self.allow())
                .saying(POLICY_ACCEPTED)
                .when(self.accepted()),
        ]);
        rules
    }

    fn filter_output(&self) -> Vec<Rule> {
        let mut rules = vec![Rule::then(self.allow()).when(self.accepted())];
        rules
            .extend(self.workload_interfaces().map(|interface| {
                Rule::then("RETURN").when(format!("--out-interface {interface}"))
            }));
        if self.vxlan {
            let (port, version) = (self.params.number("VXLANPort"), self.family.number());
            rules.push(
                Rule::then(self.allow())
                    .saying(&format!(
                        "Allow IPv{version} VXLAN packets to other allowed hosts"
                    ))
                    .when("-p 17")
                    .when(format!("-m multiport --destination-ports {port}"))
                    .when("-m addrtype --src-type LOCAL")
                    .when(format!(
                        "-m set --match-set {} dst",
                        self.set("all-vxlan-net")
                    )),
            );
        }
        rules.extend([
            self.clear_marks(),
            Rule::jump("cali-to-host-endpoint").when("-m conntrack ! --ctstate DNAT"),
            Rule::then(self.allow())
                .saying(POLICY_ACCEPTED)
                .when(self.accepted()),
        ]);
        rules
    }

    fn workload_to_host(&self) -> Vec<Rule> {
        let mut rules = match self.family {
            Family::V4 => vec![],
            Family::V6 => icmpv6(self.allow()),
        };
        rules.extend([
            Rule::jump("cali-from-wl-dispatch"),
            Rule::then(self.params.word("DefaultEndpointToHostAction"))
                .saying("Configured DefaultEndpointToHostAction"),
        ]);
        rules
    }
}

pub(super) fn icmpv6(action: &str) -> Vec<Rule> {
    let rule = |kind: &u8| {
        Rule::then(action)
            .when("-p 58")
            .when(format!("-m icmp6 --icmpv6-type {kind}"))
    };
    ICMPV6_TYPES.iter().map(rule).collect()
}
