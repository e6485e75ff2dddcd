//! What is seen of a node in an incident. By these signs `chainbreak diagnose` says which scenario a node is like.

use std::fmt;

use serde_json::{Map, Value};

use super::Symptom;
use crate::names::AgentName;

/// Something that is seen of a node, or is not.
#[derive(Debug, Clone, PartialEq)]
pub enum Sign {
    /// What does not fit together.
    Found(Symptom),
    /// An entry of an agent's log that matches.
    Logged {
        /// Whose log.
        agent: AgentName,
        /// A regular expression.
        matches: String,
    },
    /// A rule that matches: its table, its chain and its text, with a space between them; or a chain, by its table and its name.
    Rule {
        /// A regular expression.
        matches: String,
        /// Whether of which tables, and whether it has counted packets.
        which: Which,
    },
    /// A Kubernetes object that has these, its kind among them, whatever else it has; of `null` anything.
    Object(Map<String, Value>),
    /// FelixConfiguration `default` whose spec has these, whatever else it has.
    Felix(Map<String, Value>),
    /// One of these.
    Any(Vec<Self>),
    /// Not this.
    Not(Box<Self>),
}

/// Rules of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// iptables'.
    Iptables,
    /// iptables', that have counted packets.
    Counted,
    /// Those of nftables' own tables.
    Nft,
}

impl Sign {
    /// Whether it is that symptom, or may be.
    pub fn is(&self, symptom: Symptom) -> bool {
        match self {
            Self::Found(own) => *own == symptom,
            Self::Any(signs) => signs.iter().any(|sign| sign.is(symptom)),
            _ => false,
        }
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(symptom) => symptom.fmt(f),
            Self::Logged { agent, matches } => write!(f, "entry of {agent} /{matches}/"),
            Self::Rule { matches, which } => {
                let which = match which {
                    Which::Iptables => "rule",
                    Which::Counted => "rule with packets",
                    Which::Nft => "rule of nftables",
                };
                write!(f, "{which} /{matches}/")
            }
            Self::Object(object) => {
                let of = |key: &str| object.get(key).and_then(Value::as_str);
                let mut rest = object.clone();
                rest.remove("kind");
                let kind = of("kind").unwrap_or("object");
                write!(f, "{kind} with {}", Value::Object(rest))
            }
            Self::Felix(spec) => {
                let spec = Value::Object(spec.clone());
                write!(f, "FelixConfiguration with {spec}")
            }
            Self::Any(signs) => {
                let signs: Vec<String> = signs.iter().map(Self::to_string).collect();
                f.write_str(&signs.join(" or "))
            }
            Self::Not(sign) => write!(f, "no {sign}"),
        }
    }
}
