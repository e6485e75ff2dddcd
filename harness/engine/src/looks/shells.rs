//! Shells that stand in places. Where nobody records writes there are many looks, and to start a process takes Docker, or the
//! API, longer than the look itself: there looks go through a shell that stays for the next one. Looks side by side have one each.
//!
//! A pod's network may be another's when the pod is made again, and a shell would stay in the old one: into pods each look
//! goes by itself.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    cluster::{Cluster, Command, Place, Process},
    output::ended,
    standing_shell::StandingShell,
};

/// One cluster's shells.
pub(super) struct Shells {
    cluster: Arc<dyn Cluster>,
    /// Whether any stand.
    stand: bool,
    idle: Mutex<BTreeMap<Place, Vec<StandingShell>>>,
}

impl Shells {
    pub(super) fn new(cluster: Arc<dyn Cluster>, stand: bool) -> Self {
        Self {
            cluster,
            stand,
            idle: Mutex::default(),
        }
    }

    /// Runs a command to its end, which only looks, and returns its standard output, or how it failed.
    pub(super) async fn run(&self, at: &Place, argv: Vec<String>) -> Result<String, String> {
        if !self.stand || matches!(at, Place::Pod { .. }) {
            let process = self.exec(at, argv).await?;
            return ended(process, "").await;
        }
        // One that died while it was idle has shown nothing.
        while let Some(mut shell) = self.take(at) {
            if let Ok(ran) = shell.run(&argv, "").await {
                self.give_back(at, shell);
                return ran.output();
            }
        }
        let process = self.exec(at, vec!["sh".to_owned()]).await?;
        let mut shell = StandingShell::of(process)?;
        let ran = shell.run(&argv, "").await;
        let ran = ran.map_err(|said| format!("its shell ended: {}", said.trim()))?;
        self.give_back(at, shell);
        ran.output()
    }

    async fn exec(&self, at: &Place, argv: Vec<String>) -> Result<Process, String> {
        let process = self.cluster.exec(at, &Command::Argv(argv)).await;
        process.map_err(|error| error.to_string())
    }

    fn take(&self, at: &Place) -> Option<StandingShell> {
        let mut idle = self.idle();
        idle.get_mut(at)?.pop()
    }

    fn give_back(&self, at: &Place, shell: StandingShell) {
        self.idle().entry(at.clone()).or_default().push(shell);
    }

    fn idle(&self) -> MutexGuard<'_, BTreeMap<Place, Vec<StandingShell>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::fake::{Commands, Fake};

    /// Whatever is to run, a shell is started.
    fn shells() -> (Arc<Fake>, Shells, Place) {
        let commands = Commands::Shell("exec sh".to_owned(), Duration::ZERO);
        let (fake, cluster) = Fake {
            commands,
            ..Fake::default()
        }
        .cluster();
        (fake, Shells::new(cluster, true), Place::Node("n1".into()))
    }

    async fn said(shells: &Shells, at: &Place, script: &str) -> Result<String, String> {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        shells.run(at, argv).await
    }

    #[tokio::test]
    async fn one_shell_runs_all_commands_and_tells_what_each_wrote_or_how_it_failed() {
        let (fake, shells, at) = shells();
        for (script, wrote) in [
            ("echo \"it's\"; echo", "it's\n\n"),
            ("printf 'no line break'", "no line break"),
            ("cat", ""),
            ("echo unheard >&2", ""),
        ] {
            assert_eq!(said(&shells, &at, script).await, Ok(wrote.to_owned()));
        }
        let failed = said(&shells, &at, "echo out; echo no good >&2; exit 3").await;
        assert_eq!(failed, Err("exit status: 3: no good".to_owned()));
        // More than a pipe holds.
        let many = "i=0; while [ $i -lt 20000 ]; do echo $i; echo $i >&2; i=$((i + 1)); done";
        let many = said(&shells, &at, many).await.unwrap();
        assert_eq!(many.lines().count(), 20_000);
        assert_eq!(fake.asked(), ["sh"]);
    }

    #[tokio::test]
    async fn a_shell_that_died_is_followed_by_another() {
        let (fake, shells, at) = shells();
        said(&shells, &at, "true").await.unwrap();
        // The next one, which runs the command of the first, dies of it, too.
        said(&shells, &at, "kill -9 $PPID").await.unwrap_err();
        assert_eq!(said(&shells, &at, "echo on").await, Ok("on\n".to_owned()));
        assert_eq!(fake.asked(), ["sh"; 3]);
    }

    #[tokio::test]
    async fn a_command_that_is_given_up_takes_its_shell_with_it_and_no_other() {
        let (fake, shells, at) = shells();
        // Until nobody reads it any more.
        let script = "while echo half; do sleep 0.1; done";
        let hangs = timeout(Duration::from_millis(200), said(&shells, &at, script));
        let (hangs, beside) = tokio::join!(hangs, said(&shells, &at, "echo whole"));
        assert!(hangs.is_err());
        assert_eq!(beside, Ok("whole\n".to_owned()));
        assert_eq!(
            said(&shells, &at, "echo next").await,
            Ok("next\n".to_owned())
        );
        assert_eq!(fake.asked().len(), 2, "side by side each has its own");
    }

    #[tokio::test]
    async fn a_pods_network_is_entered_by_each_look() {
        let (fake, shells, _) = shells();
        let pod = Place::Pod {
            namespace: "test".to_owned(),
            name: "web".to_owned(),
        };
        for _ in 0..2 {
            drop(said(&shells, &pod, "true").await);
        }
        assert_eq!(fake.asked(), ["sh -c true"; 2]);
    }
}
