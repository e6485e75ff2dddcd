//! Shells that stand on a node, through which its commands go: `docker exec` takes a tenth of a second of a processor for each process that it
//! begins there, and a case on a kept cluster has some thirty commands. Those side by side have a shell each.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chainbreak_engine::{cluster::Process, standing_shell::StandingShell};
use tokio::time::{Instant, timeout};

use crate::{
    error::KindError,
    tool::{last_lines, mend},
};

/// A node's. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shells(Arc<Mutex<Vec<StandingShell>>>);

impl Shells {
    /// What a command wrote on standard output, which has these lines to read. One that is given up goes on there, as with a client of its own.
    pub(crate) async fn run(
        &self,
        entry: &[String],
        within: Duration,
        argv: &[impl AsRef<str> + Sync],
        lines: &str,
    ) -> Result<String, KindError> {
        let argv: Vec<String> = argv.iter().map(|word| word.as_ref().to_owned()).collect();
        let line = [entry, &argv].concat().join(" ");
        let began = Instant::now();
        let mut shell = match self.idle_one() {
            Some(shell) => shell,
            None => start(entry)?,
        };
        let ran = timeout(within, shell.run(&argv, lines)).await;
        tracing::debug!(took = ?began.elapsed(), "standing: {line}");
        let ran = ran.map_err(|_late| KindError::Late {
            line: line.clone(),
            within,
        })?;
        let failed = |status: &str, said: &str| KindError::Failed {
            line: line.clone(),
            status: status.to_owned(),
            said: last_lines(said),
        };
        let ran = ran.map_err(|said| failed("the end of the shell that ran it", &said))?;
        self.all().push(shell);
        if ran.is_success() {
            return Ok(ran.stdout);
        }
        let status = format!("exit status: {}", ran.status);
        Err(failed(&status, &format!("{}{}", ran.stdout, ran.stderr)))
    }

    fn idle_one(&self) -> Option<StandingShell> {
        let mut all = self.all();
        while let Some(mut shell) = all.pop() {
            if shell.lives() {
                return Some(shell);
            }
        }
        None
    }

    fn all(&self) -> MutexGuard<'_, Vec<StandingShell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(entry: &[String]) -> Result<StandingShell, KindError> {
    let (program, arguments) = entry.split_first().expect("a node is entered by a program");
    let mut command = tokio::process::Command::new(program);
    let started = Process::spawn(command.args(arguments).arg("sh"));
    let started = started.map_err(|source| KindError::Start {
        program: program.clone(),
        source,
        mend: mend(program),
    })?;
    StandingShell::of(started).map_err(KindError::Unable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn script(text: &str) -> [String; 3] {
        ["sh", "-c", text].map(str::to_owned)
    }

    #[tokio::test]
    async fn commands_go_through_shells_that_stand_and_each_that_fails_is_told() {
        let shells = Shells::default();
        let entry = ["env".to_owned()];
        let run = |text: &str| {
            let (shells, entry, argv) = (shells.clone(), entry.clone(), script(text));
            async move { shells.run(&entry, LONG, &argv, "").await }
        };
        let first = run("echo $PPID").await.unwrap();
        assert_eq!(run("echo $PPID").await.unwrap(), first, "it stands");
        let (one, other) = tokio::join!(run("echo $PPID"), run("echo $PPID"));
        assert_ne!(one.unwrap(), other.unwrap(), "each has its own");
        let error = run("echo so; echo it is >&2; exit 3").await.unwrap_err();
        let said = error.to_string();
        assert!(said.contains("exit status: 3\nso\nit is"), "{said}");
        assert_eq!(run("cat").await.unwrap(), "", "nothing is to be read");
        let lines = "it's $HOME\n\\ `echo`\n";
        let read = shells.run(&entry, LONG, &script("cat"), lines).await;
        assert_eq!(read.unwrap(), lines);
    }

    #[tokio::test]
    async fn a_shell_that_ended_is_followed_by_another_and_its_own_command_is_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let shells = Shells::default();
        let entry = ["env".to_owned()];
        let kill = format!("echo ran >> {}; kill -9 $PPID; sleep 0.1", count.display());
        let error = shells
            .run(&entry, LONG, &script(&kill), "")
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("the end of the shell"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "ran\n");
        // And one that ends while nobody runs anything.
        let idle = shells.run(&entry, LONG, &script("echo $PPID"), "").await;
        let killed = std::process::Command::new("kill")
            .args(["-9", idle.unwrap().trim()])
            .status();
        assert!(killed.unwrap().success());
        while shells.all()[0].lives() {
            tokio::task::yield_now().await;
        }
        let said = shells.run(&entry, LONG, &script("echo on"), "").await;
        assert_eq!(said.unwrap(), "on\n");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_given_up_with_its_shell() {
        let shells = Shells::default();
        let entry = ["env".to_owned()];
        let short = Duration::from_millis(200);
        let late = shells.run(&entry, short, &script("sleep 5"), "").await;
        assert!(matches!(late, Err(KindError::Late { .. })), "{late:?}");
        assert!(shells.all().is_empty());
    }

    #[tokio::test]
    async fn why_no_shell_can_stand_is_told() {
        let shells = Shells::default();
        let entry = ["sh", "-c", "echo $((40 + 2)) >&2; exit 1"].map(str::to_owned);
        let error = shells.run(&entry, LONG, &script("true"), "").await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("42"), "{error}");
    }
}
