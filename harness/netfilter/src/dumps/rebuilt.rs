//! What is known of a node without its dumps.

use std::net::IpAddr;

use super::{Dumps, Kind, Save};
use crate::{
    Family, Site,
    nft::NftTable,
    rule::{Counters, Rule},
};

impl Dumps {
    /// Rules that were rebuilt, and the sets that they ask.
    pub(crate) fn rebuilt(saves: Vec<Save>, nft: Vec<NftTable>, ipsets: String) -> Self {
        Self {
            is_ordered: true,
            saves,
            nft,
            ipsets,
            found: [Kind::Save, Kind::Nft, Kind::Sets].into(),
            ..Self::default()
        }
    }

    /// Says what a rule of iptables has counted, in whichever front end it stands: rules that were rebuilt have counted nothing.
    pub fn set_counters(&mut self, family: Family, site: &Site, counters: Counters) {
        let counted = Rule::new(site.rule.as_str());
        for save in self.saves.iter_mut().filter(|it| it.family == family) {
            let chain = save.ruleset.tables.get_mut(&site.table);
            let chain = chain.and_then(|it| it.chains.get_mut(&site.chain));
            let rules = chain.into_iter().flat_map(|it| &mut it.rules);
            for rule in rules.filter(|rule| rule.same(&counted)) {
                rule.counters = Some(counters);
            }
        }
    }

    /// Says which addresses the node has: these and no others. Where routes or addresses are dumped, those count.
    pub fn set_own(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.own = Some(addresses.into_iter().collect());
    }
}
