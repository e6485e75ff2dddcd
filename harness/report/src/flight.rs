//! The first packet of a traffic's requests, and its way through a node's rules as they are rebuilt from the history.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use chainbreak_model::{
    case::{Destination, Traffic},
    event::{Event, EventKind},
    names::TrafficName,
};
use chainbreak_netfilter::{
    Family, Site,
    dumps::Dumps,
    replay::Replay,
    walk::{Effect, End, Origin, Packet, Path, Protocol, TcpFlags, Walk, walk},
};
use chainbreak_probe::wire::{self, Outcome};

/// Where the requests of a traffic go; none of an older history.
pub fn aim(events: &[Event], name: &TrafficName) -> Option<SocketAddr> {
    events.iter().find_map(|event| match &event.what {
        EventKind::Aimed { traffic, at, .. } if traffic == name => Some(*at),
        _ => None,
    })
}

/// Which address the requests of a traffic come from, where none was answered that would tell the port, too; none of an older history.
pub(crate) fn sent_from(events: &[Event], name: &TrafficName) -> Option<IpAddr> {
    events.iter().find_map(|event| match &event.what {
        EventKind::Aimed { traffic, from, .. } if traffic == name => *from,
        _ => None,
    })
}

/// The first packet of a request.
#[derive(Debug)]
pub(crate) struct Flight {
    protocol: Protocol,
    from: SocketAddr,
    to: SocketAddr,
    /// Whether somebody on the way is to lead it elsewhere.
    is_translated: bool,
}

impl Flight {
    /// One that this address sends.
    pub(crate) fn of(
        events: &[Event],
        (name, traffic): (&TrafficName, &Traffic),
        from: SocketAddr,
    ) -> Option<Self> {
        Some(Self {
            protocol: match traffic.protocol {
                wire::Protocol::Tcp => Protocol::TCP,
                wire::Protocol::Udp => Protocol::UDP,
            },
            from,
            to: aim(events, name)?,
            is_translated: match traffic.to {
                Destination::Service { .. } | Destination::NodePort { .. } => true,
                Destination::Pod { .. } | Destination::Host(_) => false,
            },
        })
    }

    /// What becomes of it, where that is decided.
    pub(crate) fn walk(&self, replay: &Replay, network: &str) -> Option<Walk> {
        self.ways(replay, network).filter(Walk::decided)
    }

    /// Each way that it may take, as far as is known.
    pub(crate) fn ways(&self, replay: &Replay, network: &str) -> Option<Walk> {
        // The history has IPv4's rules of routing alone.
        if self.to.is_ipv6() && has_own_rules(network) {
            return None;
        }
        let mut dumps: Dumps = replay.dumps();
        let _found: BTreeSet<_> = dumps.add(network).ok()?;
        let mut packet = Packet::new(self.protocol, self.from, self.to);
        if self.protocol == Protocol::TCP {
            packet.flags = TcpFlags::SYN;
        }
        packet.input = match dumps.routing(packet.family())?.origin(self.from.ip())? {
            Origin::Here => None,
            Origin::By(interface) => Some(interface),
        };
        Some(walk(&dumps.state(packet.family()), &packet))
    }

    /// Whether every way leads to somebody who may answer.
    pub(crate) fn goes_on(&self, walk: &Walk) -> bool {
        walk.paths.iter().all(|path| !self.ends(path))
    }

    /// Whether none does.
    pub(crate) fn is_lost(&self, walk: &Walk) -> bool {
        walk.paths.iter().all(|path| self.ends(path))
    }

    /// Whether the node only passes it on, and every way goes to where it was sent, from the address that sent it.
    pub(crate) fn passes_as_sent(&self, walk: &Walk) -> bool {
        let (from, to) = (self.from.ip(), self.to.ip());
        let stays = |path: &Path| (path.packet.src, path.packet.dst) == (from, to);
        walk.packet.input.is_some() && self.goes_on(walk) && walk.paths.iter().all(stays)
    }

    /// Whether every way ends elsewhere than where it was sent.
    pub(crate) fn is_led_away(&self, walk: &Walk) -> bool {
        walk.paths
            .iter()
            .all(|path| path.packet.dst != self.to.ip())
    }

    /// Of which protocol its rules are.
    pub(crate) fn family(&self) -> Family {
        match self.to {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        }
    }

    /// Who sends it.
    pub(crate) fn from(&self) -> IpAddr {
        self.from.ip()
    }

    /// Where it is sent.
    pub(crate) fn to(&self) -> IpAddr {
        self.to.ip()
    }

    /// Where rules lead it instead of where it was sent, and the place of the rule that does.
    pub(crate) fn led_to(&self, walk: &Walk) -> BTreeMap<IpAddr, Site> {
        let led = walk.paths.iter().filter_map(|path| {
            let to = path.packet.dst;
            let mut rules = path.rules();
            let leads = |effect: &Effect| matches!(effect, Effect::Dnat(by, _) if *by == to);
            let (site, ..) = rules.find(|(_, _, effect)| leads(effect))?;
            Some((to, site.clone()))
        });
        led.filter(|(to, _)| *to != self.to.ip()).collect()
    }

    /// Whether a way leads nowhere. The address of a Service is nobody's.
    fn ends(&self, path: &Path) -> bool {
        let to = SocketAddr::new(path.packet.dst, path.packet.dport);
        !path.end.arrives() || self.is_translated && to == self.to
    }
}

/// Whether requests ended as a walk says of their first packets.
pub(crate) fn is_seen(walk: &Walk, outcome: &Outcome) -> bool {
    use Outcome::{Refused, TimedOut, Unreachable};
    walk.paths.iter().all(|path| match path.end {
        End::Dropped => matches!(outcome, TimedOut),
        End::Rejected { .. } => matches!(outcome, Refused | Unreachable { .. }),
        End::Delivered | End::Sent { .. } => {
            matches!(outcome, TimedOut | Refused | Unreachable { .. })
        }
        // Routes and settings are told before and after, and not at that moment.
        End::Refused { .. } | End::Undecided { .. } => false,
    })
}

/// Whether a node routes by more rules than the kernel's own three.
fn has_own_rules(network: &str) -> bool {
    let mut lines = network.lines().filter_map(|line| line.split_once(':'));
    lines.any(|(number, rest)| {
        let is_rule = number.parse::<u32>().is_ok() && rest.trim_start().starts_with("from ");
        is_rule && !["0", "32766", "32767"].contains(&number)
    })
}
