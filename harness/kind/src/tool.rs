//! `docker` and `kind`, run to their end and never longer than their deadline.

use std::{ffi::OsString, time::Duration};

use duct::Handle;
use tokio::time::Instant;

use crate::error::KindError;

/// How much of what a failed program said is evidence.
const LAST_LINES: usize = 20;

/// What a killed program may take to be gone.
const REAP: Duration = Duration::from_secs(5);

/// A program to run.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    argv: Vec<String>,
    input: Vec<u8>,
    within: Duration,
}

impl Tool {
    /// A program that may take that long.
    pub(crate) fn new<S: Into<String>>(
        within: Duration,
        argv: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            input: Vec::new(),
            within,
        }
    }

    /// The same with something to read.
    pub(crate) fn reading(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// What it wrote on standard output. Dropping the future kills the program.
    pub(crate) async fn output(self) -> Result<String, KindError> {
        let (line, began) = (self.argv.join(" "), Instant::now());
        let (program, arguments) = self.argv.split_first().expect("a tool is a program");
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let expression = duct::cmd(program, arguments)
            .stdin_bytes(self.input)
            .stdout_capture()
            .stderr_capture()
            .unchecked();
        let started = expression.start().map_err(|source| KindError::Start {
            program: program.clone(),
            source,
            mend: mend(program),
        })?;
        let running = Running(std::sync::Arc::new(started));
        let waiting = std::sync::Arc::clone(&running.0);
        let within = self.within;
        let ended = tokio::task::spawn_blocking(move || {
            if let Some(ended) = waiting.wait_timeout(within)? {
                return Ok(Some(ended.clone()));
            }
            waiting.kill()?;
            // Reaped, unless somebody that it has started still holds its output.
            waiting.wait_timeout(REAP).map(|_killed| None)
        });
        let ended = ended.await.expect("waiting does not panic");
        tracing::debug!(took = ?began.elapsed(), "{line}");
        let failed = |status: String, said: &str| KindError::Failed {
            line: line.clone(),
            status,
            said: last_lines(said),
        };
        match ended {
            Ok(Some(output)) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Ok(Some(output)) => Err(failed(
                output.status.to_string(),
                &format!(
                    "{}{}",
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr)
                ),
            )),
            Ok(None) => Err(KindError::Late { line, within }),
            Err(error) => Err(failed(error.to_string(), "")),
        }
    }
}

/// A started program, killed with whoever waits for it.
struct Running(std::sync::Arc<Handle>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill() {
            tracing::debug!(%error, "it has ended already");
        }
    }
}

/// What to do about a program that cannot be started.
pub(crate) fn mend(program: &str) -> &'static str {
    match program {
        "kind" => "see https://kind.sigs.k8s.io/docs/user/quick-start",
        "kubectl" => "see https://kubernetes.io/docs/tasks/tools",
        "docker" => "see https://docs.docker.com/engine/install",
        _ => "it has to be in the PATH",
    }
}

/// The end of it, without blank lines and the stacks that Go programs show below their errors: a function, and below it, behind a tab, its
/// place.
pub(crate) fn last_lines(text: &str) -> String {
    let is_code = |line: &str| line.contains(".go:") || line.contains(".s:");
    let is_place = |line: &str| line.starts_with('\t') && is_code(line);
    let all: Vec<&str> = text.lines().filter(|it| !it.trim().is_empty()).collect();
    let is_function = |at: usize| all.get(at + 1).is_some_and(|next| is_place(next));
    let lines = all.iter().enumerate();
    let lines = lines.filter(|(at, line)| !is_place(line) && !is_function(*at));
    let lines: Vec<&str> = lines.map(|(_, line)| *line).collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines[from..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(20);

    fn shell(within: Duration, script: &str) -> Tool {
        Tool::new(within, ["sh", "-c", script])
    }

    #[tokio::test]
    async fn what_a_program_writes_is_told_and_what_a_failed_one_said_is_evidence() {
        let said = shell(LONG, "cat; echo more")
            .reading("input\n")
            .output()
            .await;
        assert_eq!(said.unwrap(), "input\nmore\n");
        let failed = shell(LONG, "echo out; echo why >&2; exit 3").output().await;
        let failed = failed.unwrap_err().to_string();
        assert!(failed.contains("exit status: 3\nout\nwhy"), "{failed}");
    }

    #[test]
    fn of_a_go_programs_stack_nothing_is_shown() {
        let said = "error: the kubelet is not healthy\n\
            k8s.io/kubernetes/cmd/kubeadm/app/cmd/phases/workflow.(*Runner).Run\n\
            \tk8s.io/kubernetes@v1.34.10/cmd/kubeadm/app/cmd/phases/workflow/runner.go:234\n\
            main.main\n\tk8s.io/kubernetes@v1.34.10/cmd/kubeadm/kubeadm.go:25\nruntime.goexit\n\
            \truntime/asm_amd64.s:1771\nsee journalctl -xeu kubelet.";
        let shown = last_lines(said);
        assert!(
            !shown.contains("Runner") && !shown.contains(".go:"),
            "{shown}"
        );
        assert!(
            shown.starts_with("error: ") && shown.ends_with("kubelet."),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_killed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("echo $$ > {}; exec sleep 600", file.path().display());
        let late = shell(SHORT, &script).output().await.unwrap_err();
        assert!(matches!(late, KindError::Late { .. }), "{late}");
        let pid = std::fs::read_to_string(file.path()).unwrap();
        let process = std::path::Path::new("/proc").join(pid.trim());
        assert!(!process.exists(), "{} lives", process.display());
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named_with_what_to_do() {
        let missing = Tool::new(LONG, ["a-program-that-nobody-has"])
            .output()
            .await;
        let missing = missing.unwrap_err().to_string();
        assert!(missing.contains("`a-program-that-nobody-has`"), "{missing}");
        assert!(missing.contains("it has to be in the PATH"), "{missing}");
    }
}
