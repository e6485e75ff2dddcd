//! Where traffic asked Services in a recorded run.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use chainbreak_model::{
    case::{Case, Destination},
    event::{Event, EventKind},
};
use chainbreak_probe::wire::Protocol;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// A protocol's number, and an address.
pub(super) type At = (u8, SocketAddr);

/// Where each Service, `namespace/name`, is asked by its own addresses.
pub(super) fn asked(case: &Case, events: &[Event]) -> BTreeMap<String, BTreeSet<At>> {
    let mut asked = BTreeMap::<_, BTreeSet<At>>::new();
    for event in events {
        let EventKind::Aimed { traffic, at, .. } = &event.what else {
            continue;
        };
        let Some(traffic) = case.traffic.get(traffic) else {
            continue;
        };
        if let Destination::Service { namespace, name } = &traffic.to {
            let number = match traffic.protocol {
                Protocol::Tcp => TCP,
                Protocol::Udp => UDP,
            };
            let service = format!("{namespace}/{name}");
            asked.entry(service).or_default().insert((number, *at));
        }
    }
    asked
}

/// The addresses alone.
pub(super) fn addresses(asked: &BTreeSet<At>) -> BTreeSet<IpAddr> {
    asked.iter().map(|(_, at)| at.ip()).collect()
}
