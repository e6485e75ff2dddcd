//! A Felix that hears nothing of new pods: somebody had conntrack forget its connection to the API, by the Service `kubernetes`. What the API
//! sends next on it is translated by nobody and refused; the API ends it, and Felix, which only listens there, is not told (seen of Calico
//! v3.32.1, until it asks of itself).

use std::{fmt, path::Path};

use chainbreak_model::{
    case::{ApiWay, Case},
    event::{Command, Event, EventKind},
    names::{AgentName, NodeName},
};
use serde::Serialize;

use crate::{meanwhile::Dropped, text::clock};

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
    events: &[Event],
    dropped: &Dropped,
    until_us: u64,
) -> Option<Deaf> {
    let asks = case.cluster.calico.as_ref()?.api;
    let is_translated = asks == ApiWay::Service && case.cluster.kube_proxy.is_some();
    let is_of_strangers =
        is(&dropped.owner, AgentName::Felix) && dropped.site.rule.contains(STRANGERS);
    (is_translated && is_of_strangers)
        .then(|| forgotten(events, &dropped.node, until_us))
        .flatten()
}

fn forgotten(events: &[Event], node: &str, until_us: u64) -> Option<Deaf> {
    let until = events.iter().rev().filter(|event| event.at_us <= until_us);
    let commands = until.filter_map(|event| match &event.what {
        EventKind::Command(command) if command.node.as_str() == node => {
            Some((event.at_us, command))
        }
        _ => None,
    });
    let mut telling = commands.filter(|(_, it)| forgets(it) || writes(it));
    let (at_us, command) = telling.next().filter(|(_, it)| forgets(it))?;
    Some(Deaf {
        who: command.who.clone(),
        command: command.argv.join(" "),
        node: command.node.clone(),
        at_us,
    })
}

/// Whether conntrack forgot by it, and not as agents have it forget, of what leads to nobody.
fn forgets(command: &Command) -> bool {
    let is_an_agents = AgentName::ALL.into_iter().any(|it| is(&command.who, it));
    let mut words = command.argv.iter();
    program(command) == "conntrack"
        && command.exit == 0
        && !is_an_agents
        && words.any(|word| FORGETS.contains(&word.as_str()))
}

/// Whether Felix wrote rules by it. It lists those of nftables in every mode (v3.32.1).
fn writes(command: &Command) -> bool {
    let program = program(command);
    let reads_a_file = || command.argv.iter().any(|word| word == "-f");
    let writes = program.ends_with("-restore") || (program == "nft" && reads_a_file());
    writes && is(&command.who, AgentName::Felix)
}

fn program(command: &Command) -> &str {
    let program = command.argv.first().map(Path::new);
    let name = program.and_then(Path::file_name);
    name.and_then(|it| it.to_str()).unwrap_or_default()
}

fn is(who: &str, agent: AgentName) -> bool {
    who == agent.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(at_us: u64, who: &str, command: &str) -> Event {
        let command = Command {
            who: who.to_owned(),
            node: "n1".into(),
            argv: command.split(' ').map(str::to_owned).collect(),
            input: String::new(),
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
        let before = || ran(10, "felix", "iptables-legacy-restore --noflush");
        let who =
            |events: &[Event], node: &str, until| forgotten(events, node, until).map(|it| it.who);
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
        let written = [flush(), ran(30, "felix", "/usr/sbin/nft -f -")];
        assert_eq!(who(&written, "n1", 40), None);
        let healed = [before(), flush(), ran(30, "felix", "iptables-nft-restore")];
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
