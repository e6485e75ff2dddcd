//! A world and what happens to it: rounds of operations, and a comparison after each round.

use std::fmt;

use serde_json::Value;

use crate::stage::Stage;

/// Something that happens to both places alike.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    /// An object is created or replaced.
    Put(Value),
    /// An object is deleted, if it is there. Kind, namespace and name are enough.
    Delete(Value),
    /// A third party's shell script.
    Harm(&'static Harm),
}

/// What a third party does to the rules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Harm {
    /// What is done.
    pub(crate) what: &'static str,
    /// Run in both places while both kube-proxies are idle. Written for IPv4; other families have it in
    /// their own words.
    pub(crate) script: &'static str,
    /// What both kube-proxies are waited for to say before anything else happens.
    pub(crate) noticed_by: Option<&'static str>,
}

/// Rounds of operations. The first one's happen before the kube-proxies are started.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sequence {
    pub(crate) stage: Stage,
    pub(crate) rounds: Vec<Vec<Operation>>,
}

impl Sequence {
    /// How many operations there are.
    pub(crate) fn operations(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.stage)?;
        for (number, round) in self.rounds.iter().enumerate() {
            let when = if number == 0 {
                " # before the start"
            } else {
                ""
            };
            writeln!(f, "round {number}:{when}")?;
            for operation in round {
                match operation {
                    Operation::Put(object) => writeln!(f, "- put: {object}")?,
                    Operation::Delete(object) => {
                        writeln!(
                            f,
                            "- delete: {} {}",
                            object["kind"], object["metadata"]["name"]
                        )?;
                    }
                    Operation::Harm(harm) => {
                        writeln!(f, "- harm: {} # {}", harm.what, harm.script)?;
                    }
                }
            }
        }
        Ok(())
    }
}
