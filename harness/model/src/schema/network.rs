//! What lies around the agents: hosts, kernel settings, a third party's CNI.

use serde_json::{Value, json};

use super::{Part, integer, list, name, named, needs, object, pattern, text, words_of};
use crate::read::words;

pub(super) fn sysctls() -> Value {
    json!({
        "description": "Kernel settings of every node, set before agents start.",
        "type": "object",
        "propertyNames": { "pattern": "^net\\.[A-Za-z0-9._/-]+$" },
        "additionalProperties": { "type": ["string", "integer"] },
        "examples": [{ "net.netfilter.nf_conntrack_tcp_be_liberal": 1 }]
    })
}

pub(super) fn host_sysctls() -> Value {
    let what =
        "Kernel settings of the machine while the case runs; only with --allow-host-changes.";
    object(what, words::HOST_SYSCTLS, &[], |_| {
        integer("Its value.", (1, i32::MAX as u64))
    })
}

pub(super) fn hosts() -> Value {
    let what = "Hosts outside the cluster, on the nodes' network.";
    let names = list(&name("A host."));
    json!({ "description": what, "anyOf": [names, named(what, &host())] })
}

fn host() -> Value {
    let what = "A host outside the cluster.";
    let mut host = object(what, words::HOST, &[], |field| match field {
        "addresses" => list(&text(
            "An address beside the one that the lab gives it; all nodes and hosts have a route to it.",
        )),
        "routes" => list(&route()),
        _ => integer("The port at which nginx answers there.", (1, 65535)),
    });
    host["type"] = json!(["object", "null"]);
    host
}

fn route() -> Value {
    object(
        "A route.",
        words::HOST_ROUTE,
        words::HOST_ROUTE,
        |field| match field {
            "to" => network("A network, or one address."),
            _ => text("The next hop: node/n1, host/NAME or an address."),
        },
    )
}

pub(super) fn cni(part: Part) -> Value {
    let what = "What the CNI does that owns the pods' interfaces.";
    object(
        what,
        words::CNI,
        needs(&["profile"], part),
        |field| match field {
            "profile" => words_of("Whose rules it writes.", &["aws-vpc"]),
            "external-snat" => json!({
                "description": "AWS_VPC_K8S_CNI_EXTERNALSNAT: nodes translate no addresses.",
                "type": "boolean"
            }),
            "randomize-snat" => words_of(
                "AWS_VPC_K8S_CNI_RANDOMIZESNAT; prng when not given.",
                &["prng", "hashrandom", "none"],
            ),
            _ => list(&network(
                "A network to which pods go with their own address.",
            )),
        },
    )
}

fn network(what: &str) -> Value {
    pattern(what, "^[0-9a-fA-F.:]+(/[0-9]+)?$", "10.30.0.0/16")
}
