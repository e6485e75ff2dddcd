//! The JSON Schema of scenario files, for editors: completion, descriptions, and most mistakes while
//! one types. It is laxer than the reader, which also knows what names refer to.

mod network;
mod promise;
mod step;

use serde_json::{Value, json};

use crate::{
    felix,
    matrix::MatrixKey,
    proxy_config::{FIELDS, Kind},
    read::{NODES, words},
};
use promise::promise;

/// A node, a pod or a host.
const PLACE: &str = "^(pod/[^/]+(/[^/]+)?|node/n[0-9]+|host/[^/]+)$";

/// Whether a mapping stands alone or is laid over another one, as in a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Override,
}

/// The schema, as committed in `scenarios/scenario.schema.json`.
pub fn schema() -> Value {
    let mut schema = object(
        "A scenario: a cluster, what happens in it, what must hold, and the variants that show it.",
        words::SCENARIO,
        &[
            "name", "about", "cluster", "timeline", "promises", "variants",
        ],
        |field| match field {
            "name" => name("Names the scenario; as its file, after the symptom."),
            "about" => text("What breaks, told to an operator."),
            "incident" => list(&text(
                "Where it was reported, as projectcalico/calico#10538.",
            )),
            "seed" => json!({
                "description": "Seed of everything random.", "type": "integer", "minimum": 0
            }),
            "needs" => list(&text("A capability without which the scenario is skipped.")),
            "matrix" => matrix(),
            "variants" => named("What is overridden, and what is expected.", &variant()),
            _ => shared(field, Part::Whole),
        },
    );
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "chainbreak scenario".into();
    let felix = json!({ "type": "object", "propertyNames": { "enum": felix::FIELDS } });
    schema["$defs"] = json!({ "felix": felix });
    schema
}

fn variant() -> Value {
    object(
        "A variant of the scenario.",
        words::VARIANT,
        &["expect"],
        |field| match field {
            "expect" => json!({
                "description": "healthy: every promise is kept; broken: exactly these are not.",
                "anyOf": [
                    { "const": "healthy" },
                    {
                        "type": "object",
                        "properties": { "broken": list(&text("A promise.")) },
                        "required": ["broken"],
                        "additionalProperties": false
                    }
                ]
            }),
            "needs" => list(&text("A capability without which the variant is skipped.")),
            "only" => object(
                "The versions that the variant is about; in others it is skipped.",
                words::ONLY,
                &[],
                |_| text("Comparators joined by commas, as >=1.27 or >=1.26,<1.33."),
            ),
            "kube-proxy" | "calico" | "felix" => or_null(cluster_field(field, Part::Override)),
            _ => or_null(shared(field, Part::Override)),
        },
    )
}

/// Fields of a scenario that a variant can override.
fn shared(field: &str, part: Part) -> Value {
    match field {
        "cluster" => object("What is raised.", words::CLUSTER, &[], |f| {
            cluster_field(f, part)
        }),
        "manifests" => json!({
            "description": "Kubernetes objects: files beside the scenario, or objects written here.",
            "type": "array",
            "items": { "type": ["string", "object"] },
            "examples": [["nginx.yaml"]]
        }),
        "traffic" => named(
            "Requests sent during the run.",
            &removable(traffic(part), part),
        ),
        "timeline" => json!({
            "description": "What happens, one step after the other.",
            "type": "array", "minItems": 1, "items": step::step()
        }),
        _ => named(
            "What is judged while the timeline runs.",
            &removable(promise(part), part),
        ),
    }
}

fn cluster_field(field: &str, part: Part) -> Value {
    match field {
        "nodes" => integer("How many nodes: n1, n2, ….", NODES),
        "ip-families" => json!({
            "description": "Its IP families, the default of services first; IPv4 when not given.",
            "type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": true,
            "items": { "enum": ["IPv4", "IPv6"] }
        }),
        "iptables" => words_of("Which iptables the nodes have.", &["legacy", "nft"]),
        "kube-proxy" => or_none(&kube_proxy(part)),
        "calico" => or_none(&calico(part)),
        "felix" => felix_spec("The spec of FelixConfiguration default."),
        "sysctls" => network::sysctls(),
        "host-sysctls" => network::host_sysctls(),
        "cni" => or_none(&network::cni(part)),
        _ => network::hosts(),
    }
}

