//! What undoes an act. To undo what has not happened yet does no harm.

use std::io;

use chainbreak_model::names::{AgentName, NodeName};
use tokio::task::JoinHandle;

use super::{Injection, conntrack::Filler, craft::Crafters, rules::TOOL};
use crate::{
    cluster::{Cluster, Debt, Delay, Process, Signal, agent_control, holding},
    infra_error::InfraError,
};

/// One act to undo.
pub(super) struct Undo {
    /// What it does, as the history says it.
    pub(super) text: String,
    pub(super) how: How,
    /// As which debt the cluster has it noted ([`Debts`](crate::cluster::Debts)).
    pub(super) owed: Option<u64>,
}

/// How it is done. What is a debt of the run, where it outlives it, is noted by [`super::Injection::owe`].
pub(super) enum How {
    /// By what any other could run.
    Command(Debt),
    Signal(AgentName, NodeName, Signal),
    /// An agent's commands of a program begin in time.
    LetGo(Delay),
    /// It is killed.
    End(Process),
    /// They are told to end.
    Craft(Crafters),
    /// It is ended, and what it made deleted.
    EmptyConntrack(Filler, Debt),
    /// It is killed, unless it is over; then it must have ended well.
    Stop {
        following: JoinHandle<Result<String, String>>,
        id: Option<u32>,
    },
}

impl Undo {
    /// What ends with the run, or is noted otherwise.
    pub(super) fn of(text: String, how: How) -> Self {
        Self {
            text,
            how,
            owed: None,
        }
    }

    /// Undoes it, and notes that nothing is owed any more.
    pub(super) async fn undo(&mut self, cluster: &dyn Cluster) -> Result<(), String> {
        self.run(cluster).await?;
        match cluster.debts().zip(self.owed) {
            Some((debts, number)) => debts.paid(number).await,
            None => Ok(()),
        }
    }

    async fn run(&mut self, cluster: &dyn Cluster) -> Result<(), String> {
        match &mut self.how {
            How::Command(debt) => debt.settle(cluster, TOOL).await,
            How::Signal(agent, node, signal) => {
                let control = agent_control(cluster).map_err(|error| error.to_string())?;
                let done = control.signal(*agent, node, *signal).await;
                done.map_err(|error| error.to_string())
            }
            How::LetGo(delay) => {
                let holding = holding(cluster).map_err(|error| error.to_string())?;
                let done = holding.let_go(delay).await;
                done.map_err(|error| error.to_string())
            }
            How::End(process) => {
                let killed = process.child.kill().await;
                killed.map_err(|error| error.to_string())
            }
            How::Craft(crafters) => crafters.end().await,
            How::EmptyConntrack(filler, debt) => {
                filler.end().await?;
                debt.settle(cluster, TOOL).await
            }
            How::Stop { following, id } => stop(cluster, following, *id).await,
        }
    }
}

impl Injection<'_> {
    /// Has an act undone by this, which is noted before the act.
    pub(super) async fn undo_by(&mut self, debt: Debt) -> Result<(), InfraError> {
        let owed = self.owe(&debt).await?;
        self.undo.push(Undo {
            text: debt.text.clone(),
            how: How::Command(debt),
            owed,
        });
        Ok(())
    }

    /// Notes it where the cluster outlives the run.
    pub(super) async fn owe(&self, debt: &Debt) -> Result<Option<u64>, InfraError> {
        let Some(debts) = self.cluster.debts() else {
            return Ok(None);
        };
        let owed = debts.owe(debt).await;
        let owed = owed.map_err(|why| InfraError::new(format!("note: {}", debt.text), why));
        owed.map(Some)
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

    use chainbreak_model::case::{AgentFault, Fault, Origin};
    use tokio::time::{Instant, timeout};

    use super::{
        super::{Faults, tests::said},
        *,
    };
    use crate::{
        fake::{Commands, Fake},
        log::EventLog,
    };

    /// An interface that goes down, whose undoing comes to what `undone` does.
    async fn of_a_link(undone: &str) -> (Vec<String>, Vec<String>) {
        let script = format!("if read back; then {undone}; fi");
        let (fake, cluster) = Fake {
            commands: Commands::Shell(script, Duration::ZERO),
            outlives: true,
            ..Fake::default()
        }
        .cluster();
        let (log, mut events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let down = Fault::LinkDown {
            at: Origin::Node("n1".into()),
            interface: "eth0".to_owned(),
        };
        faults.inject(&down, None).await.unwrap();
        faults.heal_all().await;
        (fake.asked(), said(&mut events))
    }

    const DOWN: [&str; 3] = [
        "owe: eth0 of node/n1 is up again",
        "ip link set dev eth0 down",
        "ip -batch -",
    ];

    #[tokio::test]
    async fn what_undoes_an_act_is_noted_before_it_where_the_cluster_outlives_the_run() {
        let (asked, _) = of_a_link("true").await;
        // What it is set back to is asked for first.
        assert_eq!(asked[3..6], DOWN);
        assert_eq!(asked[6..], ["paid: 4"]);
    }

    #[tokio::test]
    async fn what_could_not_be_undone_stays_noted() {
        let (asked, said) = of_a_link("exit 3").await;
        assert_eq!(asked[3..], DOWN);
        assert!(said.last().unwrap().starts_with("TROUBLE"), "{said:?}");
    }

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
