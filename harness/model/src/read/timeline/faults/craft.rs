//! Segments that nobody sent.

use chainbreak_probe::wire::{Protocol, craft::Segment};

use super::{
    super::{
        super::{
            fields::{duration, note, text, word},
            traffic::PLACE,
        },
        LENGTH, Word,
    },
    FOR, Reading, fault,
};
use crate::{
    case::{Craft, Fault, Origin, Step, Traffic},
    language::{Kind, Mapping, default, needed, optional, words},
    names::TrafficName,
    nearest::suggest,
    yaml::Node,
};

pub(in super::super) static STEPS: [Word; 1] = [fault(
    "craft",
    &CRAFT,
    "Segments that nobody sent pass, in every live connection of the traffic's backends, in their own sequence numbers. That no connection was there is inconclusive.",
    |it| it.craft(),
)];

static CRAFT: Mapping = Mapping {
    called: "craft",
    doc: "",
    fields: &[&[
        needed(
            "traffic",
            Kind::Name,
            "Into whose connections they are sent.",
        ),
        needed(
            "segment",
            Kind::Word(|| words(&segments())),
            "`out-of-window`: data of the server that no window reaches to, which conntrack calls INVALID. `reset`: the server's, which is believed. `stray-handshake`: a SYN and its answer in other numbers with wrong checksums: both ends ignore it, conntrack of the node that sends it believes it, and calls what follows INVALID; on a node that forwards the connection without rewriting it.",
        ),
        optional(
            "from",
            PLACE,
            "Where they are sent; from the backends' pods when not given, a stray handshake from their nodes.",
        ),
        default("every", Kind::Time, "200ms", "Distance of two turns."),
        FOR,
    ]],
};

fn segments() -> [(&'static str, Segment); 3] {
    Segment::ALL.map(|segment| (segment.as_str(), segment))
}

impl Reading<'_> {
    fn craft(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let traffic = self.fields.need("traffic", |node| {
            let known = self.traffic(node)?;
            if known.1.protocol == Protocol::Udp {
                let message = "segments are TCP's, and this traffic goes over UDP";
                let hint = "craft into traffic with `protocol: tcp`".to_owned();
                note(gathered, &node.place, message, Some(hint));
            }
            Some(known)
        });
        let segment = self.fields.need("segment", |node| {
            word(gathered, node, "segment", &segments())
        });
        let from = self.fields.maybe("from", |node| {
            let from = self.place(node)?;
            if segment == Some(Segment::StrayHandshake) && !matches!(from, Origin::Node(_)) {
                let message =
                    "a stray handshake is sent by a node: its SYN has the client's address";
                note(gathered, &node.place, message, Some("as node/n1".into()));
            }
            Some(from)
        });
        let every = self
            .fields
            .or_default("every", |node| duration(gathered, node, "every", LENGTH));
        let fault = || {
            let (name, traffic) = traffic?;
            Some(Fault::Craft(Craft {
                traffic: name,
                to: traffic.to.clone(),
                port: traffic.port,
                segment: segment?,
                from: from?,
                every: every?,
            }))
        };
        self.lasting(fault())
    }

    /// A traffic of the scenario.
    fn traffic(&self, node: &Node) -> Option<(TrafficName, &Traffic)> {
        let gathered = self.fields.gathered;
        let written = text(gathered, node, "traffic")?;
        let known = self.world.traffic?;
        let found = known.get_key_value(&TrafficName::from(written));
        if found.is_none() {
            let hint = suggest(written, known.keys().map(TrafficName::as_str));
            let message = format!("unknown traffic {written:?}");
            note(gathered, &node.place, message, hint);
        }
        found.map(|(name, traffic)| (name.clone(), traffic))
    }
}
