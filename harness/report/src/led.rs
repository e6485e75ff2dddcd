//! Rules that lead requests elsewhere than to the host that was to count them.

use std::{collections::BTreeSet, fmt};

use chainbreak_model::{
    case::{Case, Claim, Destination, Origin, Traffic},
    event::Event,
    names::{NodeName, TrafficName},
    verdict::{Counted, Span},
};
use chainbreak_probe::wire::Connections;
use serde::Serialize;

use crate::{attribution, edits::EditIndex, programs::said, rebuilt::Rebuilt};

/// Where rules led.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Led {
    /// Who wrote them, by the commands.
    pub who: String,
    /// Of which node.
    pub node: NodeName,
    /// Where requests were sent.
    pub sent_to: BTreeSet<String>,
    /// The host that has these addresses.
    pub host: String,
    /// Where they were led.
    pub to: BTreeSet<String>,
}

impl fmt::Display for Led {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            who,
            node,
            sent_to,
            host,
            to,
        } = self;
        let (sent_to, to) = (said(sent_to), said(to));
        write!(
            f,
            "{who}'s rules on {node} led what is sent to host {host} ({sent_to}) to {to}"
        )
    }
}

/// Those by which a host counted nothing at all, where every way of a request is known and leads elsewhere.
pub(crate) fn of_counter(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    claim: &Claim,
    counted: &Counted,
    within: Span,
) -> Option<Led> {
    let Claim::Counter {
        at: Some(Origin::Host(host)),
        ..
    } = claim
    else {
        return None;
    };
    if counted.total() > 0 {
        return None;
    }
    let asks = |it: &Traffic| matches!(&it.to, Destination::Host(to) if to == host);
    let asked = case.traffic.iter().filter(|(_, it)| asks(it));
    let mut led = asked.map(|it| of_traffic((case, events, index), (host, it), within));
    let first = led.next()??;
    led.try_fold(first, |led, other| led.with(other?))
}

/// By both ends of the time.
fn of_traffic(
    (case, events, index): (&Case, &[Event], &EditIndex<'_>),
    (host, traffic): (&str, (&TrafficName, &Traffic)),
    within: Span,
) -> Option<Led> {
    if traffic.1.connections == Connections::Kept {
        return None;
    }
    let node = attribution::walked_node(case, traffic.1)?;
    let mut rebuilt = Rebuilt::of(case, events, index, traffic, &node)?;
    let mut found: Option<Led> = None;
    for at_us in [within.from_us, within.to_us] {
        let walks = rebuilt.walks(at_us)?;
        let flight = rebuilt.flight();
        let is_led_away = walks.iter().all(|walk| flight.is_led_away(walk));
        let sent_to = is_led_away.then(|| flight.to())?;
        let led = rebuilt.led_by(&walks)?;
        let one = Led {
            who: rebuilt.leader(at_us, &led)?.to_owned(),
            sent_to: [sent_to.to_string()].into(),
            host: host.to_owned(),
            to: led.keys().map(ToString::to_string).collect(),
            node: node.clone(),
        };
        found = match found {
            Some(found) => Some(found.with(one)?),
            None => Some(one),
        };
    }
    found
}

impl Led {
    /// Both, where the same one did them on the same node.
    fn with(mut self, other: Self) -> Option<Self> {
        self.sent_to.extend(other.sent_to);
        self.to.extend(other.to);
        ((&self.who, &self.node) == (&other.who, &other.node)).then_some(self)
    }
}
