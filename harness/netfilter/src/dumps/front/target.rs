//! What a rule does.

use super::listed;
use crate::{Family, words::number};

/// As iptables saves it; nothing where it is not known.
pub(super) fn read(words: &[&str], family: Family) -> Option<String> {
    Some(match words {
        // It counts.
        [] => String::new(),
        [end @ ("accept" | "drop" | "return")] => format!("-j {}", end.to_uppercase()),
        ["jump", chain] => format!("-j {chain}"),
        ["goto", chain] => format!("-g {chain}"),
        ["notrack"] => "-j CT --notrack".to_owned(),
        ["mark", "set", value @ ..] if value != ["ct", "mark"] => {
            format!("-j MARK {}", marked(value)?)
        }
        ["dnat", "to", to, how @ ..] => format!("-j DNAT --to-destination {to}{}", flags(how)?),
        ["snat", "to", to, how @ ..] => format!("-j SNAT --to-source {to}{}", flags(how)?),
        ["masquerade", "to", ports, how @ ..] => {
            let ports = ports.strip_prefix(':')?;
            format!("-j MASQUERADE --to-ports {ports}{}", flags(how)?)
        }
        ["masquerade", how @ ..] => format!("-j MASQUERADE{}", flags(how)?),
        ["redirect", "to", ports, how @ ..] => {
            let ports = ports.strip_prefix(':')?;
            format!("-j REDIRECT --to-ports {ports}{}", flags(how)?)
        }
        ["reject", with @ ..] => format!("-j REJECT --reject-with {}", rejected(with, family)?),
        ["tcp", "option", "maxseg", "size", "set", "rt", "mtu"] => {
            "-j TCPMSS --clamp-mss-to-pmtu".to_owned()
        }
        ["tcp", "option", "maxseg", "size", "set", size] => format!("-j TCPMSS --set-mss {size}"),
        ["log", how @ ..] => logged(how)?.to_owned(),
        ["mark", "set", "ct", "mark"] => "-j CONNMARK --restore-mark".to_owned(),
        ["ct", "mark", "set", "mark"] => "-j CONNMARK --save-mark".to_owned(),
        ["ct", "mark", "set", value] => {
            format!("-j CONNMARK {}", listed::marked("set", value)?)
        }
        ["redirect", how @ ..] => format!("-j REDIRECT{}", flags(how)?),
        _ => return None,
    })
}

/// `random,persistent`.
fn flags(words: &[&str]) -> Option<String> {
    let options = words.iter().filter(|word| **word != ",");
    let options = options.map(|word| match *word {
        "random" => Some(" --random"),
        "fully-random" => Some(" --random-fully"),
        "persistent" => Some(" --persistent"),
        _ => None,
    });
    options.collect()
}

/// `mark & 0xffff0fff ^ 0x3000`, as the value and the bits that it is for.
fn marked(words: &[&str]) -> Option<String> {
    match words {
        [value] => listed::marked("set", value),
        ["mark", "|", bits] => listed::marked("or", bits),
        ["mark", "^", bits] => listed::marked("xor", bits),
        ["mark", "&", kept] => listed::marked("and", kept),
        ["mark", "&", kept, "^", value] => {
            let mask = !number(kept)?;
            listed::marked("xset", &format!("{value}/{mask:#x}"))
        }
        _ => None,
    }
}

/// `prefix "calico-drop" group 1`. What is logged decides nothing.
fn logged(mut words: &[&str]) -> Option<&'static str> {
    let mut target = "-j LOG";
    while let [option, _, rest @ ..] = words {
        match *option {
            "group" => target = "-j NFLOG",
            "prefix" | "level" | "flags" | "snaplen" | "queue-threshold" => {}
            _ => return None,
        }
        words = rest;
    }
    words.is_empty().then_some(target)
}

/// `with tcp reset`, `with icmp type host-prohibited`. Nothing is said of iptables' default.
fn rejected(with: &[&str], family: Family) -> Option<String> {
    let of_family = match family {
        Family::V4 => "icmp-",
        Family::V6 => "icmp6-",
    };
    Some(match with {
        [] => format!("{of_family}port-unreachable"),
        ["with", "tcp", "reset"] => "tcp-reset".to_owned(),
        ["with", "icmp", "type", "admin-prohibited"] => "icmp-admin-prohibited".to_owned(),
        ["with", "icmpv6", "type", "admin-prohibited"] => "icmp6-adm-prohibited".to_owned(),
        ["with", "icmp", "type", "prot-unreachable"] => "icmp-proto-unreachable".to_owned(),
        ["with", "icmp" | "icmpv6", "type", reason] => {
            format!("{of_family}{}", reason.trim_start_matches("icmp-"))
        }
        _ => return None,
    })
}
