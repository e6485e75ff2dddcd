//! What is known of a node without its dumps.

use std::net::IpAddr;

use super::{Dumps, Kind, Save};
use crate::nft::NftTable;

impl Dumps {
    /// Rules that were rebuilt, and the sets that they ask.
    pub(crate) fn rebuilt(saves: Vec<Save>, nft: Vec<NftTable>, ipsets: String) -> Self {
        Self {
            saves,
            nft,
            ipsets,
            found: [Kind::Save, Kind::Nft, Kind::Sets].into(),
            ..Self::default()
        }
    }

    /// Says which addresses the node has: these and no others. Where routes or addresses are dumped, those count.
    pub fn set_own(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.own = Some(addresses.into_iter().collect());
    }
}
