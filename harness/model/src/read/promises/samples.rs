//! Promises about what traffic saw: addresses, ports, balance, resets, recovery.

use std::time::Duration;

use chainbreak_probe::wire::{Connections, Protocol};

use super::{
    super::{
        fields::{Fields, duration, note, number, text},
        traffic,
    },
    LIMITS, Reading, TRAFFIC, Word, promise,
    window::{UNTIL, WINDOW},
};
use crate::{
    case::{Claim, Network, Origin, Ports, Promise, SourceAddress, Traffic, Window},
    language::{Kind, Mapping, default, needed},
    names::TrafficName,
    yaml::Node,
};

/// Recovery takes at most an hour.
const WITHIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));
/// How many endpoints can share.
const ENDPOINTS: (u64, u64) = (1, 1000);

pub(super) static PROMISES: [Word; 6] = [
    promise(
        "source",
        &SOURCE,
        "The server saw this client address in every request that it answered.",
        |it, fields| it.source(fields),
    ),
    promise(
        "source-ports",
        &SOURCE_PORTS,
        "The server saw a client port of this range in every request that it answered.",
        |it, fields| it.source_ports(fields),
    ),
    promise(
        "balance",
        &BALANCE,
        "The answers came evenly from so many endpoints, as far as chance allows (Pearson's chi-squared test).",
        |it, fields| it.balance(fields),
    ),
    promise(
        "resets",
        &RESETS,
        "So many requests ended in a reset.",
        |it, fields| it.resets(fields),
    ),
    promise(
        "unreachable",
        &UNREACHABLE,
        "No request was answered.",
        |it, fields| it.unreachable(fields),
    ),
    promise(
        "recovers",
        &RECOVERS,
        "From that time after the mark on, every request was answered.",
        |it, fields| it.recovers(fields),
    ),
];

static SOURCE: Mapping = Mapping {
    called: "source",
    doc: "",
    fields: &[
        &[
            TRAFFIC,
            needed(
                "is",
                Kind::Text,
                "`client` (its own), `node/n1` or `host/NAME` (any of its addresses), an address, or a network as 10.0.1.0/24.",
            ),
        ],
        &WINDOW,
    ],
};

static SOURCE_PORTS: Mapping = Mapping {
    called: "source-ports",
    doc: "",
    fields: &[
        &[
            TRAFFIC,
            needed(
                "within",
                Kind::Form("^[0-9]+-[0-9]+$", "32768-60999"),
                "The first and the last port.",
            ),
        ],
        &WINDOW,
    ],
};

static BALANCE: Mapping = Mapping {
    called: "balance",
    doc: "",
    fields: &[
        &[
            TRAFFIC,
            needed(
                "over",
                Kind::Whole(2, ENDPOINTS.1),
                "How many endpoints there are.",
            ),
            default(
                "p-at-least",
                Kind::Probability,
                "0.001",
                "Least probability that an even spread looks as uneven: it is called uneven with that probability by mere chance.",
            ),
        ],
        &WINDOW,
    ],
};

static RESETS: Mapping = Mapping {
    called: "resets",
    doc: "At least one of the bounds is given.",
    fields: &[&[TRAFFIC], &LIMITS, &WINDOW],
};

static UNREACHABLE: Mapping = Mapping {
    called: "unreachable",
    doc: "One answer breaks it, whatever was not seen; that there was none is known only when all requests were.",
    fields: &[&[TRAFFIC], &WINDOW],
};

static RECOVERS: Mapping = Mapping {
    called: "recovers",
    doc: "",
    fields: &[&[
        TRAFFIC,
        needed("after", Kind::Text, "The mark, or the step, by its name."),
        needed(
            "within",
            Kind::Time,
            "How long after the mark every request is answered again.",
        ),
        UNTIL,
    ]],
};

