//! What undoes an act. To undo what has not happened yet does no harm.

use std::io;

use chainbreak_model::names::{AgentName, NodeName};
use tokio::task::JoinHandle;

use super::{command, conntrack::Filler, craft::Crafters};
use crate::{
    cluster::{Cluster, Place, Process, Signal, agent_control, exec_as},
    gate::Delayed,
    output::ended,
};

/// One act to undo.
pub(super) struct Undo {
    /// What it does, as the history says it.
    pub(super) text: String,
    pub(super) how: How,
}

/// How it is done.
pub(super) enum How {
    /// By a command with this standard input.
    Command {
        who: &'static str,
        at: Place,
        argv: Vec<String>,
        input: String,
    },
    Signal(AgentName, NodeName, Signal),
    /// Whoever waits goes on.
    Lift(Option<Delayed>),
    /// It is killed.
    End(Process),
    /// They are told to end.
    Craft(Crafters),
    EmptyConntrack(Filler),
    /// It is killed, unless it is over; then it must have ended well.
    Stop {
        following: JoinHandle<Result<String, String>>,
        id: Option<u32>,
    },
}

impl Undo {
    pub(super) async fn run(&mut self, cluster: &dyn Cluster) -> Result<(), String> {
        match &mut self.how {
            How::Command {
                who,
                at,
                argv,
                input,
            } => {
                let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                let process = exec_as(cluster, who, at, &command(&argv)).await;
                let process = process.map_err(|error| error.to_string())?;
                ended(process, input).await.map(drop)
            }
            How::Signal(agent, node, signal) => {
                let control = agent_control(cluster).map_err(|error| error.to_string())?;
                let done = control.signal(*agent, node, *signal).await;
                done.map_err(|error| error.to_string())
            }
            How::Lift(delayed) => {
                drop(delayed.take());
                Ok(())
            }
            How::End(process) => {
                let killed = process.child.kill().await;
                killed.map_err(|error| error.to_string())
            }
            How::Craft(crafters) => crafters.end().await,
            How::EmptyConntrack(filler) => filler.empty(cluster).await,
            How::Stop { following, id } => stop(cluster, following, *id).await,
        }
    }
}

/// Ends a process and what it started, as far as that stayed in its process group.
async fn stop(
    cluster: &dyn Cluster,
    following: &mut JoinHandle<Result<String, String>>,
    id: Option<u32>,
) -> Result<(), String> {
    if following.is_finished() {
        let ended = following.await.map_err(|error| error.to_string())?;
        return ended.map(drop);
    }
    let killed = match id {
        Some(id) => match cluster.killing() {
            Some(killing) => killing.kill(id).await,
            None => Err(io::ErrorKind::Unsupported.into()),
        },
        None => Ok(()),
    };
    following.abort();
    killed.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chainbreak_model::case::{AgentFault, Fault};
    use tokio::time::{Instant, timeout};

    use super::{
        super::{Faults, tests::said},
        *,
    };
    use crate::{fake::Fake, log::EventLog};

    #[tokio::test(start_paused = true)]
    async fn acts_that_hang_share_a_minute_and_each_is_tried_and_named() {
        let deaf = Fake {
            deaf: true,
            ..Fake::default()
        };
        let (fake, cluster) = deaf.cluster();
        let (log, mut events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        for (agent, what) in [
            (AgentName::Felix, AgentFault::Stop),
            (AgentName::KubeProxy, AgentFault::Pause),
            (AgentName::KubeProxy, AgentFault::Stop),
        ] {
            let fault = Fault::Agent {
                agent,
                node: None,
                what,
            };
            let injecting = faults.inject(&fault, None);
            let broken_off = timeout(Duration::from_secs(1), injecting).await;
            assert!(broken_off.is_err());
        }
        let begin = Instant::now();
        faults.heal_all().await;
        assert!(begin.elapsed() < Duration::from_secs(60));
        let tried = ["Run kube-proxy", "Run kube-proxy", "Run felix"];
        assert_eq!(fake.signals()[3..], tried);
        let mut said = said(&mut events);
        said.retain(|text| text.starts_with("TROUBLE"));
        assert_eq!(
            said,
            [
                "TROUBLE could not start kube-proxy on n1: it took more than 30s",
                "TROUBLE could not resume kube-proxy on n1: it took more than 15s",
                "TROUBLE could not start felix on n1: it took more than 7.5s"
            ]
        );
    }
}
