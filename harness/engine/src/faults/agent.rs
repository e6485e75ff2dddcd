//! What is done to agents.

use std::time::Duration;

use chainbreak_model::{
    case::AgentFault,
    names::{AgentName, NodeName},
};

use super::{
    Injection,
    undo::{How, Undo},
};
use crate::{cluster::Signal, gate::Matching, trouble::Trouble};

impl Injection<'_> {
    /// From now on the agent's command starts later, on every node.
    pub(super) fn slow(
        &mut self,
        agent: AgentName,
        command: &str,
        by: Duration,
    ) -> Result<(), Trouble> {
        let text = format!("delay {agent}'s {command} by {by:?}");
        let gate = self
            .cluster
            .gate()
            .ok_or_else(|| Trouble::new(text.clone(), "the backend cannot hold commands back"))?;
        self.say(text);
        let which = Matching {
            who: Some(agent.to_string()),
            node: None,
            program: Some(command.to_owned()),
        };
        self.undo.push(Undo {
            text: format!("{agent}'s {command} starts in time again"),
            how: How::Lift(Some(gate.delay(which, by))),
        });
        Ok(())
    }

    /// Stops, pauses or restarts the agent, on one node or on every one.
    pub(super) async fn agent(
        &mut self,
        agent: AgentName,
        node: Option<&NodeName>,
        what: AgentFault,
    ) -> Result<(), Trouble> {
        for node in self.nodes(node) {
            let (verb, signal, undone) = match what {
                AgentFault::Stop => ("stop", Signal::Stop, "start"),
                AgentFault::Pause => ("pause", Signal::Pause, "resume"),
                AgentFault::Restart => ("restart", Signal::Stop, "start"),
            };
            let text = format!("{verb} {agent} on {node}");
            let failed = |error| Trouble::new(text.clone(), error);
            self.undo.push(Undo {
                text: format!("{undone} {agent} on {node}"),
                how: How::Signal(agent, node.clone(), Signal::Run),
            });
            let done = self.cluster.signal(agent, &node, signal).await;
            done.map_err(failed)?;
            if what == AgentFault::Restart {
                let done = self.cluster.signal(agent, &node, Signal::Run).await;
                done.map_err(failed)?;
                self.undo.pop();
            }
            self.say(text);
        }
        Ok(())
    }
}