fn kube_proxy(part: Part) -> Value {
    let what = "kube-proxy's settings, or none.";
    object(
        what,
        words::KUBE_PROXY,
        needs(&["version"], part),
        |field| match field {
            "mode" => words_of("What it programs services with.", &["iptables", "nftables"]),
            "iptables" => words_of("Which iptables the nodes have.", &["legacy", "nft"]),
            "version" => version("kube-proxy's version.", "^1\\.[0-9]+(\\.[0-9]+)?$", "1.32"),
            "source" => source(),
            "min-sync-period" => {
                time("--iptables-min-sync-period, in nftables mode too; 1s when not given.")
            }
            "sync-period" => {
                time("--iptables-sync-period, in nftables mode too; 30s when not given.")
            }
            "config" => proxy_config(
                "Further settings, as KubeProxyConfiguration has them.",
                FIELDS,
            ),
            _ => time(
                "The model's: the age of the last full sync at which 1.33 and later make another; 1h when not \
                 given, as always in a real one.",
            ),
        },
    )
}

/// Fields of `KubeProxyConfiguration`.
fn proxy_config(what: &str, fields: &[(&str, Kind)]) -> Value {
    let of = |kind: Kind| match kind {
        Kind::Truth => json!({ "type": "boolean" }),
        Kind::Whole(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Kind::Time => json!({ "type": "string", "examples": ["30s"] }),
        Kind::Text => json!({ "type": "string" }),
        Kind::Networks => json!({ "type": "string", "examples": ["", "10.20.0.0/16"] }),
        Kind::NetworkList => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Part(fields) => proxy_config("", fields),
    };
    let properties = fields
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), of(*kind)));
    let properties: serde_json::Map<String, Value> = properties.collect();
    let mut object =
        json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !what.is_empty() {
        object["description"] = json!(what);
    }
    object
}

fn calico(part: Part) -> Value {
    let what = "Calico's settings, or none.";
    object(
        what,
        words::CALICO,
        needs(&["version"], part),
        |field| match field {
            "version" => version("Calico's version.", "^v3\\.[0-9]+(\\.[0-9]+)?$", "v3.28.1"),
            "source" => source(),
            _ => words_of("Who owns the pods' interfaces.", &["calico", "third-party"]),
        },
    )
}

fn source() -> Value {
    text(
        "model, or the real one: build (kube-proxy, of upstream's modules), image (of the version) or image:NAME, or the path of a binary or of an unpacked root file system.",
    )
}

/// The fields of FelixConfiguration's spec, once for the three places that take them.
fn felix_spec(what: &str) -> Value {
    json!({ "description": what, "$ref": "#/$defs/felix" })
}

fn traffic(part: Part) -> Value {
    let needs = needs(&["from", "to", "port", "every"], part);
    object(
        "Requests, sent at a fixed rate.",
        words::TRAFFIC,
        needs,
        |field| match field {
            "from" => pattern(
                "Where requests start: pod/NAME, pod/NAMESPACE/NAME, node/n1 or host/NAME.",
                PLACE,
                "pod/client",
            ),
            "to" => pattern(
                "Where they go: service/NAMESPACE/NAME, pod/NAMESPACE/NAME, \
             node-port/n1/NAMESPACE/NAME or host/NAME.",
                "^((service|pod)/[^/]+/[^/]+|node-port/n[0-9]+/[^/]+/[^/]+|host/[^/]+)$",
                "service/test/web",
            ),
            "port" => integer("The Service's port, or the pod's.", (1, 65535)),
            "protocol" => words_of(
                "HTTP over TCP, or a question and its answer over UDP; tcp when not given.",
                &["tcp", "udp"],
            ),
            "family" => words_of(
                "Which of the target's addresses; its first when not given.",
                &["IPv4", "IPv6"],
            ),
            "every" => time("Distance of two requests."),
            "connections" => words_of(
                "A connection for each request, or one as long as it lives; over UDP a port of the client's. \
                 new when not given.",
                &["new", "kept"],
            ),
            _ => time("When a request counts as timed out; 1s when not given."),
        },
    )
}

