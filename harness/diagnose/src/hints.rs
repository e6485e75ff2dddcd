//! Lines between the dumps that tell something: the kernel's log, and what iptables remarks.

/// What such lines say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hints {
    /// How often the kernel said that it dropped a packet because conntrack's table was full.
    pub(crate) table_full: usize,
    /// Whether iptables' nft front end said that the legacy one has tables, too.
    pub(crate) has_legacy: bool,
}

impl Hints {
    /// Takes in a text: whether it has any.
    pub(crate) fn add(&mut self, text: &str) -> bool {
        let mut has_any = false;
        for line in text.lines() {
            // Linux, `nf_conntrack_core.c`; several releases say the first word twice.
            let is_full = line.contains("nf_conntrack: table full, dropping packet");
            // iptables 1.8, `-save` and `-L` of the nft front end.
            let has_legacy = line.contains("Warning: iptables-legacy tables present");
            self.table_full += usize::from(is_full);
            self.has_legacy |= has_legacy;
            has_any |= is_full || has_legacy;
        }
        has_any
    }
}
