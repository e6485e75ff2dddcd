//! Shells that stand in places. Where nobody records writes there are many looks, and to start a process takes Docker, or the
//! API, longer than the look itself: there looks go through a shell that stays for the next one. Looks side by side have one each.
//!
//! A pod's network may be another's when the pod is made again, and a shell would stay in the old one: into pods each look
//! goes by itself.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
};

use crate::{
    cluster::{Cluster, Command, Place, Process},
    output::ended,
    shell::quoted,
};

/// One cluster's shells.
pub(super) struct Shells {
    cluster: Arc<dyn Cluster>,
    /// Whether any stand.
    stand: bool,
    idle: Mutex<BTreeMap<Place, Vec<Shell>>>,
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
            if let Ok(ran) = shell.run(&argv).await {
                self.give_back(at, shell);
                return ran;
            }
        }
        let process = self.exec(at, vec!["sh".to_owned()]).await?;
        let mut shell = Shell::of(process)?;
        let ran = shell.run(&argv).await;
        let ran = ran.map_err(|said| format!("its shell ended: {}", said.trim()))?;
        self.give_back(at, shell);
        ran
    }

    async fn exec(&self, at: &Place, argv: Vec<String>) -> Result<Process, String> {
        let process = self.cluster.exec(at, &Command::Argv(argv)).await;
        process.map_err(|error| error.to_string())
    }

    fn take(&self, at: &Place) -> Option<Shell> {
        let mut idle = self.idle();
        idle.get_mut(at)?.pop()
    }

    fn give_back(&self, at: &Place, shell: Shell) {
        self.idle().entry(at.clone()).or_default().push(shell);
    }

    fn idle(&self) -> MutexGuard<'_, BTreeMap<Place, Vec<Shell>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shell that reads commands, one after the other. It is of no use any more when a command was given up.
struct Shell {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// Stands after what a command has written.
    token: String,
    #[expect(dead_code, reason = "it is killed with this")]
    child: Child,
}

impl Shell {
    fn of(process: Process) -> Result<Self, String> {
        let Process {
            stdin: Some(stdin),
            stdout: Some(stdout),
            stderr: Some(stderr),
            child,
        } = process
        else {
            return Err("its input and output are not piped".to_owned());
        };
        Ok(Self {
            stdin,
            stdout: BufReader::new(stdout),
            stderr: BufReader::new(stderr),
            // Nothing that a command writes is taken for it.
            token: format!("{:016x}", RandomState::new().build_hasher().finish()),
            child,
        })
    }

    /// What a command wrote, or how it failed. An error is what was said when the shell itself ended.
    async fn run(&mut self, argv: &[String]) -> Result<Result<String, String>, String> {
        let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
        let (words, token) = (words.join(" "), &self.token);
        // The input is the shell's.
        let script = format!(
            "{words} </dev/null; printf '\\n%s %s\\n' {token} $?; printf '\\n%s\\n' {token} >&2\n"
        );
        // One that does not read says itself what was wrong.
        drop(self.stdin.write_all(script.as_bytes()).await);
        let out = until(&mut self.stdout, token);
        let err = until(&mut self.stderr, token);
        match tokio::join!(out, err) {
            (Ok((out, status)), Ok(_)) if status == "0" => Ok(Ok(out)),
            (Ok((_, status)), Ok((err, _))) => {
                Ok(Err(format!("exit status: {status}: {}", err.trim())))
            }
            (_, Err(said)) | (Err(said), Ok(_)) => Err(said),
        }
    }
}

/// Reads up to the token: what stands before it, and after it in its line. An error is what was there without it.
async fn until(
    from: &mut (impl AsyncBufRead + Unpin),
    token: &str,
) -> Result<(String, String), String> {
    let (mut text, mut line) = (String::new(), String::new());
    loop {
        line.clear();
        match from.read_line(&mut line).await {
            Ok(0) => return Err(text),
            Ok(_) => {}
            Err(error) => return Err(format!("{text}{error}")),
        }
        if let Some(rest) = line.strip_prefix(token) {
            // The line break before the token is ours.
            text.pop();
            return Ok((text, rest.trim().to_owned()));
        }
        text.push_str(&line);
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
