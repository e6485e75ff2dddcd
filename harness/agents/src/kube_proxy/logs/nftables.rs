//! What nftables mode says in its own words. Line numbers are those of 1.34 and 1.35 (issues 135639 and
//! 136786), the others' by their distance from these; in earlier releases they are not known.

use std::net::IpAddr;

use super::{Logs, Value};

impl Logs {
    /// The transaction is ready.
    pub(crate) fn reloading_nftables(&self, services: usize, endpoints: usize) {
        let pairs = [("numServices", services), ("numEndpoints", endpoints)]
            .map(|(key, number)| (key, Value::Bare(number.to_string())));
        let text = "Reloading service nftables data";
        self.info(2, self.sites.reloading, text, &pairs);
    }

    /// An address of the loopback is among those that are to take node ports.
    pub(crate) fn no_localhost_node_ports(&self, ip: IpAddr) {
        let text =
            "--nodeport-addresses includes localhost but localhost NodePorts are not supported";
        self.address_refused("proxier.go:591", text, ip);
    }

    /// nft refused the transaction.
    pub(crate) fn nftables_failed(&self, error: &str) {
        self.error(self.sites.restore, "nftables sync failed", error, &[]);
    }

    /// Chains that nothing uses are old enough to be deleted.
    pub(crate) fn deleting_stale(&self, chains: usize) {
        let pairs = [("numChains", Value::Bare(chains.to_string()))];
        let text = "Deleting stale nftables chains";
        self.info(0, "proxier.go:1211", text, &pairs);
    }

    /// They could not be deleted.
    pub(crate) fn stale_deletion_failed(&self, error: &str) {
        let text = "Unable to delete stale chains; will retry later";
        self.error("proxier.go:1217", text, error, &[]);
    }

    /// `chains` or `sets` could not be listed.
    pub(crate) fn list_failed(&self, plural: &str, error: &str) {
        let text = match plural {
            _ if self.full_sync => format!("Failed to list existing {plural}"),
            "sets" => {
                "Failed to list nftables sets: stale affinity sets will not be deleted".into()
            }
            _ => format!("Failed to list nftables {plural}: stale chains will not be deleted"),
        };
        let error = format!("failed to run nft: {error}");
        self.error(self.sites.save, &text, &error, &[]);
    }

    /// The table could not be listed, as at the first start, when it is not there.
    pub(crate) fn table_unlisted(&self, error: &str) {
        let text = "Failed to list existing nftables objects";
        let error = format!("failed to run nft: {error}");
        self.error("proxier.go:1169", text, &error, &[]);
    }

    /// What is in a set or map could not be read: it is emptied instead.
    pub(crate) fn elements_unread(&self, name: &str, kind: &str, error: &str) {
        let pairs = [
            ("containerName", Value::Text(name)),
            ("containerType", Value::Text(kind)),
        ];
        let text = "Failed to list nftables elements";
        self.error("proxier.go:1037", text, error, &pairs);
    }
}
