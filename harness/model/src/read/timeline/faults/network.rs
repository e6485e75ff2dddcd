//! What happens to packets on their way: links, losses, routes.

use std::net::IpAddr;

use super::{
    super::{
        super::{
            fields::{note, number, percent, text},
            traffic::PLACE,
        },
        Word,
    },
    FOR, Reading, fault,
};
use crate::{
    case::{Fault, Step},
    diagnostic::Gathered,
    language::{Field, Kind, Mapping, default, needed, optional},
    yaml::Node,
};

pub(in super::super) static STEPS: [Word; 4] = [
    fault(
        "link-down",
        &LINK_DOWN,
        "An interface is down, with its routes, which come back.",
        |it| it.link_down(),
    ),
    fault(
        "loss",
        &LOSS,
        "A share of the packets that arrive is lost, before anything else sees them.",
        |it| it.loss(),
    ),
    fault("route", &ROUTE, "Packets take this way.", |it| it.route()),
    fault(
        "mtu",
        &MTU,
        "An interface sends packets of so many bytes at most: what is longer is split, or refused where it may not be split. What comes in longer over a veth pair is dropped without a word, but for large segments that the kernel has not cut yet (GSO).",
        |it| it.mtu(),
    ),
];

static LINK_DOWN: Mapping = Mapping {
    called: "link-down",
    doc: "",
    fields: &[&[AT, INTERFACE, FOR]],
};

static LOSS: Mapping = Mapping {
    called: "loss",
    doc: "",
    fields: &[&[
        AT,
        needed("share", Kind::Percent, "The share that is lost."),
        FOR,
    ]],
};

static ROUTE: Mapping = Mapping {
    called: "route",
    doc: "A route in the place's table; it has `via`, `dev` or both.",
    fields: &[&[
        AT,
        needed("to", Kind::Text, "`default`, an address or a CIDR."),
        optional("via", Kind::Text, "The address of the next hop."),
        optional("dev", Kind::Text, "The interface."),
        FOR,
    ]],
};

static MTU: Mapping = Mapping {
    called: "mtu",
    doc: "",
    fields: &[&[
        AT,
        INTERFACE,
        needed(
            "bytes",
            Kind::Whole(BYTES.0, BYTES.1),
            "How many, with the header of IP.",
        ),
        FOR,
    ]],
};

/// From the least that IPv6 knows, under which Linux takes all that is IPv6 from an interface, to the most that Ethernet has
/// (`IPV6_MIN_MTU`, `ETH_MAX_MTU`).
const BYTES: (u64, u64) = (1280, 65535);

const AT: Field = needed(
    "at",
    PLACE,
    "Where: `pod/NAME`, `pod/NAMESPACE/NAME`, `node/n1` or `host/NAME`.",
);
const INTERFACE: Field = default(
    "interface",
    Kind::Text,
    "eth0",
    "The name of the interface.",
);

impl Reading<'_> {
    fn link_down(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.need("at", |node| self.place(node));
        let interface = self
            .fields
            .or_default("interface", |node| interface(gathered, node));
        let fault = || {
            Some(Fault::LinkDown {
                at: at?,
                interface: interface?,
            })
        };
        self.lasting(fault())
    }

    fn mtu(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.need("at", |node| self.place(node));
        let interface = self
            .fields
            .or_default("interface", |node| interface(gathered, node));
        let bytes = self
            .fields
            .need("bytes", |node| number(gathered, node, "bytes", BYTES));
        let fault = || {
            Some(Fault::Mtu {
                at: at?,
                interface: interface?,
                bytes: bytes?,
            })
        };
        self.lasting(fault())
    }

    fn loss(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.need("at", |node| self.place(node));
        let share = self.fields.need("share", |node| {
            let share = percent(gathered, node, "share")?;
            if share == 0.0 {
                note(gathered, &node.place, "that loses nothing", None);
            }
            Some(share)
        });
        let fault = || {
            Some(Fault::Loss {
                at: at?,
                share: share?,
            })
        };
        self.lasting(fault())
    }

    fn route(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.need("at", |node| self.place(node));
        let to = self.fields.need("to", |node| destination(gathered, node));
        let via = self.fields.maybe("via", |node| {
            let written = text(gathered, node, "via")?;
            let address: Option<IpAddr> = written.parse().ok();
            if address.is_none() {
                let message = format!("via is an address, not {written:?}");
                note(gathered, &node.place, message, None);
            }
            address
        });
        let dev = self.fields.maybe("dev", |node| interface(gathered, node));
        if via == Some(None) && dev == Some(None) {
            let message = "a route needs \"via\", \"dev\" or both";
            note(gathered, &self.fields.key("to"), message, None);
            return None;
        }
        let fault = || {
            Some(Fault::Route {
                at: at?,
                to: to?,
                via: via?,
                dev: dev?,
            })
        };
        self.lasting(fault())
    }
}

/// As the kernel takes it, which has 15 letters for it.
fn interface(gathered: &Gathered, node: &Node) -> Option<String> {
    let name = text(gathered, node, "an interface")?;
    let odd = |c: char| c.is_whitespace() || c == '/' || c == ':';
    if name.is_empty() || name.len() > 15 || name.contains(odd) {
        let message = format!("no interface can be called {name:?}");
        note(gathered, &node.place, message, None);
    }
    Some(name.to_owned())
}

/// `default`, an address or a CIDR.
fn destination(gathered: &Gathered, node: &Node) -> Option<String> {
    let written = text(gathered, node, "to")?;
    let (address, length) = written.split_once('/').unwrap_or((written, "0"));
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => Some(32),
        Ok(IpAddr::V6(_)) => Some(128),
        Err(_) => None,
    };
    let fits = |most: u8| length.parse::<u8>().is_ok_and(|length| length <= most);
    if written != "default" && !most.is_some_and(fits) {
        let message = format!("no route goes to {written:?}");
        let hint = "write default, an address or a CIDR, as 10.20.0.0/16".to_owned();
        note(gathered, &node.place, message, Some(hint));
    }
    Some(written.to_owned())
}
