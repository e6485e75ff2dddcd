//! An answer in words and as a document.

use chainbreak_netfilter::{dumps::Kind, walk::Walk};
use serde_json::{Value, json};

use super::{Known, trace::Traced};

/// What is answered.
pub(super) struct Told {
    pub(super) known: Known,
    pub(super) missing: Option<Vec<Kind>>,
    /// One, unless a command was at work at that moment.
    pub(super) ways: Vec<Way>,
    /// What became of a real one.
    pub(super) traced: Option<Traced>,
}

/// A packet's ways under one premise.
pub(super) struct Way {
    pub(super) premise: Option<String>,
    pub(super) walk: Walk,
}

impl Told {
    pub(super) fn human(&self) -> String {
        let mut out = String::new();
        let Some(first) = self.ways.first() else {
            return out;
        };
        let packet = &first.walk.packet;
        let from = match &packet.input {
            Some(interface) => format!("received by {interface}"),
            None => "made on the node".to_owned(),
        };
        out.extend([packet.to_string().as_str(), ", ", &from]);
        if let Some(at) = &self.known.at {
            out.extend([", ", at]);
        }
        out.push('\n');
        for way in &self.ways {
            if let Some(premise) = &way.premise {
                out.extend(["\nif ", premise, ":\n"]);
            }
            out.push_str(&lines(&way.walk));
        }
        if let Some(traced) = &self.traced {
            out.push_str(&traced.human(&first.walk));
        }
        let about = self.known.about.iter().cloned();
        let notes: Vec<String> = about.chain(self.lacks()).collect();
        for note in notes {
            out.extend(["\n", &note, "\n"]);
        }
        out
    }

    /// What is not known for want of a dump.
    fn lacks(&self) -> Option<String> {
        let missing = self.missing.iter().flatten();
        let missing: Vec<String> = missing.map(|kind| format!("`{kind}`")).collect();
        let words = format!("Not {}, and so not known: ", self.known.among);
        (!missing.is_empty()).then(|| format!("{words}{}", missing.join(", ")))
    }

    /// The first of the walks as it is told, and beside it what else there is to say.
    pub(super) fn document(&self) -> Value {
        let mut told = self.ways.iter().map(|way| {
            let mut told = way.walk.told();
            if let Some(premise) = &way.premise {
                told["if"] = json!(premise);
            }
            told
        });
        let mut document = told.next().unwrap_or_default();
        let otherwise: Vec<Value> = told.collect();
        let missing = self.missing.iter().flatten().map(ToString::to_string);
        document["missing"] = missing.collect();
        if let Some(at) = &self.known.at {
            document["at"] = json!(at);
            document["about"] = json!(self.known.about);
        }
        if let Some((traced, way)) = self.traced.as_ref().zip(self.ways.first()) {
            document["traced"] = traced.document(&way.walk);
        }
        if !self.known.sure || !otherwise.is_empty() {
            document["decided"] = json!(false);
        }
        if !otherwise.is_empty() {
            document["otherwise"] = json!(otherwise);
        }
        document
    }
}

/// What becomes of the packet, and the tree of its ways.
fn lines(walk: &Walk) -> String {
    let mut out = "\n".to_owned();
    for end in walk.ends() {
        out.extend(["  ", &end, "\n"]);
    }
    out.push('\n');
    for (depth, line) in walk.tree() {
        out.extend(["  ".repeat(depth + 1).as_str(), &line, "\n"]);
    }
    out
}
