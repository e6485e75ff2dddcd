//! `source` and `source-ports`: what the server saw of the client.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use chainbreak_probe::wire::Outcome;
use indexmap::IndexMap;

use super::{Watch, decided, samples::Samples, unknown};
use crate::{
    case::{Origin, Ports, SourceAddress},
    event::{Event, EventKind},
    verdict::{Evidence, PortsSeen, PromiseVerdict, Sources, Span},
};

/// An answer: when its request was due, the client as the server saw it, and as it was.
type Answer = (u64, SocketAddr, SocketAddr);

/// The answers within the window, or why they say nothing.
fn answers(samples: &Samples<'_>, window: Span) -> Result<Vec<Answer>, String> {
    let due = samples.within(window);
    let answer = |(due, outcome): &(u64, &Outcome)| match outcome {
        Outcome::Answered { seen_as, local, .. } => Some((*due, *seen_as, *local)),
        _ => None,
    };
    let mut answers = Vec::new();
    for (due, seen_as, local) in due.iter().filter_map(answer) {
        let seen_as = seen_as.ok_or("the server does not say which client it sees")?;
        answers.push((due, seen_as, local));
    }
    if answers.is_empty() {
        return Err(format!("no request of {} was answered", samples.traffic));
    }
    Ok(answers)
}

/// `source`.
#[derive(Debug)]
pub(super) struct Addresses<'a> {
    samples: Samples<'a>,
    promised: &'a SourceAddress,
    /// Of the place that is promised, where it is one.
    own: Option<Vec<IpAddr>>,
}

impl<'a> Addresses<'a> {
    pub(super) fn new(samples: Samples<'a>, promised: &'a SourceAddress) -> Self {
        Self {
            samples,
            promised,
            own: None,
        }
    }

    fn place(&self) -> Option<&Origin> {
        match self.promised {
            SourceAddress::Of(place) => Some(place),
            SourceAddress::Client | SourceAddress::Network(_) => None,
        }
    }

    fn is_promised(&self, seen: IpAddr, local: IpAddr) -> bool {
        match self.promised {
            SourceAddress::Client => seen == local.to_canonical(),
            SourceAddress::Of(_) => self.own.iter().flatten().any(|own| *own == seen),
            SourceAddress::Network(network) => network.contains(seen),
        }
    }
}

impl Watch for Addresses<'_> {
    fn see(&mut self, event: &Event) {
        self.samples.see(event);
        if let EventKind::Addresses { at, addresses } = &event.what
            && Some(at) == self.place()
        {
            self.own = Some(addresses.clone());
        }
    }

    fn verdict(&self, window: Span) -> PromiseVerdict {
        if let (Some(place), None) = (self.place(), &self.own) {
            return unknown(format!("the addresses of {place} were never seen"));
        }
        let answers = match answers(&self.samples, window) {
            Ok(answers) => answers,
            Err(cause) => return unknown(cause),
        };
        let mut seen: IndexMap<IpAddr, u64> = IndexMap::new();
        let mut wrong = Vec::new();
        for (due, seen_as, local) in &answers {
            let address = seen_as.ip().to_canonical();
            *seen.entry(address).or_default() += 1;
            if !self.is_promised(address, local.ip()) {
                wrong.push((*due, address));
            }
        }
        seen.sort_by(|_, a, _, b| b.cmp(a));
        let evidence = Sources {
            traffic: self.samples.traffic.clone(),
            promised: self.promised.to_string(),
            seen,
            wrong: wrong.len() as u64,
            first_wrong: wrong.first().copied(),
        };
        decided(wrong.is_empty(), Evidence::Sources(evidence))
    }
}

/// `source-ports`.
#[derive(Debug)]
pub(super) struct PortsUsed<'a> {
    samples: Samples<'a>,
    promised: Ports,
}

impl<'a> PortsUsed<'a> {
    pub(super) fn new(samples: Samples<'a>, promised: Ports) -> Self {
        Self { samples, promised }
    }
}

impl Watch for PortsUsed<'_> {
    fn see(&mut self, event: &Event) {
        self.samples.see(event);
    }

    fn verdict(&self, window: Span) -> PromiseVerdict {
        let answers = match answers(&self.samples, window) {
            Ok(answers) => answers,
            Err(cause) => return unknown(cause),
        };
        let ports = answers.iter().map(|(_, seen_as, _)| seen_as.port());
        let different: BTreeSet<u16> = ports.clone().collect();
        let wrong = ports.filter(|port| !self.promised.contain(*port)).count() as u64;
        let evidence = PortsSeen {
            traffic: self.samples.traffic.clone(),
            promised: self.promised,
            answered: answers.len() as u64,
            different: different.len() as u64,
            seen: Ports {
                low: different.first().copied().unwrap_or_default(),
                high: different.last().copied().unwrap_or_default(),
            },
            wrong,
        };
        decided(wrong == 0, Evidence::Ports(evidence))
    }
}
