//! What happens to agents.

use std::collections::BTreeSet;

use super::{
    super::{
        super::{
            fields::{duration, list, note, word},
            words::NODE,
        },
        LENGTH, Word,
    },
    FOR, Reading, done, fault,
};
use crate::{
    case::{AgentFault, AgentSource, ApiWay, ClusterSpec, Fault, Step},
    language::{Field, Kind, Mapping, default, needed, optional, words},
    names::AgentName,
    yaml::Node,
};

/// No command but a point in kube-proxy's model: between its look at what changed and its taking it over.
pub(crate) const TAKING_CHANGES: &str = "taking-changes";

pub(in super::super) static STEPS: [Word; 6] = [
    fault(
        "slow",
        &SLOW,
        "An agent's command, a model's or a real one's, starts later.",
        |it| it.slow(),
    ),
    fault(
        "stop",
        &STOP,
        "An agent's process ends, and is started when the time is over.",
        |it| it.agent(AgentFault::Stop),
    ),
    fault(
        "pause",
        &PAUSE,
        "An agent does nothing at all, as with SIGSTOP; commands that it has started go on.",
        |it| it.agent(AgentFault::Pause),
    ),
    fault(
        "restart",
        &RESTART,
        "An agent's process ends and is started at once. The step is over when it has begun its work; of several nodes one after the other.",
        |it| it.restart(),
    ),
    fault(
        "recreate",
        &RECREATE,
        "An agent's pod is deleted, with what it alone had mounted (`calico: { bpffs: none }`), and made anew when the time is over. Nobody waits until it works: it may never.",
        |it| it.recreate(),
    ),
    fault(
        "reboot",
        &REBOOT,
        "A node's agents end, and its kernel loses what it holds: rules of its iptables, tables of nftables, sets, conntrack's entries, Felix's eBPF programs and their maps; its kubelet and CNI write theirs again. Agents begin when the time is over; nobody waits until they work. Pods go on as they are, with their links.",
        |it| it.reboot(),
    ),
];

static SLOW: Mapping = Mapping {
    called: "slow",
    doc: "",
    fields: &[&[
        WHOSE,
        needed(
            "command",
            Kind::Word(|| words(&COMMANDS)),
            "Which command; of iptables that of both its backends. `taking-changes` is a point in kube-proxy's model: until 1.27.10, 1.28.6 and 1.29.1 a partial sync looks which services changed, and then takes the changes over.",
        ),
        needed("by", Kind::Time, "How much later each of them starts."),
        FOR,
    ]],
};

static STOP: Mapping = Mapping {
    called: "stop",
    doc: "",
    fields: &[&AGENT],
};

static PAUSE: Mapping = Mapping {
    called: "pause",
    doc: "",
    fields: &[&AGENT],
};

static AGENT: [Field; 3] = [WHOSE, AT, FOR];

static RESTART: Mapping = Mapping {
    called: "restart",
    doc: "",
    fields: &[&[WHOSE, AT]],
};

static RECREATE: Mapping = Mapping {
    called: "recreate",
    doc: "",
    fields: &[&[
        WHOSE,
        AT,
        default("for", Kind::Time, "1s", "How long there is no pod."),
        optional(
            "api",
            Kind::Word(|| words(&ApiWay::ALL)),
            "How Felix's new pods reach the API from now on: `direct`, when the ConfigMap `kubernetes-services-endpoint` was made.",
        ),
    ]],
};

static REBOOT: Mapping = Mapping {
    called: "reboot",
    doc: "",
    fields: &[&[
        AT,
        default("for", Kind::Time, "2s", "How long there is no agent."),
        optional(
            "begin",
            Kind::Set(&Kind::Word(|| words(&AgentName::WORDS)), 2),
            "Which agents begin then, in this order, and no others; all, in an order that the seed draws, when not given. One that a `stop` still holds is not to be named, or begins.",
        ),
    ]],
};

const WHOSE: Field = needed(
    "agent",
    Kind::Word(|| words(&AgentName::WORDS)),
    "Which agent.",
);

const AT: Field = optional("node", NODE, "Where; every node when not given.");

