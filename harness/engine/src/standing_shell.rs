//! A shell that stands in a place and reads commands, one after the other: to start a process in a container takes Docker, or the API, longer
//! than most commands take.

use std::hash::{BuildHasher, Hasher, RandomState};

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
};

use crate::{cluster::Process, shell::quoted};

/// See the module. It is of no use any more when a command was given up, and is killed with this.
#[derive(Debug)]
pub struct StandingShell {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// Stands after what a command has written.
    token: String,
    child: Child,
}

/// What a command of it came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its exit status, a number.
    pub status: String,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ran {
    /// Whether it succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == "0"
    }

    /// Its standard output, or how it failed.
    pub(crate) fn output(self) -> Result<String, String> {
        if self.is_success() {
            return Ok(self.stdout);
        }
        let Self { status, stderr, .. } = self;
        Err(format!("exit status: {status}: {}", stderr.trim()))
    }
}

impl StandingShell {
    /// Of a process that is one, `sh`. An error is that its input and output are not ours.
    pub fn of(process: Process) -> Result<Self, String> {
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

    /// Whether it has not ended.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Runs a command, with lines to read or nothing. An error is what was said when the shell itself ended.
    pub async fn run(&mut self, argv: &[String], lines: &str) -> Result<Ran, String> {
        let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
        let (words, token) = (words.join(" "), &self.token);
        // The shell's input is the shell's. In braces nothing of it runs if whoever writes it is broken off.
        let reads = if lines.is_empty() {
            "</dev/null".to_owned()
        } else {
            let end = if lines.ends_with('\n') { "" } else { "\n" };
            format!("<<'{token}'\n{lines}{end}{token}")
        };
        let script = format!(
            "{{ {words} {reads}\n}}\nprintf '\\n%s %s\\n' {token} $?; printf '\\n%s\\n' {token} >&2\n"
        );
        // One that does not read says itself what was wrong.
        drop(self.stdin.write_all(script.as_bytes()).await);
        let out = until(&mut self.stdout, token);
        let err = until(&mut self.stderr, token);
        match tokio::join!(out, err) {
            (Ok((stdout, status)), Ok((stderr, _))) => Ok(Ran {
                status,
                stdout,
                stderr,
            }),
            // Why it ended stands in either.
            (out, err) => {
                let [out, err] = [out, err].map(|it| it.map_or_else(|said| said, |(said, _)| said));
                Err(format!("{out}{err}"))
            }
        }
    }
}

/// Reads up to the token: what stands before it, and after it in its line. An error is what was there without it.
async fn until(
    from: &mut (impl AsyncBufRead + Unpin),
    token: &str,
) -> Result<(String, String), String> {
    let (mut text, mut line) = (String::new(), Vec::new());
    loop {
        line.clear();
        match from.read_until(b'\n', &mut line).await {
            Ok(0) => return Err(text),
            Ok(_) => {}
            Err(error) => return Err(format!("{text}{error}")),
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(rest) = line.strip_prefix(token) {
            // The line break before the token is ours.
            text.pop();
            return Ok((text, rest.trim().to_owned()));
        }
        text.push_str(&line);
    }
}
