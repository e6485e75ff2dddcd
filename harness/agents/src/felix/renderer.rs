//! What every rule set is rendered from: configuration, version, family and the mark bits.

use super::{
    Config, Family,
    params::Params,
    rule::{Chain, Rule},
    version::Version,
};

/// The bits that the BPF programs own; iptables rules of BPF mode keep away from them (`bpf/tc/defs`).
const BPF_BITS: u32 = 0x1ff0_0000;

/// Felix's mark bits, handed out from the lowest of the mask (`dataplane/driver.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    /// A policy or profile accepted the packet.
    pub(super) accept: u32,
    /// A policy passed the packet on to the profiles.
    pub(super) pass: u32,
    /// Short-lived; in the raw table it says that the packet comes from a workload.
    pub(super) scratch0: u32,
    scratch1: u32,
}

impl Marks {
    /// Nothing when the mask has too few bits.
    pub(super) fn new(mask: u32, has_drop: bool) -> Option<Self> {
        let mut bits = (0..32).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
        let (accept, pass) = (bits.next()?, bits.next()?);
        if has_drop {
            bits.next()?;
        }
        Some(Self {
            accept,
            pass,
            scratch0: bits.next()?,
            scratch1: bits.next()?,
        })
    }

    /// The bits that are cleared before Felix's chains run.
    pub(super) fn all(self) -> u32 {
        self.accept | self.pass | self.scratch0 | self.scratch1
    }
}

/// What a table holds: Felix's own chains, and the rules it puts into kernel chains. A rule set that
/// is not there is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Felix's own chains.
    pub(super) chains: Vec<Chain>,
    /// Kernel chains with the rules that are inserted, or appended in append mode.
    pub(super) inserts: Vec<Chain>,
    /// Kernel chains with the rules that are appended in either mode.
    pub(super) appends: Vec<Chain>,
}

impl Layout {
    pub(super) fn chain(mut self, name: &str, rules: Vec<Rule>) -> Self {
        self.chains.push(Chain::new(name, rules));
        self
    }

    pub(super) fn insert(mut self, kernel_chain: &str, rules: Vec<Rule>) -> Self {
        self.inserts.push(Chain::new(kernel_chain, rules));
        self
    }

    pub(super) fn append(mut self, kernel_chain: &str, rules: Vec<Rule>) -> Self {
        self.appends.push(Chain::appended(kernel_chain, rules));
        self
    }
}

/// Renders the rules of one family.
#[derive(Debug, Clone)]
pub(super) struct Renderer {
    pub(super) version: Version,
    pub(super) family: Family,
    pub(super) params: Params,
    pub(super) marks: Marks,
    /// `MASQUERADE` and `SNAT` take `--random-fully`.
    pub(super) random_fully: bool,
    /// Some pool of the family is carried by VXLAN.
    pub(super) vxlan: bool,
}

/// The mark mask cannot be worked with; Felix panics with these words.
#[derive(Debug)]
pub(super) struct TooFewMarks(pub(super) &'static str);

impl Renderer {
    /// The renderer of one family; without VXLAN, and with a modern iptables, until told otherwise.
    pub(super) fn new(
        config: &Config,
        params: &Params,
        family: Family,
    ) -> Result<Self, TooFewMarks> {
        let mut mask = params.number("IptablesMarkMask");
        if params.is("BPFEnabled") {
            if mask & BPF_BITS != BPF_BITS {
                let message = "IptablesMarkMask doesn't cover bits that are used (unconditionally) by eBPF mode.";
                return Err(TooFewMarks(message));
            }
            mask ^= BPF_BITS;
        }
        let marks = Marks::new(mask, config.version.has_drop_mark());
        Ok(Self {
            version: config.version,
            family,
            params: params.clone(),
            marks: marks.ok_or(TooFewMarks("Not enough mark bits available."))?,
            random_fully: true,
            vxlan: false,
        })
    }

    /// The interface patterns of workloads: `cali+`.
    pub(super) fn workload_interfaces(&self) -> impl Iterator<Item = String> {
        self.params
            .list("InterfacePrefix")
            .iter()
            .map(|prefix| format!("{prefix}+"))
    }

    /// `DROP` or `REJECT`.
    pub(super) fn deny(&self) -> &str {
        if self.version.has_deny_action() {
            self.params.word("IptablesFilterDenyAction")
        } else {
            "DROP"
        }
    }

    /// How comments say it.
    pub(super) fn deny_word(&self) -> &'static str {
        if self.deny() == "REJECT" {
            "Reject"
        } else {
            "Drop"
        }
    }

    /// What the filter table does with an allowed packet.
    pub(super) fn allow(&self) -> &str {
        self.params.word("IptablesFilterAllowAction")
    }

    /// Matches packets that policy or a profile accepted.
    pub(super) fn accepted(&self) -> String {
        mark(self.marks.accept, self.marks.accept)
    }

    /// Clears Felix's bits.
    pub(super) fn clear_marks(&self) -> Rule {
        clear(self.marks.all())
    }

    /// `MASQUERADE`, as random as iptables can.
    pub(super) fn masquerade(&self) -> Rule {
        Rule::then(if self.random_fully {
            "MASQUERADE --random-fully"
        } else {
            "MASQUERADE"
        })
    }

    /// The name of one of Felix's IP sets.
    pub(super) fn set(&self, id: &str) -> String {
        format!("cali{}0{id}", self.family.number())
    }
}

/// Matches marked packets.
pub(super) fn mark(value: u32, mask: u32) -> String {
    format!("-m mark --mark {value:#x}/{mask:#x}")
}

/// Matches packets with another mark.
pub(super) fn not_mark(value: u32, mask: u32) -> String {
    format!("-m mark ! --mark {value:#x}/{mask:#x}")
}

/// Matches packets that have none of the bits.
pub(super) fn mark_clear(bits: u32) -> String {
    format!("-m mark --mark 0/{bits:#x}")
}

/// Sets bits under a mask.
pub(super) fn set_mark(value: u32, mask: u32) -> Rule {
    Rule::then(format!("MARK --set-mark {value:#x}/{mask:#x}"))
}

/// Clears bits.
pub(super) fn clear(bits: u32) -> Rule {
    Rule::then(format!("MARK --set-mark 0/{bits:#x}"))
}

/// Matches a connection's state.
pub(super) fn state(states: &str) -> String {
    format!("-m conntrack --ctstate {states}")
}
