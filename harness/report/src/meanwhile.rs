//! Where packets ended while a traffic got no answers: the drop census of a gap. It blames nobody, and helps where no
//! recorded command explains the gap: a rule may have been there all the time.

use std::{collections::BTreeMap, fmt};

use chainbreak_model::{
    case::{Case, Traffic},
    event::{Event, EventKind},
    names::TrafficName,
    verdict::Span,
};
use chainbreak_netfilter::Site;
use chainbreak_probe::wire::{Connections, Outcome, Protocol};
use serde::Serialize;

use crate::{
    deaf::{self, Deaf},
    edits::EditIndex,
    text::{count, one_line},
};

/// The census looks every three seconds, and says with a look what came since the one before.
const LOOK_US: u64 = 3_500_000;

/// The rule in which most packets ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Dropped {
    /// How many.
    pub packets: u64,
    /// How many in all rules of its owner, on all nodes.
    pub of_owner: u64,
    /// On which node.
    pub node: String,
    /// Whose rule.
    pub owner: String,
    /// The rule.
    pub site: Site,
    /// Who is behind it that Felix took their pods for strangers.
    pub deaf: Option<Deaf>,
}

/// Of what was told within the gap or with the first look after it.
pub(crate) fn dropped(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    gap: Span,
) -> Option<Dropped> {
    let told = gap.from_us..=gap.to_us + LOOK_US;
    let mut sums: BTreeMap<(&str, &str, Site), u64> = BTreeMap::new();
    for event in events.iter().filter(|event| told.contains(&event.at_us)) {
        let EventKind::Drops(seen) = &event.what else {
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
    let mut of_owners: BTreeMap<&str, u64> = BTreeMap::new();
    for ((_, owner, _), packets) in &sums {
        *of_owners.entry(owner).or_default() += packets;
    }
    let ((node, owner, site), packets) = sums.into_iter().max_by_key(|(_, packets)| *packets)?;
    let mut dropped = Dropped {
        packets,
        of_owner: of_owners.get(owner).copied().unwrap_or_default(),
        node: node.to_owned(),
        owner: owner.to_owned(),
        site,
        deaf: None,
    };
    dropped.deaf = deaf::behind(case, index, &dropped, gap.to_us);
    Some(dropped)
}

/// Of a UDP client that keeps its port: where its packets went last. conntrack leads them there as long as they come,
/// whatever the rules say.
pub(crate) fn left_behind(
    events: &[Event],
    (name, traffic): (&TrafficName, &Traffic),
    gap: Span,
) -> Option<String> {
    if (traffic.protocol, traffic.connections) != (Protocol::Udp, Connections::Kept) {
        return None;
    }
    let before = events.iter().filter(|event| event.at_us < gap.from_us);
    let mut backends = before.filter_map(|event| match &event.what {
        EventKind::Sample { traffic, sample } if traffic == name => match &sample.outcome {
            Outcome::Answered { backend, .. } if !backend.is_empty() => Some(backend),
            _ => None,
        },
        _ => None,
    });
    backends.next_back().map(|backend| one_line(backend))
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            packets,
            node,
            owner,
            site,
            deaf,
            ..
        } = self;
        let Site { table, chain, rule } = site;
        let packets = count(usize::try_from(*packets).unwrap_or(usize::MAX), "packet");
        let rule = one_line(rule);
        write!(
            f,
            "{packets} ended meanwhile in {table} {chain} {rule} on {node} ({owner})"
        )?;
        deaf.iter().try_for_each(|deaf| write!(f, ": {deaf}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chainbreak_model::case::{Destination, Origin};
    use chainbreak_probe::wire::Sample;

    use super::*;

    fn answered(at_us: u64, backend: &str) -> Event {
        let local = ([10, 20, 1, 2], 40_000).into();
        let outcome = Outcome::Answered {
            backend: backend.to_owned(),
            seen_as: Some(local),
            local,
        };
        let sample = Sample {
            at_us,
            took_us: 300,
            late_us: None,
            outcome,
        };
        let traffic = "asks".into();
        let what = EventKind::Sample { traffic, sample };
        Event { at_us, what }
    }

    #[test]
    fn a_client_that_keeps_its_udp_port_was_answered_last_by_somebody() {
        let events = [
            answered(10, "statsd-old"),
            answered(20, "statsd-old"),
            answered(90, "statsd-new"),
        ];
        let gap = Span {
            from_us: 30,
            to_us: 90,
        };
        let of = |protocol, connections| {
            let traffic = Traffic {
                from: Origin::Host("outside".to_owned()),
                to: Destination::Host("db".to_owned()),
                protocol,
                port: 53,
                family: None,
                every: Duration::from_millis(50),
                connections,
                timeout: Duration::from_secs(1),
            };
            left_behind(&events, (&"asks".into(), &traffic), gap)
        };
        let last = of(Protocol::Udp, Connections::Kept);
        assert_eq!(last.as_deref(), Some("statsd-old"));
        assert_eq!(of(Protocol::Udp, Connections::New), None);
        assert_eq!(of(Protocol::Tcp, Connections::Kept), None);
    }
}
