//! A rule as an interpreter wants it: conditions and actions in order.

use std::{net::IpAddr, sync::Arc};

use super::{
    elements::{Elements, Field},
    matches::Match,
};

/// A rule, read once.
#[derive(Debug, Clone)]
pub(super) struct Indexed {
    /// In order. A rule of iptables has its action last.
    pub(super) parts: Vec<Part>,
    /// As it was printed.
    pub(super) text: String,
}

/// A part of a rule.
#[derive(Debug, Clone)]
pub(super) enum Part {
    If(Match),
    Do(Action),
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Only counted or told.
    Count,
    Accept,
    Drop,
    Reject(String),
    Return,
    /// To the chain of this number, and back.
    Jump(usize),
    /// To the chain of this number.
    Goto(usize),
    /// The mark becomes `mark & !clear ^ flip`.
    Mark {
        clear: u32,
        flip: u32,
    },
    /// The same with the connection's mark.
    ConnectionMark {
        clear: u32,
        flip: u32,
    },
    /// The connection's mark becomes the packet's, under masks.
    SaveMark {
        packet: u32,
        connection: u32,
    },
    /// The packet's mark becomes the connection's, under masks.
    RestoreMark {
        packet: u32,
        connection: u32,
    },
    Untrack,
    /// To this address and port; what is none stays.
    Dnat(Option<IpAddr>, Option<u16>),
    /// Each of these is as probable as the others.
    DnatToOneOf(Vec<(IpAddr, Option<u16>)>),
    Snat(Option<IpAddr>, Port),
    /// To an address of the output interface.
    Masquerade(Port),
    /// To the node itself.
    Redirect(Option<u16>),
    /// What an element of a map says.
    Verdict(Vec<Field>, Arc<Elements>),
    /// Each of these is as probable as the others.
    OneOf(Vec<Action>),
    /// What it does is not known here: the words.
    Unknown(String),
}

/// The source port after SNAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    /// As it was, unless another connection has it.
    Kept,
    /// Drawn by the kernel.
    Drawn,
    /// This one.
    Is(u16),
}