const COMMANDS: [(&str, &str); 10] = [
    ("iptables", "iptables"),
    ("iptables-save", "iptables-save"),
    ("iptables-restore", "iptables-restore"),
    ("ip6tables", "ip6tables"),
    ("ip6tables-save", "ip6tables-save"),
    ("ip6tables-restore", "ip6tables-restore"),
    ("nft", "nft"),
    ("ipset", "ipset"),
    ("conntrack", "conntrack"),
    (TAKING_CHANGES, TAKING_CHANGES),
];

impl Reading<'_> {
    fn slow(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let agent = self.agent_name();
        let command = self.fields.need("command", |node| {
            let command = word(gathered, node, "command", &COMMANDS)?;
            if command == TAKING_CHANGES && !self.has_the_point(agent) {
                let message = "taking-changes is a point in kube-proxy's model, and nowhere else";
                note(gathered, &node.place, message, None);
            }
            Some(command)
        });
        let by = self
            .fields
            .need("by", |node| duration(gathered, node, "by", LENGTH));
        let slow = || {
            Some(Fault::Slow {
                agent: agent?,
                command: command?.to_owned(),
                by: by?,
            })
        };
        self.lasting(slow())
    }

    /// Whether the agent is the model in which changes are taken over in two steps.
    fn has_the_point(&self, agent: Option<AgentName>) -> bool {
        let modelled = |cluster: &ClusterSpec| {
            let kube_proxy = cluster.kube_proxy.as_ref();
            kube_proxy.is_none_or(|spec| spec.source == AgentSource::Model)
        };
        agent.is_none_or(|agent| agent == AgentName::KubeProxy)
            && self.world.cluster.is_none_or(modelled)
    }

    fn agent(&self, what: AgentFault) -> Option<Step> {
        self.lasting(self.done_to_agent(what))
    }

    /// Unlike other faults it is over soon where no time is said.
    fn recreate(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let (agent, node) = (self.agent_name(), self.node());
        let length = self
            .fields
            .or_default("for", |node| duration(gathered, node, "for", LENGTH));
        let api = self.fields.maybe("api", |node| {
            if agent == Some(AgentName::KubeProxy) {
                let message = "kube-proxy asks the API at its own address always";
                note(gathered, &node.place, message, None);
            }
            word(gathered, node, "api", &ApiWay::ALL)
        });
        let fault = Fault::Agent {
            agent: agent?,
            node: node?,
            what: AgentFault::Recreate { api: api? },
        };
        Some(Step::Fault {
            fault,
            duration: Some(length?),
        })
    }

    fn reboot(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let node = self.node();
        let length = self
            .fields
            .or_default("for", |node| duration(gathered, node, "for", LENGTH));
        let begin = self.fields.or_empty("begin", |node| {
            let named = list(gathered, node, "begin", |it| self.agent_there(it, "begin"))?;
            if named.is_empty() {
                note(gathered, &node.place, "begin names nobody", None);
            }
            let once: BTreeSet<&AgentName> = named.iter().collect();
            if once.len() < named.len() {
                note(gathered, &node.place, "an agent begins once", None);
            }
            Some(named)
        });
        let fault = Fault::Reboot {
            node: node?,
            begin: begin?,
        };
        Some(Step::Fault {
            fault,
            duration: Some(length?),
        })
    }

    fn restart(&self) -> Option<Step> {
        done(self.done_to_agent(AgentFault::Restart))
    }

    /// What is done to the agent that is named, where it is said.
    fn done_to_agent(&self, what: AgentFault) -> Option<Fault> {
        let (agent, node) = (self.agent_name(), self.node());
        Some(Fault::Agent {
            agent: agent?,
            node: node?,
            what,
        })
    }

    /// An agent that the cluster has.
    fn agent_name(&self) -> Option<AgentName> {
        self.fields
            .need("agent", |node| self.agent_there(node, "agent"))
    }

    fn agent_there(&self, node: &Node, what: &str) -> Option<AgentName> {
        let gathered = self.fields.gathered;
        let agent = word(gathered, node, what, &AgentName::WORDS)?;
        let absent = |cluster: &ClusterSpec| cluster.version(agent).is_none();
        if self.world.cluster.is_some_and(absent) {
            let message = format!("the cluster has no {agent}");
            note(gathered, &node.place, message, None);
        }
        Some(agent)
    }
}
