//! The schema of a promise.

use serde_json::{Value, json};

use super::{Part, integer, needs, object, one_of, pattern, text, time, words_of};
use crate::read::words;

/// A promise: a mapping with one entry, which says what kind it is.
pub(super) fn promise(part: Part) -> Value {
    one_of("A promise.", words::PROMISES, |word| match word {
        "available" => kind(
            "Requests are answered.",
            words::AVAILABLE,
            needs(&["traffic"], part),
        ),
        "no-log" => log("No entry of an agent's log matches.", part),
        "has-log" => log("Some entry of an agent's log matches.", part),
        "has-rule" => kind(
            "A rule or a chain is there.",
            words::HAS_RULE,
            needs(&["chain"], part),
        ),
        "has-element" => kind(
            "An element of a set or map of nftables is there.",
            words::HAS_ELEMENT,
            needs(&["table", "set", "element"], part),
        ),
        "counter" => kind(
            "A counter of the kernel rises by so much.",
            words::COUNTER,
            &[],
        ),
        "source" => kind(
            "The server sees this client address in every request that it answers.",
            words::SOURCE,
            needs(&["traffic", "is"], part),
        ),
        "source-ports" => kind(
            "The server sees a client port of this range in every request that it answers.",
            words::SOURCE_PORTS,
            needs(&["traffic", "within"], part),
        ),
        "balance" => kind(
            "Requests are spread evenly over the endpoints, as far as chance allows.",
            words::BALANCE,
            needs(&["traffic", "over"], part),
        ),
        "resets" => resets(part),
        _ => recovers(part),
    })
}

fn log(what: &str, part: Part) -> Value {
    object(
        what,
        words::LOG,
        needs(&["agent", "matches"], part),
        |field| match field {
            "matches" => text("A regular expression (Rust's syntax)."),
            _ => field_of(field),
        },
    )
}

fn resets(part: Part) -> Value {
    kind(
        "So many connections are reset.",
        words::RESETS,
        needs(&["traffic"], part),
    )
}

fn recovers(part: Part) -> Value {
    let what = "Some time after a mark, every request is answered.";
    object(
        what,
        words::RECOVERS,
        needs(&["traffic", "after", "within"], part),
        |field| match field {
            "within" => time("The time."),
            _ => field_of(field),
        },
    )
}

fn kind(what: &str, fields: &'static [&'static str], needed: &'static [&'static str]) -> Value {
    object(what, fields, needed, |field| match (field, fields) {
        ("at-least", fields) if fields.contains(&"longest-gap") => pattern(
            "Least share of answered requests; 100% when not given.",
            "^[0-9]+(\\.[0-9]+)?\\s*%$",
            "99.9%",
        ),
        ("within", _) => pattern("Ports.", "^[0-9]+-[0-9]+$", "32768-60999"),
        _ => field_of(field),
    })
}

/// Fields that mean the same in every promise that has them.
fn field_of(field: &str) -> Value {
    match field {
        "traffic" => text("Which traffic."),
        "longest-gap" => time("Longest allowed time without an answer to any request."),
        "agent" => words_of("Whose log.", &["kube-proxy", "felix"]),
        "from" => text("The mark of the timeline with which it begins to be judged."),
        "until" => text("The mark of the timeline up to which it is judged."),
        "during" => text("The step of the timeline, by its name, while which it is judged."),
        "after" => text("The step of the timeline, by its name, or the mark, after which."),
        "at-least" => integer("The least allowed.", (0, u64::MAX)),
        "at-most" => integer("The most allowed.", (0, u64::MAX)),
        "over" => integer("How many endpoints there are.", (2, 1000)),
        "p-at-least" => json!({
            "description": "Least probability that an even spread looks as uneven; 0.001 when not given.",
            "type": "number", "minimum": 0, "maximum": 1
        }),
        "is" => text("client, node/n1, host/NAME, an address or a network as 10.0.1.0/24."),
        "at" => text("Whose: node/n1, pod/NAMESPACE/NAME, host/NAME; every node's when not given."),
        "conntrack" => words_of("A counter of conntrack -S.", words::CONNTRACK),
        "snmp" => text("A counter of /proc/net, as Tcp.OutRsts or TcpExt.TCPTimeouts."),
        "rule" => kind("Packets of the rules that match.", words::RULE, &["chain"]),
        _ => rule_field(field),
    }
}

fn rule_field(field: &str) -> Value {
    match field {
        "service" => text(
            "Of which service: [NAMESPACE/]NAME[:PORT], with the port's name; chain is then service, local, \
             external or firewall, and no table is needed.",
        ),
        "table" => text("Which table: nat, filter, mangle, raw; of nftables any."),
        "chain" => text("The chain that holds it."),
        "jump" => text("Its target; without it and matches the chain itself is asked for."),
        "matches" => {
            text("A regular expression for its text, as iptables-save or nft list prints it.")
        }
        "family" => words_of("Of which packets; ip when not given.", words::RULE_FAMILIES),
        "backend" => words_of(
            "Through which iptables backend; the node's own iptables when not given.",
            &["legacy", "nft", "nftables"],
        ),
        "set" => text("The set or map."),
        "element" => text("As nft list prints it; of a map its key alone will do."),
        "node" => text("On this node; on every one when not given."),
        "always" => truth("At all times; else when its time is over."),
        _ => truth("It is not to be there."),
    }
}

fn truth(what: &str) -> Value {
    json!({ "description": what, "type": "boolean" })
}
