//! `signature:`.

use serde_json::{Map, Value};

use super::{
    cluster::calico::felix_spec,
    fields::{list, note, regex, word},
    timeline::only_entry,
};
use crate::{
    case::{Sign, Symptom, Which},
    diagnostic::Gathered,
    language::{Choice, Field, Kind, optional, words},
    names::AgentName,
    yaml::Node,
};

/// A list of signs.
pub(super) const SIGNATURE: Kind = Kind::List(&Kind::Any(&[SYMPTOM, Kind::OneOf(&SIGN)]));

const SYMPTOM: Kind = Kind::Word(|| words(&Symptom::ALL));
const PLAIN: Kind = Kind::Any(&[SYMPTOM, Kind::OneOf(&PLAIN_SIGN)]);

static SIGN: Choice = Choice {
    called: "a sign",
    doc: "Something that is seen of a node, or is not.",
    words: || {
        PLAIN_SIGNS
            .iter()
            .map(|it| &it.0)
            .chain(&OF_OTHERS)
            .collect()
    },
    beside: &[],
};

static PLAIN_SIGN: Choice = Choice {
    called: "a plain sign",
    doc: "Something that is seen of a node.",
    words: || PLAIN_SIGNS.iter().map(|it| &it.0).collect(),
    beside: &[],
};

type Read = fn(&Gathered, &Node) -> Option<Sign>;

const fn sign_of(word: &'static str, kind: Kind, doc: &'static str, read: Read) -> (Field, Read) {
    (optional(word, kind, doc), read)
}

static PLAIN_SIGNS: [(Field, Read); 7] = [
    sign_of(
        "kube-proxy-logs",
        Kind::Text,
        "An entry of kube-proxy's log matches this regular expression.",
        |gathered, node| logged(gathered, node, AgentName::KubeProxy),
    ),
    sign_of(
        "felix-logs",
        Kind::Text,
        "An entry of Felix's log matches this regular expression.",
        |gathered, node| logged(gathered, node, AgentName::Felix),
    ),
    sign_of(
        "rule",
        Kind::Text,
        "A rule of iptables matches this regular expression: its table, its chain and its text, as `nat KUBE-SERVICES -d 10.96.0.10/32 … -j …`; or a chain, as `nat KUBE-SERVICES`.",
        |gathered, node| rule(gathered, node, Which::Iptables),
    ),
    sign_of(
        "counted",
        Kind::Text,
        "A rule of iptables that has counted packets matches it, likewise.",
        |gathered, node| rule(gathered, node, Which::Counted),
    ),
    sign_of(
        "nft-rule",
        Kind::Text,
        "A rule, or a chain, of nftables' own tables matches it, likewise: `kube-proxy services ip daddr …`.",
        |gathered, node| rule(gathered, node, Which::Nft),
    ),
    sign_of(
        "object",
        Kind::Object,
        "A Kubernetes object that has these, its `kind` among them, whatever else it has. Of `null` it has anything.",
        |gathered, node| Some(Sign::Object(object(gathered, node)?)),
    ),
    sign_of(
        "felix",
        Kind::Felix,
        "FelixConfiguration `default` whose spec has these, whatever else it has.",
        |gathered, node| Some(Sign::Felix(felix_spec(gathered, node)?)),
    ),
];

static OF_OTHERS: [Field; 2] = [
    optional("any", Kind::NonEmpty(&PLAIN), "One of these is seen."),
    optional("not", PLAIN, "This is not seen."),
];

/// The signs of an incident.
pub(super) fn read(gathered: &Gathered, node: &Node) -> Option<Vec<Sign>> {
    list(gathered, node, "signature", |item| sign(gathered, item))
}

fn sign(gathered: &Gathered, node: &Node) -> Option<Sign> {
    let other = |word: &str| node.get(word).filter(|_| node.len() == 1);
    if let Some(signs) = other("any") {
        let signs = list(gathered, signs, "any", |item| {
            plain(gathered, item, &PLAIN_SIGN)
        })?;
        return Some(Sign::Any(signs));
    }
    match other("not") {
        Some(sign) => Some(Sign::Not(Box::new(plain(gathered, sign, &PLAIN_SIGN)?))),
        None => plain(gathered, node, &SIGN),
    }
}

fn plain(gathered: &Gathered, node: &Node, choice: &Choice) -> Option<Sign> {
    if node.text().is_some() {
        return word(gathered, node, "a symptom", &Symptom::ALL).map(Sign::Found);
    }
    let (which, entry) = only_entry(gathered, node, choice)?;
    let (_, read) = PLAIN_SIGNS.get(which)?;
    read(gathered, &entry.node)
}

fn logged(gathered: &Gathered, node: &Node, agent: AgentName) -> Option<Sign> {
    let matches = regex(gathered, node, "what is logged")?;
    Some(Sign::Logged { agent, matches })
}

fn rule(gathered: &Gathered, node: &Node, which: Which) -> Option<Sign> {
    let matches = regex(gathered, node, "a rule")?;
    Some(Sign::Rule { matches, which })
}

fn object(gathered: &Gathered, node: &Node) -> Option<Map<String, Value>> {
    let named = node.get("kind").and_then(Node::text);
    match node.to_json() {
        Value::Object(object) if named.is_some() => Some(object),
        _ => {
            let hint = Some("write `{ kind: Service, spec: { … } }`".to_owned());
            note(
                gathered,
                &node.place,
                "an object is a mapping with a kind",
                hint,
            );
            None
        }
    }
}