impl Reading<'_> {
    fn source(&self, fields: &Fields<'_>) -> Option<Promise> {
        let traffic = self.traffic(fields);
        let is = fields.need("is", |node| self.source_address(node));
        let window = self.window(fields);
        let claim = Claim::Source {
            traffic: traffic?,
            is: is?,
        };
        let window = window?;
        Some(Promise { claim, window })
    }

    fn source_address(&self, node: &Node) -> Option<SourceAddress> {
        let written = text(self.gathered, node, "a source")?;
        if written == "client" {
            return Some(SourceAddress::Client);
        }
        let network = written.parse::<Network>();
        if let Ok(network) = network {
            if network.is_everything() {
                self.proves_nothing(node, "every address is in it", "");
            }
            return Some(SourceAddress::Network(network));
        }
        let hint = "write client, node/n1, host/NAME, an address or a network as 10.0.1.0/24";
        let place = written.starts_with("node/") || written.starts_with("host/");
        if !place {
            let message = format!("nobody has the address {written:?}");
            note(self.gathered, &node.place, message, Some(hint.to_owned()));
            return None;
        }
        traffic::place(
            self.gathered,
            node,
            self.known.world,
            "nobody has the address",
        )
        .map(SourceAddress::Of)
    }

    fn source_ports(&self, fields: &Fields<'_>) -> Option<Promise> {
        let traffic = self.traffic(fields);
        let within = fields.need("within", |node| self.ports(node));
        let window = self.window(fields);
        let claim = Claim::SourcePorts {
            traffic: traffic?,
            within: within?,
        };
        let window = window?;
        Some(Promise { claim, window })
    }

    fn ports(&self, node: &Node) -> Option<Ports> {
        let written = text(self.gathered, node, "a range of ports")?;
        let range = written.split_once('-');
        let range = range.and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        let Some((low, high)) = range.filter(|(low, high)| low <= high) else {
            let message = format!("{written:?} is no range of ports");
            let hint = "write it as 32768-60999".to_owned();
            note(self.gathered, &node.place, message, Some(hint));
            return None;
        };
        if low <= 1 && high == u16::MAX {
            self.proves_nothing(node, "every port is in it", "");
        }
        Some(Ports { low, high })
    }

    fn balance(&self, fields: &Fields<'_>) -> Option<Promise> {
        let gathered = self.gathered;
        let traffic = self.traffic(fields);
        let over = fields.need("over", |node| {
            let over: u16 = number(gathered, node, "over", ENDPOINTS)?;
            if over == 1 {
                self.proves_nothing(node, "one endpoint has nothing to share", "");
            }
            Some(over)
        });
        let p_at_least = fields.or_default("p-at-least", |node| self.probability(node));
        let flow = self.flow(traffic.as_ref());
        if flow.is_some_and(|flow| flow.connections == Connections::Kept)
            && let Some(node) = fields.get("traffic")
        {
            let message = "a kept connection stays with one endpoint: there is no balance";
            let hint = Some("traffic with `connections: new` is spread".to_owned());
            note(gathered, &node.place, message, hint);
        }
        let window = self.window(fields);
        let claim = Claim::Balance {
            traffic: traffic?,
            over: over?,
            p_at_least: p_at_least?,
        };
        let window = window?;
        Some(Promise { claim, window })
    }

    /// The traffic of that name.
    fn flow(&self, name: Option<&TrafficName>) -> Option<&Traffic> {
        let known = self.known.traffic.zip(name);
        known.and_then(|(flows, name)| flows.get(name))
    }

    fn probability(&self, node: &Node) -> Option<f64> {
        let written = text(self.gathered, node, "a probability")?;
        let number = written.parse::<f64>().ok();
        let number = number.filter(|p| *p > 0.0 && *p < 1.0);
        if number.is_none() {
            let message = format!("p-at-least lies between 0 and 1, and is not {written}");
            let hint = "an even spread fails with this probability by chance: write 0.001";
            note(self.gathered, &node.place, message, Some(hint.to_owned()));
        }
        number
    }

    fn resets(&self, fields: &Fields<'_>) -> Option<Promise> {
        let traffic = self.traffic(fields);
        let flow = self.flow(traffic.as_ref());
        if flow.is_some_and(|flow| flow.protocol == Protocol::Udp)
            && let Some(node) = fields.get("traffic")
        {
            let message = "over UDP nothing is reset";
            let hint = "a question that is refused counts as not answered: promise `available`";
            note(self.gathered, &node.place, message, Some(hint.to_owned()));
        }
        let limits = self.limits(fields);
        let window = self.window(fields);
        let claim = Claim::Resets {
            traffic: traffic?,
            limits: limits?,
        };
        let window = window?;
        Some(Promise { claim, window })
    }

    fn unreachable(&self, fields: &Fields<'_>) -> Option<Promise> {
        let (traffic, window) = (self.traffic(fields), self.window(fields));
        let claim = Claim::Unreachable { traffic: traffic? };
        let window = window?;
        Some(Promise { claim, window })
    }

    fn recovers(&self, fields: &Fields<'_>) -> Option<Promise> {
        let gathered = self.gathered;
        let traffic = self.traffic(fields);
        let after = fields.need("after", |node| self.after(node));
        let within = fields.need("within", |node| duration(gathered, node, "within", WITHIN));
        let until = fields.maybe("until", |node| self.mark(node));
        if let (Some(after), Some(within)) = (&after, within) {
            self.too_long(fields.get("within"), within, Some(after));
        }
        let claim = Claim::Recovers {
            traffic: traffic?,
            after: after.clone()?,
            within: within?,
        };
        let window = Window {
            from: None,
            until: until?,
        };
        self.in_order(fields, after.as_ref(), window.until.as_ref());
        Some(Promise { claim, window })
    }

    /// `node/n1`, `pod/NAME`, `host/NAME`.
    pub(super) fn at(&self, node: &Node) -> Option<Origin> {
        traffic::place(self.gathered, node, self.known.world, "no counters are at")
    }
}
