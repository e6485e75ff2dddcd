//! Targets of iptables, read into actions.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use super::{
    matches::Masked,
    parse::Clause,
    rules::{Action, Port},
};
use crate::words::number;

/// What `-j` or `-g` and the options after it do; a rule without target counts.
pub(super) fn action(clauses: &[Clause<'_>], chains: &BTreeMap<String, usize>) -> Action {
    let Some((target, options)) = clauses.split_first() else {
        return Action::Count;
    };
    let name = target.value().unwrap_or_default();
    let goes = matches!(&*target.option, "-g" | "--goto");
    match chains.get(name) {
        Some(&chain) if goes => Action::Goto(chain),
        Some(&chain) => Action::Jump(chain),
        None => known(name, options).unwrap_or_else(|| Action::Unknown(words(clauses))),
    }
}

fn words(clauses: &[Clause<'_>]) -> String {
    let words: Vec<String> = clauses.iter().map(Clause::text).collect();
    words.join(" ")
}

fn known(name: &str, options: &[Clause<'_>]) -> Option<Action> {
    let value = |option: &str| {
        let found = options.iter().find(|it| it.option == option)?;
        found.value()
    };
    let has = |option: &str| options.iter().any(|it| it.option == option);
    Some(match name {
        "ACCEPT" => Action::Accept,
        "DROP" => Action::Drop,
        "RETURN" => Action::Return,
        "REJECT" => Action::Reject(
            value("--reject-with")
                .unwrap_or("icmp-port-unreachable")
                .to_owned(),
        ),
        "LOG" | "NFLOG" | "TRACE" => Action::Count,
        "MARK" => {
            let (clear, flip) = mark(options)?;
            Action::Mark { clear, flip }
        }
        "CONNMARK" => connmark(options)?,
        "NOTRACK" => Action::Untrack,
        "CT" if has("--notrack") => Action::Untrack,
        "DNAT" => {
            let (address, port) = end(value("--to-destination")?)?;
            Action::Dnat(address, port)
        }
        "SNAT" => {
            let (address, port) = end(value("--to-source")?)?;
            Action::Snat(address, source_port(port, options))
        }
        "MASQUERADE" => {
            let port = match value("--to-ports") {
                Some(port) => Some(port.parse().ok()?),
                None => None,
            };
            Action::Masquerade(source_port(port, options))
        }
        "REDIRECT" => match value("--to-ports") {
            Some(port) => Action::Redirect(Some(port.parse().ok()?)),
            None => Action::Redirect(None),
        },
        _ => return None,
    })
}

fn source_port(port: Option<u16>, options: &[Clause<'_>]) -> Port {
    let drawn = |it: &Clause<'_>| matches!(&*it.option, "--random" | "--random-fully");
    match port {
        Some(port) => Port::Is(port),
        None if options.iter().any(drawn) => Port::Drawn,
        None => Port::Kept,
    }
}

/// What of a mark is cleared, and what is flipped then (Linux 6.18, `xt_mark.c`).
fn mark(options: &[Clause<'_>]) -> Option<(u32, u32)> {
    let [option] = options else {
        return None;
    };
    let value = option.value()?;
    Some(match &*option.option {
        "--set-xmark" => {
            let Masked { value, mask } = Masked::parse(value)?;
            (mask, value)
        }
        "--set-mark" => {
            let Masked { value, mask } = Masked::parse(value)?;
            (value | mask, value)
        }
        "--or-mark" => (number(value)?, number(value)?),
        "--and-mark" => (!number(value)?, 0),
        "--xor-mark" => (0, number(value)?),
        _ => return None,
    })
}

fn connmark(options: &[Clause<'_>]) -> Option<Action> {
    let mask = |option: &str| {
        let found = options.iter().find(|it| it.option == option);
        found.map_or(Some(u32::MAX), |it| number(it.value()?))
    };
    let [first, ..] = options else {
        return None;
    };
    let (packet, connection) = match options.iter().find(|it| it.option == "--mask") {
        Some(both) => (number(both.value()?)?, number(both.value()?)?),
        None => (mask("--nfmask")?, mask("--ctmask")?),
    };
    match &*first.option {
        "--save-mark" => Some(Action::SaveMark { packet, connection }),
        "--restore-mark" => Some(Action::RestoreMark { packet, connection }),
        _ => {
            let (clear, flip) = mark(options)?;
            Some(Action::ConnectionMark { clear, flip })
        }
    }
}

/// Reads `10.0.0.1`, `10.0.0.1:80`, `:80` or `[fd00::1]:80`. Ranges are chosen from by a hash, which is not known
/// here.
pub(super) fn end(text: &str) -> Option<(Option<IpAddr>, Option<u16>)> {
    if let Some(port) = text.strip_prefix(':') {
        return Some((None, Some(port.parse().ok()?)));
    }
    if let Ok(end) = text.parse::<SocketAddr>() {
        return Some((Some(end.ip()), Some(end.port())));
    }
    let address = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address = address.unwrap_or(text).parse().ok()?;
    Some((Some(address), None))
}
