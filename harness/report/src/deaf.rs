//! A Felix that hears nothing of new pods: somebody had conntrack forget its connection to the API, by the Service `kubernetes`. What the API
//! sends next on it is translated by nobody and refused; the API ends it, and Felix, which only listens there, is not told (seen of
//! v3.28.1 and v3.32.1, for 29 s, until it asks of itself).

use std::fmt;

use chainbreak_model::{
    case::{ApiWay, Case},
    event::Command,
    names::{AgentName, NodeName},
};
use serde::Serialize;

use crate::{
    edits::{EditIndex, RuleEdit},
    explain::is_an_agent,
    meanwhile::Dropped,
    text::clock,
};

/// In the rule in which packets of pods end that Felix has heard nothing of (v3.25 to v3.32).
const STRANGERS: &str = "Unknown interface";
/// How `conntrack` is told to forget.
const FORGETS: [&str; 4] = ["-D", "-F", "--delete", "--flush"];

/// Who had conntrack forget it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Deaf {
    /// Who ran the command.
    pub who: String,
    /// The command.
    pub command: String,
    /// Where.
    pub node: NodeName,
    /// When it ended.
    pub at_us: u64,
}

impl fmt::Display for Deaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            who,
            command,
            node,
            at_us,
        } = self;
        write!(
            f,
            "{who} had conntrack forget felix's connection to the API on {node} at {} ({command}), and felix wrote nothing since",
            clock(*at_us)
        )
    }
}

/// Behind packets of strangers that ended by then: the last command of a third party, after which Felix wrote nothing.
pub(crate) fn behind(
    case: &Case,
    index: &EditIndex<'_>,
    dropped: &Dropped,
    until_us: u64,
) -> Option<Deaf> {
    let asks = case.cluster.calico.as_ref()?.api;
    let is_translated = asks == ApiWay::Service && case.cluster.kube_proxy.is_some();
    let is_felixs = dropped.owner == AgentName::Felix.as_str();
    let is_of_strangers = is_felixs && dropped.site.rule.contains(STRANGERS);
    (is_translated && is_of_strangers)
        .then(|| forgotten(index, &dropped.node.as_str().into(), until_us))
        .flatten()
}

fn forgotten(index: &EditIndex<'_>, node: &NodeName, until_us: u64) -> Option<Deaf> {
    let wrote = |edit: &RuleEdit<'_>| edit.is_by(AgentName::Felix) && !edit.changes.is_empty();
    let mut until = index.on(node).rev().filter(|edit| edit.at_us <= until_us);
    let last = until.find(|edit| forgets(edit) || wrote(edit))?;
    forgets(last).then(|| Deaf {
        who: last.command.who.clone(),
        command: last.command.argv.join(" "),
        node: node.clone(),
        at_us: last.at_us,
    })
}

/// Whether conntrack forgot by it, and not as agents have it forget, of what leads to nobody.
fn forgets(edit: &RuleEdit<'_>) -> bool {
    let Command {
        who, argv, exit, ..
    } = edit.command;
    let mut words = argv.iter();
    edit.program() == "conntrack"
        && *exit == 0
        && !is_an_agent(who)
        && words.any(|word| FORGETS.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use chainbreak_model::event::{Event, EventKind};
    use chainbreak_netfilter::replay::Backend;

    use super::*;

    /// What Felix writes of a new pod.
    const WRITTEN: &str = "*filter\n:cali-tw-cali1 - [0:0]\nCOMMIT\n";

    fn ran(at_us: u64, who: &str, command: &str) -> Event {
        fed(at_us, who, command, "")
    }

    fn fed(at_us: u64, who: &str, command: &str, input: &str) -> Event {
        let command = Command {
            who: who.to_owned(),
            node: "n1".into(),
            argv: command.split(' ').map(str::to_owned).collect(),
            input: input.to_owned(),
            exit: 0,
            stderr: String::new(),
            took_us: 1,
            named: Vec::new(),
        };
        let what = EventKind::Command(command);
        Event { at_us, what }
    }

    #[test]
    fn a_flush_is_behind_it_as_long_as_felix_wrote_nothing_after_it() {
        let flush = || ran(20, "admin", "/usr/sbin/conntrack -F");
        let before = || fed(10, "felix", "iptables-legacy-restore --noflush", WRITTEN);
        let who = |events: &[Event], node: &str, until| {
            let index = EditIndex::new(events, Backend::Legacy);
            forgotten(&index, &node.into(), until).map(|it| it.who)
        };
        let deaf = [
            before(),
            flush(),
            ran(30, "felix", "iptables-legacy-save -t filter"),
        ];
        assert_eq!(who(&deaf, "n1", 40).as_deref(), Some("admin"));
        assert_eq!(who(&deaf, "n2", 40), None);
        assert_eq!(who(&deaf, "n1", 15), None);
        let listed = [
            flush(),
            ran(30, "felix", "/usr/sbin/nft --json list map ip calico x"),
        ];
        assert_eq!(who(&listed, "n1", 40).as_deref(), Some("admin"));
        let chain = "add chain ip calico cali-tw-cali1\n";
        let written = [flush(), fed(30, "felix", "/usr/sbin/nft -f -", chain)];
        assert_eq!(who(&written, "n1", 40), None);
        let wrote = fed(30, "felix", "iptables-nft-restore --noflush", WRITTEN);
        let healed = [before(), flush(), wrote];
        assert_eq!(who(&healed, "n1", 40), None);
        assert_eq!(who(&healed, "n1", 25).as_deref(), Some("admin"));
        for harmless in [
            ran(20, "admin", "conntrack -L"),
            ran(20, "kube-proxy", "conntrack -D -p udp"),
            ran(20, "admin", "iptables -F"),
        ] {
            assert_eq!(who(&[before(), harmless], "n1", 40), None);
        }
    }
}
