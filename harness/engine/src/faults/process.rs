//! Processes of others: who holds a lock, and third parties' commands.

use std::time::Duration;

use chainbreak_model::{case, names::NodeName};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{
    Injection, command,
    undo::{How, Undo},
};
use crate::{
    cluster::{Command, Place, exec_as},
    infra_error::InfraError,
    output::{all_ended, ended},
};

/// Takes the lock that legacy iptables take and keeps it as long as it lives. It says when it has it.
pub(super) const HOLD: &str = "exec 9>/run/xtables.lock && flock 9 && echo held && exec cat";

impl Injection<'_> {
    /// Takes the lock of iptables, on one node or on every one.
    pub(super) async fn lock(&mut self, node: Option<&NodeName>) -> Result<(), InfraError> {
        for node in self.nodes(node) {
            let doing = format!("take the lock of iptables on {node}");
            let trouble = |why: &dyn std::fmt::Display| InfraError::new(doing.clone(), why);
            let at = Place::Node(node.clone());
            let holder = self.cluster.exec(&at, &command(&["sh", "-c", HOLD])).await;
            let mut holder = holder.map_err(|error| trouble(&error))?;
            let stdout = holder.stdout.take();
            let stdout = stdout.ok_or_else(|| trouble(&"its output is not piped"))?;
            let said = BufReader::new(stdout).lines().next_line().await;
            if said.map_err(|error| trouble(&error))?.as_deref() != Some("held") {
                let why = ended(holder, "").await.err().unwrap_or_default();
                return Err(trouble(&why));
            }
            self.undo.push(Undo::of(
                format!("the lock of iptables on {node} is free again"),
                How::End(holder),
            ));
            self.say(format!("somebody holds the lock of iptables on {node}"));
        }
        Ok(())
    }

    /// Runs a third party's commands: to their end, or, with a duration, beside the next steps.
    pub(super) async fn third_party(
        &mut self,
        run: &case::Run,
        duration: Option<Duration>,
    ) -> Result<(), InfraError> {
        for at in self.places(run.at.as_ref()) {
            let what = run.argv.join(" ");
            let doing = format!("run {what} in {at} as {}", run.who);
            let trouble = |why: &dyn std::fmt::Display| InfraError::new(doing.clone(), why);
            self.say(format!("{} runs {what} in {at}", run.who));
            let argv = Command::Argv(run.argv.clone());
            let process = exec_as(self.cluster, &run.who, &at, &argv).await;
            let process = process.map_err(|error| trouble(&error))?;
            if duration.is_none() {
                ended(process, "").await.map_err(|why| trouble(&why))?;
                continue;
            }
            let id = process.id();
            self.undo.push(Undo::of(
                format!("end what {} runs in {at}", run.who),
                How::Stop {
                    following: tokio::spawn(all_ended(process)),
                    id,
                },
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_model::case::Fault;

    use super::{
        super::{Faults, tests::said},
        *,
    };
    use crate::{
        fake::{Commands, Fake},
        log::EventLog,
    };

    #[tokio::test]
    async fn what_a_third_party_still_runs_is_killed_by_the_cluster() {
        let fake = Fake {
            // It goes on until it is killed.
            commands: Commands::Shell("exec sleep 3600".to_owned(), Duration::ZERO),
            ..Fake::default()
        };
        let (fake, cluster) = fake.cluster();
        let (log, mut events) = EventLog::new();
        let mut faults = Faults::new(&cluster, 0, &log);
        let run = Fault::Run(case::Run {
            at: None,
            who: "cron".to_owned(),
            argv: vec!["anything".to_owned()],
        });
        let hour = Some(Duration::from_secs(3600));
        faults.inject(&run, hour).await.unwrap();
        faults.heal_all().await;
        assert_eq!(fake.signals(), ["kill"]);
        assert_eq!(
            said(&mut events),
            [
                "cron runs anything in node/n1",
                "end what cron runs in node/n1"
            ]
        );
    }
}