fn matrix() -> Value {
    let keys = MatrixKey::ALL.map(|(word, _)| word);
    let one = object(
        "Every combination of these values is a case.",
        &keys,
        &[],
        |_| json!({ "type": "array", "minItems": 1, "items": { "type": ["string", "integer", "number"] } }),
    );
    json!({
        "description": "Every combination of these values is a case; of several matrices those of each.",
        "anyOf": [one, { "type": "array", "minItems": 1, "items": one }]
    })
}

fn needs(fields: &'static [&'static str], part: Part) -> &'static [&'static str] {
    match part {
        Part::Whole => fields,
        Part::Override => &[],
    }
}

fn object(what: &str, fields: &[&str], required: &[&str], schema: impl Fn(&str) -> Value) -> Value {
    let properties: serde_json::Map<String, Value> = fields
        .iter()
        .map(|field| ((*field).to_owned(), schema(field)))
        .collect();
    json!({
        "description": what,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false
    })
}

/// A mapping with one entry, which says by its key what it is.
fn one_of(what: &str, words: &[&str], schema: impl Fn(&str) -> Value) -> Value {
    let mut object = object(what, words, &[], schema);
    object["minProperties"] = 1.into();
    object["maxProperties"] = 1.into();
    object
}

/// A mapping whose keys the scenario makes up.
fn named(what: &str, schema: &Value) -> Value {
    json!({ "description": what, "type": "object", "additionalProperties": schema })
}

fn or_none(schema: &Value) -> Value {
    let what = schema["description"].clone();
    json!({ "description": what, "anyOf": [{ "const": "none" }, schema] })
}

fn removable(schema: Value, part: Part) -> Value {
    match part {
        Part::Whole => schema,
        Part::Override => or_none(&schema),
    }
}

/// With nothing (`null`) allowed for it and for each of its keys, which takes the key away. A list is replaced as
/// a whole, so its items are as ever.
fn or_null(mut schema: Value) -> Value {
    let take = |slot: &mut Value| *slot = or_null(slot.take());
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(take);
    }
    if let Some(named) = schema
        .get_mut("additionalProperties")
        .filter(|it| it.is_object())
    {
        take(named);
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        let typed = choices
            .iter_mut()
            .filter(|choice| choice.get("type").is_some());
        typed.for_each(take);
    } else if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    } else if let Some(of_type) = schema.get_mut("type") {
        *of_type = match of_type.take() {
            Value::Array(types) => types.into_iter().chain(["null".into()]).collect(),
            one => json!([one, "null"]),
        };
    } else {
        schema = json!({ "anyOf": [schema, { "type": "null" }] });
    }
    schema
}

fn list(item: &Value) -> Value {
    json!({ "type": "array", "items": item })
}

fn text(what: &str) -> Value {
    json!({ "description": what, "type": "string", "minLength": 1 })
}

fn name(what: &str) -> Value {
    pattern(what, "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "a-name")
}

fn pattern(what: &str, pattern: &str, example: &str) -> Value {
    json!({ "description": what, "type": "string", "pattern": pattern, "examples": [example] })
}

fn version(what: &str, pattern: &str, example: &str) -> Value {
    // Without quotes YAML reads 1.32 as a number; the reader takes it as written.
    json!({
        "description": what,
        "anyOf": [{ "type": "string", "pattern": pattern }, { "type": "number" }],
        "examples": [example]
    })
}

fn time(what: &str) -> Value {
    pattern(what, "^([0-9]+(\\.[0-9]+)?(us|µs|ms|s|m|h))+$", "5ms")
}

fn integer(what: &str, (low, high): (u64, u64)) -> Value {
    json!({ "description": what, "type": "integer", "minimum": low, "maximum": high })
}

fn words_of(what: &str, words: &[&str]) -> Value {
    json!({ "description": what, "enum": words })
}
