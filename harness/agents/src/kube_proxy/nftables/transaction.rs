//! The text that `nft -f -` is given, an operation a line, as knftables writes it
//! (sigs.k8s.io/knftables, objects.go).

use std::fmt::{Display, Write as _};

use super::elements::Kind;
use crate::kube_proxy::config::Family;

/// kube-proxy's table.
pub(super) const TABLE: &str = "kube-proxy";

/// Words that differ from family to family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words {
    /// The table's family, and what a match of an address begins with.
    pub(super) ip: &'static str,
    /// The type of an address.
    pub(super) address: &'static str,
    /// Not to this very machine.
    pub(super) not_localhost: &'static str,
}

impl Words {
    pub(super) fn of(family: Family) -> Self {
        match family {
            Family::Ipv4 => Self {
                ip: "ip",
                address: "ipv4_addr",
                not_localhost: "ip daddr != 127.0.0.0/8",
            },
            Family::Ipv6 => Self {
                ip: "ip6",
                address: "ipv6_addr",
                not_localhost: "ip6 daddr != ::1",
            },
        }
    }
}

/// Operations on the table of one family. They happen all at once or not at all.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) words: Words,
    text: String,
}

impl Transaction {
    pub(super) fn new(family: Family) -> Self {
        Self {
            words: Words::of(family),
            text: String::new(),
        }
    }

    /// The input of nft.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn operation(&mut self, verb: &str, kind: &str, rest: impl Display) {
        let ip = self.words.ip;
        writeln!(self.text, "{verb} {kind} {ip} {TABLE}{rest}").expect("a string takes everything");
    }

    /// Makes the table unless it is there.
    pub(super) fn table(&mut self, comment: &str) {
        self.operation("add", "table", format_args!(" {{ comment {comment:?} ; }}"));
    }

    /// Makes a chain, a set or a map unless it is there. `body` stands in braces; without any it is empty.
    pub(super) fn add(&mut self, kind: &str, name: &str, body: &str) {
        if body.is_empty() {
            self.operation("add", kind, format_args!(" {name}"));
        } else {
            self.operation("add", kind, format_args!(" {name} {{ {body} ; }}"));
        }
    }

    /// Empties a chain, a set or a map, which must be there.
    pub(super) fn flush(&mut self, kind: &str, name: &str) {
        self.operation("flush", kind, format_args!(" {name}"));
    }

    /// Deletes a chain, a set or a map, which must be there.
    pub(super) fn delete(&mut self, kind: &str, name: &str) {
        self.operation("delete", kind, format_args!(" {name}"));
    }

    /// A chain that is there and empty afterwards.
    pub(super) fn empty_chain(&mut self, name: &str, body: &str) {
        self.add("chain", name, body);
        self.flush("chain", name);
    }

    /// A rule at the end of a chain.
    pub(super) fn rule(&mut self, chain: &str, rule: impl Display) {
        self.operation("add", "rule", format_args!(" {chain} {rule}"));
    }

    /// The same with a comment.
    pub(super) fn commented_rule(&mut self, chain: &str, rule: impl Display, comment: &str) {
        self.rule(chain, format_args!("{rule} comment {comment:?}"));
    }

    /// An element; that of a map has a value.
    pub(super) fn element(&mut self, name: &str, key: &str, value: &str, comment: Option<&str>) {
        let comment = comment.map_or(String::new(), |it| format!(" comment {it:?}"));
        let value = match value {
            "" => String::new(),
            value => format!(" : {value}"),
        };
        let braces = format_args!(" {name} {{ {key}{comment}{value} }}").to_string();
        self.operation("add", "element", braces);
    }

    /// Deletes an element, which must be there.
    pub(super) fn delete_element(&mut self, name: &str, key: &str) {
        self.operation("delete", "element", format_args!(" {name} {{ {key} }}"));
    }

    /// Empties what elements are in.
    pub(super) fn flush_elements(&mut self, kind: Kind, name: &str) {
        self.flush(kind.word(), name);
    }
}
