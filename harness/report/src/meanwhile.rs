//! Where packets ended while a traffic got no answers: the drop census of a gap. It blames nobody, and helps where no
//! recorded command explains the gap: a rule may have been there all the time.

use std::{collections::BTreeMap, fmt};

use chainbreak_model::{
    event::{Event, What},
    verdict::Span,
};
use chainbreak_netfilter::Site;

use crate::{explain::one_line, text::count};

/// The census looks every two seconds, and says with a look what came since the one before.
const LOOK_US: u64 = 2_500_000;

/// The rule in which most packets ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    packets: u64,
    node: String,
    owner: String,
    site: Site,
}

/// Of what was told within the gap or with the first look after it.
pub(crate) fn dropped(events: &[Event], gap: Span) -> Option<Dropped> {
    let told = gap.from_us..=gap.to_us + LOOK_US;
    let mut sums: BTreeMap<(&str, &str, Site), u64> = BTreeMap::new();
    for event in events.iter().filter(|event| told.contains(&event.at_us)) {
        let What::Drops(seen) = &event.what else {
            continue;
        };
        for dropped in &seen.grown {
            let site = Site {
                table: dropped.table.clone(),
                chain: dropped.chain.clone(),
                rule: dropped.rule.clone(),
            };
            let key = (seen.node.as_str(), dropped.owner.as_str(), site);
            *sums.entry(key).or_default() += dropped.packets;
        }
    }
    let ((node, owner, site), packets) = sums.into_iter().max_by_key(|(_, packets)| *packets)?;
    Some(Dropped {
        packets,
        node: node.to_owned(),
        owner: owner.to_owned(),
        site,
    })
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            packets,
            node,
            owner,
            site,
        } = self;
        let Site { table, chain, rule } = site;
        let packets = count(usize::try_from(*packets).unwrap_or(usize::MAX), "packet");
        let rule = one_line(rule);
        write!(
            f,
            "{packets} ended meanwhile in {table} {chain} {rule} on {node} ({owner})"
        )
    }
}
