//! Which command changed what becomes of a traffic's packets: the first packet of a request is walked through the rules of its node as
//! they were before and after each command that was at work when a gap began. What is not known for sure names nobody.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
};

use chainbreak_model::{
    case::{Case, Destination, IptablesVariant, Traffic},
    event::{Event, EventKind},
    names::{NodeName, TrafficName},
    verdict::Span,
};
use chainbreak_netfilter::{
    dumps::Dumps,
    replay::{Backend, Replay},
    walk::{Origin, Packet, Path, Protocol, TcpFlags, Walk, walk},
};
use chainbreak_probe::wire::{self, Connections, Outcome};
use serde::Serialize;

use crate::{
    attribution::{self, SENT_LATE_US},
    edits::{EditIndex, ran},
    network::Network,
};

/// A port that clients have (Linux's `ip_local_port_range` begins at 32768).
const CLIENT_PORT: u16 = 40_000;

/// A command after which packets end that went on before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Turned {
    /// Who ran it.
    pub who: String,
    /// With which program.
    pub program: String,
    /// Where.
    pub node: NodeName,
    /// When it ended.
    pub at_us: u64,
    /// What becomes of packets since: `is dropped by filter FORWARD 3: DROPPED`.
    pub end: String,
}

impl fmt::Display for Turned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            who, program, end, ..
        } = self;
        write!(f, "a request's first packet {end}, since {who} ({program})")
    }
}

/// The command by which all requests of a traffic are lost from the beginning of the gap on.
pub(crate) fn of_gap(
    case: &Case,
    events: &[Event],
    index: &EditIndex<'_>,
    (name, traffic): (&TrafficName, &Traffic),
    gap: Span,
) -> Option<Turned> {
    // What goes on over a connection that is there is decided by its entry, and by no rule that is written later.
    if traffic.connections == Connections::Kept {
        return None;
    }
    let node = attribution::node_of(case, traffic).or_else(|| attribution::only_node(case))?;
    let ends = Ends::of(events, (name, traffic), gap.from_us)?;
    let network = Network::at(events, &case.timeline, &node, gap.from_us)?;
    if network.doubt.is_some() {
        return None;
    }
    let texts = [network.text]
        .into_iter()
        .chain(network.later.map(|it| it.0));
    let mut found = texts.map(|text| turned(case, index, &node, (&ends, text), gap.from_us));
    let first = found.next()??;
    found
        .all(|other| other.as_ref() == Some(&first))
        .then_some(first)
}

/// The first command that turns packets off their way, of those at work between the last request that was answered and the first that was lost.
fn turned(
    case: &Case,
    index: &EditIndex<'_>,
    node: &NodeName,
    (ends, network): (&Ends, &str),
    lost_us: u64,
) -> Option<Turned> {
    let own = match case.cluster.iptables {
        IptablesVariant::Legacy => Backend::Legacy,
        IptablesVariant::Nft => Backend::Nft,
    };
    let mut replay = Replay::new(own);
    let mut before: Option<Walk> = None;
    let edits = index.on(node);
    for edit in edits.filter(|it| it.began_us() <= lost_us + SENT_LATE_US) {
        if edit.at_us < ends.answered_us {
            replay.take(ran(edit.command)).ok()?;
            continue;
        }
        let earlier = match before.take() {
            Some(walk) => walk,
            None => ends.walk(&replay, network)?,
        };
        replay.take(ran(edit.command)).ok()?;
        let later = ends.walk(&replay, network)?;
        if ends.goes_on(&earlier) && ends.is_lost(&later) {
            return Some(Turned {
                who: edit.command.who.clone(),
                program: edit.program().to_owned(),
                node: node.clone(),
                at_us: edit.at_us,
                end: later.ends().join("; "),
            });
        }
        before = Some(later);
    }
    None
}

/// Between whom the requests of a traffic go.
#[derive(Debug)]
struct Ends {
    protocol: Protocol,
    src: IpAddr,
    dst: SocketAddr,
    /// Whether somebody on the way is to lead them elsewhere.
    is_translated: bool,
    /// When the last request before the gap was due.
    answered_us: u64,
}

impl Ends {
    /// As the history says before the gap.
    fn of(
        events: &[Event],
        (name, traffic): (&TrafficName, &Traffic),
        lost_us: u64,
    ) -> Option<Self> {
        let mut dst = None;
        let mut answered = None;
        for event in events.iter().filter(|event| event.at_us < lost_us) {
            match &event.what {
                EventKind::Aimed { traffic, at } if traffic == name => dst = Some(*at),
                EventKind::Sample { traffic, sample } if traffic == name => {
                    if let Outcome::Answered { local, .. } = &sample.outcome {
                        answered = answered.max(Some((event.at_us, local.ip())));
                    }
                }
                _ => {}
            }
        }
        let (answered_us, src) = answered?;
        Some(Self {
            protocol: match traffic.protocol {
                wire::Protocol::Tcp => Protocol::TCP,
                wire::Protocol::Udp => Protocol::UDP,
            },
            src,
            dst: dst?,
            is_translated: match traffic.to {
                Destination::Service { .. } | Destination::NodePort { .. } => true,
                Destination::Pod { .. } | Destination::Host(_) => false,
            },
            answered_us,
        })
    }

    /// What becomes of a request's first packet, where that is decided.
    fn walk(&self, replay: &Replay, network: &str) -> Option<Walk> {
        let mut dumps: Dumps = replay.dumps();
        let _found: BTreeSet<_> = dumps.add(network).ok()?;
        let mut packet = Packet::new(
            self.protocol,
            SocketAddr::new(self.src, CLIENT_PORT),
            self.dst,
        );
        if self.protocol == Protocol::TCP {
            packet.flags = TcpFlags::SYN;
        }
        packet.input = match dumps.routing(packet.family())?.origin(self.src)? {
            Origin::Here => None,
            Origin::By(interface) => Some(interface),
        };
        let walk = walk(&dumps.state(packet.family()), &packet);
        walk.decided().then_some(walk)
    }

    /// Whether every way leads to somebody who may answer.
    fn goes_on(&self, walk: &Walk) -> bool {
        walk.paths.iter().all(|path| !self.ends(path))
    }

    /// Whether none does.
    fn is_lost(&self, walk: &Walk) -> bool {
        walk.paths.iter().all(|path| self.ends(path))
    }

    /// Whether a way leads nowhere. The address of a Service is nobody's.
    fn ends(&self, path: &Path) -> bool {
        let to = SocketAddr::new(path.packet.dst, path.packet.dport);
        !path.end.arrives() || self.is_translated && to == self.dst
    }
}
