//! The steps of the timeline.

use chainbreak_probe::wire::craft::Segment;
use serde_json::{Value, json};

use super::{PLACE, felix_spec, integer, name, object, one_of, pattern, text, time, words_of};
use crate::{case::Dataplane, read::words};

/// A step of the timeline.
pub(super) fn step() -> Value {
    let mut step = one_of("A step.", words::STEPS, |word| match word {
        "settle" => time("Let things be for a while."),
        "mark" => name("Gives this moment a name that promises can refer to."),
        "churn" => churn(),
        "felix" => felix_spec("Merge this into FelixConfiguration default's spec."),
        "apply" => json!({
            "description": "Apply objects: files beside the scenario, or objects written here.",
            "type": "array", "minItems": 1, "items": { "type": ["string", "object"] }
        }),
        "delete" => object(
            "Delete an object.",
            words::DELETE,
            &["kind", "name"],
            |field| match field {
                "namespace" => text("Its namespace; default when not given."),
                _ => text("As in its manifest."),
            },
        ),
        "upgrade" => upgrade(),
        "switch" => object(
            "Felix programs with other means from now on, on every node; it restarts for that.",
            words::SWITCH,
            words::SWITCH,
            |_| words_of("With which.", &Dataplane::ALL.map(|(word, _)| word)),
        ),
        fault => self::fault(fault),
    });
    step["properties"][words::STEP_NAME] =
        name("Names the step, so that promises can say during: and after: it.");
    step["maxProperties"] = 2.into();
    step
}

fn upgrade() -> Value {
    let mut upgrade = object(
        "Agents are replaced by these versions, one after the other, node by node.",
        words::UPGRADE,
        &[],
        |field| match field {
            "node" => self::field("node"),
            "calico" => text("The version, as v3.29.7."),
            _ => text("The version, as 1.33 or 1.33.4."),
        },
    );
    upgrade["minProperties"] = 1.into();
    upgrade
}

fn churn() -> Value {
    object(
        "Scale a Deployment through the replica counts, over and over.",
        words::CHURN,
        words::CHURN,
        |field| match field {
            "deployment" => pattern("NAMESPACE/NAME.", "^[^/]+/[^/]+$", "test/nginx"),
            "replicas" => json!({
                "description": "Replica counts, taken in turn.",
                "type": "array", "minItems": 1,
                "items": { "type": "integer", "minimum": 0, "maximum": 1000 }
            }),
            "every" => time("Distance of two changes."),
            _ => time("How long."),
        },
    )
}

/// What a fault or a third party's action is, its fields and those that it needs.
fn fault(word: &str) -> Value {
    let (what, fields, needs): (_, _, &[&str]) = match word {
        "slow" => (
            "An agent's command starts later.",
            words::SLOW,
            &["agent", "command", "by"],
        ),
        "stop" => (
            "An agent's process is gone.",
            words::AGENT_FAULT,
            &["agent"],
        ),
        "pause" => ("An agent does nothing.", words::AGENT_FAULT, &["agent"]),
        "restart" => (
            "An agent's process ends and is started at once.",
            words::RESTART,
            &["agent"],
        ),
        "sysctl" => (
            "Kernel settings have these values.",
            words::SYSCTL,
            &["set"],
        ),
        "fill-conntrack" => (
            "The conntrack table holds more established connections.",
            words::FILL_CONNTRACK,
            &["entries"],
        ),
        "link-down" => ("An interface is down.", words::LINK_DOWN, &["at"]),
        "loss" => (
            "A share of the packets that arrive is lost.",
            words::LOSS,
            &["at", "share"],
        ),
        "craft" => (
            "Segments that nobody sent pass among those of some traffic.",
            words::CRAFT,
            &["traffic", "segment"],
        ),
        "route" => ("Packets take this way.", words::ROUTE, &["at", "to"]),
        "lock" => ("Somebody holds the lock of iptables.", words::LOCK, &[]),
        "flush" => (
            "A third party deletes all rules of a chain or a table.",
            words::FLUSH,
            &["table"],
        ),
        "delete-rule" => (
            "A third party deletes rules.",
            words::DELETE_RULE,
            &["table", "chain", "matches"],
        ),
        _ => ("A third party's commands.", words::RUN, &["command"]),
    };
    object(what, fields, needs, |name| match (word, name) {
        ("slow", "command") => words_of(
            "Which command; iptables-restore is that of both iptables backends. taking-changes is a point in \
             kube-proxy's model.",
            words::COMMANDS,
        ),
        _ => field(name),
    })
}

/// A field of a fault. Fields of the same name are the same.
fn field(field: &str) -> Value {
    match field {
        "agent" => words_of("Which agent.", &["kube-proxy", "felix"]),
        "node" => pattern("Where; every node when not given.", "^n[0-9]+$", "n1"),
        "at" => pattern(
            "Where: pod/NAME, pod/NAMESPACE/NAME, node/n1 or host/NAME; every node when not given.",
            PLACE,
            "node/n1",
        ),
        "traffic" => name("Into whose connections they are sent."),
        "segment" => words_of(
            "What: data that no window reaches to, a reset that is believed, or a handshake in other \
             sequence numbers that only conntrack believes.",
            &Segment::ALL.map(Segment::as_str),
        ),
        "from" => pattern(
            "Where they are sent: pod/NAME, pod/NAMESPACE/NAME, node/n1 or host/NAME; from the backends' pods \
             when not given, a stray handshake from their nodes.",
            PLACE,
            "node/n1",
        ),
        "every" => time("Distance of two turns; 200ms when not given."),
        "by" => time("How much later each of them starts."),
        "for" => time("How long; until the timeline is over when not given."),
        "set" => json!({
            "description": "Names, which begin with net., and values.",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": { "type": ["string", "number"] }
        }),
        "entries" => json!({
            "description": "How many; full: as many as fit in.",
            "anyOf": [{ "const": "full" }, integer("How many.", (1, 100_000_000))]
        }),
        "interface" => text("Its name; eth0 when not given."),
        "share" => pattern(
            "The share that is lost.",
            "^[0-9]+(\\.[0-9]+)?\\s*%$",
            "30%",
        ),
        "to" => text("default, an address or a CIDR."),
        "via" => text("The address of the next hop."),
        "dev" => text("The interface."),
        "table" => text("Which table."),
        "chain" => text("Which chain."),
        "matches" => text("A regular expression (Rust's syntax) that finds the rules."),
        "backend" => words_of(
            "Whose rules: iptables-legacy's, iptables-nft's or nft's; the node's own iptables' \
             when not given.",
            words::BACKENDS,
        ),
        "family" => words_of("Of which packets; ip when not given.", words::RULE_FAMILIES),
        "as" => name("Who does this, as reports say; admin when not given."),
        _ => {
            let mut script = text("A script for sh, or a program and its arguments.");
            script["type"] = json!(["string", "array"]);
            script["items"] = text("A word.");
            script
        }
    }
}
