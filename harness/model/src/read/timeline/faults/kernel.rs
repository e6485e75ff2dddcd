//! What happens to a node's kernel: settings, and the conntrack table.

use indexmap::IndexMap;

use super::{
    super::{
        super::{
            fields::{entries, note, number, text},
            network::SETTING,
            traffic::PLACE,
            words::NODE,
        },
        Word,
    },
    FOR, Reading, fault,
};
use crate::{
    case::{Entries, Fault, Step},
    diagnostic::Gathered,
    language::{Kind, Mapping, needed, optional},
    yaml::Node,
};

/// No kernel has room for more.
const ENTRIES: (u64, u64) = (1, 100_000_000);

pub(in super::super) static STEPS: [Word; 2] = [
    fault(
        "sysctl",
        &SYSCTL,
        "Kernel settings of a network namespace have these values.",
        |it| it.sysctl(),
    ),
    fault(
        "fill-conntrack",
        &FILL_CONNTRACK,
        "The conntrack table holds more established TCP connections, which live as long as the node's `nf_conntrack_tcp_timeout_established` says at that moment.",
        |it| it.fill(),
    ),
];

static SYSCTL: Mapping = Mapping {
    called: "sysctl",
    doc: "",
    fields: &[&[
        optional("at", PLACE, "Where; every node when not given."),
        needed(
            "set",
            Kind::Settings(SETTING),
            "Names, which begin with `net.`, and values.",
        ),
        FOR,
    ]],
};

static FILL_CONNTRACK: Mapping = Mapping {
    called: "fill-conntrack",
    doc: "",
    fields: &[&[
        optional("node", NODE, "Where; every node when not given."),
        needed(
            "entries",
            Kind::Any(&[Kind::Exactly("full"), Kind::Whole(ENTRIES.0, ENTRIES.1)]),
            "How many; `full`: until the kernel refuses one, and whatever room there is later, too.",
        ),
        FOR,
    ]],
};

impl Reading<'_> {
    fn sysctl(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.maybe("at", |node| self.place(node));
        let set = self.fields.need("set", |node| settings(gathered, node));
        let fault = || Some(Fault::Sysctl { at: at?, set: set? });
        self.lasting(fault())
    }

    fn fill(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let node = self.node();
        let entries = self.fields.need("entries", |node| match node.text() {
            Some("full") => Some(Entries::Full),
            _ => number(gathered, node, "entries", ENTRIES).map(Entries::Number),
        });
        let fault = || {
            Some(Fault::FillConntrack {
                node: node?,
                entries: entries?,
            })
        };
        self.lasting(fault())
    }
}

/// Kernel settings that a network namespace has of its own. Others are the whole machine's.
fn settings(gathered: &Gathered, node: &Node) -> Option<IndexMap<String, String>> {
    let mut set = IndexMap::new();
    for (name, entry) in entries(gathered, node, "set")? {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
        if !name.starts_with("net.") || !name.bytes().all(allowed) || name.contains("..") {
            let message = format!("{name:?} is no setting of a network namespace");
            let hint = "they begin with net., as net.ipv4.ip_forward".to_owned();
            note(gathered, &entry.key, message, Some(hint));
        }
        let value = text(gathered, &entry.node, "a setting's value")?;
        set.insert(name.clone(), value.to_owned());
    }
    if set.is_empty() {
        note(gathered, &node.place, "nothing is set", None);
    }
    Some(set)
}
