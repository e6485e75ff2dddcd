//! The iptables commands that kube-proxy runs (`pkg/util/iptables`), with their exact arguments.
//!
//! One command at a time, whoever asks. The combined output of a failed one is part of its error,
//! as in `CombinedOutput`, except that standard error comes first here: iptables writes nothing to
//! standard output when it fails.

use std::{fmt, rc::Rc};

use super::{Event, config::Family, profile::Version, shared::Shared};
use crate::step::{Io, Output};

/// Exit code of a resource problem, such as a lock that stays taken.
const RESOURCE_PROBLEM: i32 = 4;

/// What an iptables that knows all of it is told about waiting for its lock, and what it is told from 1.34.
const WAIT_AND_LOOK: [&str; 4] = ["-w", "5", "-W", "100000"];
const WAIT: [&str; 2] = ["-w", "5"];

type Number = (u32, u32, u32);

/// Runs iptables commands of one family.
#[derive(Debug)]
pub(crate) struct Iptables {
    io: Io<Event>,
    shared: Rc<Shared>,
    family: Family,
    wait: &'static [&'static str],
    restore_wait: &'static [&'static str],
    random_fully: bool,
}

/// A command that ended badly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    exit: i32,
    output: String,
}

impl Failure {
    pub(crate) fn of(output: Output) -> Self {
        let mut text = output.stderr;
        text.push_str(&output.stdout);
        Self {
            exit: output.exit,
            output: text,
        }
    }

    /// As `exec.ExitError` prints itself.
    pub(crate) fn status(&self) -> String {
        format!("exit status {}", self.exit)
    }

    /// What the command said.
    pub(crate) fn output(&self) -> &str {
        &self.output
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit status {}: {}", self.exit, self.output)
    }
}

/// Whether a chain is there.
#[derive(Debug)]
pub(crate) enum Exists {
    Yes,
    No,
    /// Nobody can say: the lock was taken all the time.
    Busy(Failure),
}

impl Iptables {
    /// Asks iptables for its version; an error when it cannot be run at all.
    pub(crate) async fn probe(
        io: Io<Event>,
        family: Family,
        shared: Rc<Shared>,
        release: &Version,
    ) -> Result<Self, String> {
        let longest: &'static [&'static str] = if release.tells_wait_interval() {
            &WAIT_AND_LOOK
        } else {
            &WAIT
        };
        let mut iptables = Self {
            io,
            shared,
            family,
            wait: longest,
            restore_wait: longest,
            random_fully: true,
        };
        let program = iptables.program("");
        let output = iptables
            .io
            .run(&[&program, "--version"], String::new())
            .await;
        if output.exit != 0 {
            let failure = Failure::of(output);
            return Err(format!(
                "{program} is not available on this host: {failure}"
            ));
        }
        // The real one, too, takes the oldest version for one that it cannot read.
        let version = version(&output.stdout).unwrap_or((1, 4, 11));
        iptables.wait = match version {
            (1, 6, 1..) | (1, 7.., _) | (2.., _, _) => longest,
            (1, 4, 22..) | (1, 5..=6, _) => &WAIT,
            (1, 4, 20..) => &["-w"],
            _ => &[],
        };
        let new = version >= (1, 6, 2);
        iptables.restore_wait = if new { longest } else { &[] };
        iptables.random_fully = new;
        Ok(iptables)
    }

    /// Whether `MASQUERADE` takes `--random-fully`.
    pub(crate) fn random_fully(&self) -> bool {
        self.random_fully
    }

    /// Makes a chain unless it is there.
    pub(crate) async fn ensure_chain(&self, table: &str, chain: &str) -> Result<(), String> {
        let output = self.iptables(&["-N", chain, "-t", table]).await;
        match output.exit {
            // 1: it exists.
            0 | 1 => Ok(()),
            _ => {
                let failure = Failure::of(output);
                Err(format!("error creating chain {chain:?}: {failure}"))
            }
        }
    }

    /// Puts a rule at the top of a chain unless the chain has it.
    pub(crate) async fn ensure_rule(
        &self,
        table: &str,
        chain: &str,
        rule: &[&str],
    ) -> Result<(), String> {
        let words = |op| [&[op, chain, "-t", table], rule].concat();
        let checked = self.iptables(&words("-C")).await;
        match checked.exit {
            0 => return Ok(()),
            // 1: it is not there.
            1 => {}
            _ => {
                let failure = Failure::of(checked);
                return Err(format!("error checking rule: {failure}"));
            }
        }
        let inserted = self.iptables(&words("-I")).await;
        if inserted.exit == 0 {
            return Ok(());
        }
        let failure = Failure::of(inserted);
        Err(format!("error appending rule: {failure}"))
    }

    /// Whether a chain is there.
    pub(crate) async fn chain_exists(&self, table: &str, chain: &str) -> Exists {
        let output = self.iptables(&["-S", chain, "-t", table]).await;
        match output.exit {
            0 => Exists::Yes,
            RESOURCE_PROBLEM => Exists::Busy(Failure::of(output)),
            _ => Exists::No,
        }
    }

    /// The names of a table's chains.
    pub(crate) async fn chains(&self, table: &str) -> Result<Vec<String>, Failure> {
        let program = self.program("-save");
        let output = self.run(&[&program, "-t", table], String::new()).await;
        if output.exit != 0 {
            return Err(Failure::of(output));
        }
        let lines = output.stdout.lines().filter_map(|it| it.strip_prefix(':'));
        let names = lines.filter_map(|line| line.split(' ').next());
        Ok(names.map(str::to_owned).collect())
    }

    /// Restores both tables from one input, leaving alone what it does not declare.
    pub(crate) async fn restore(&self, input: String) -> Result<(), Failure> {
        let program = self.program("-restore");
        let words = [
            &[program.as_str()],
            self.restore_wait,
            &["--noflush", "--counters"],
        ]
        .concat();
        let output = self.run(&words, input).await;
        match output.exit {
            0 => Ok(()),
            _ => Err(Failure::of(output)),
        }
    }

    async fn iptables(&self, words: &[&str]) -> Output {
        let program = self.program("");
        let words = [&[program.as_str()], self.wait, words].concat();
        self.run(&words, String::new()).await
    }

    async fn run(&self, words: &[&str], input: String) -> Output {
        let _alone = self.shared.lock().await;
        self.io.run(words, input).await
    }

    fn program(&self, suffix: &str) -> String {
        let base = match self.family {
            Family::Ipv4 => "iptables",
            Family::Ipv6 => "ip6tables",
        };
        format!("{base}{suffix}")
    }
}

/// `iptables v1.8.9 (nf_tables)`.
fn version(text: &str) -> Option<Number> {
    let word = text
        .split_whitespace()
        .filter_map(|word| word.strip_prefix('v'))
        .find(|word| word.starts_with(|it: char| it.is_ascii_digit()))?;
    let mut parts = word.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?, parts.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_iptables_says() {
        assert_eq!(version("iptables v1.8.9 (nf_tables)\n"), Some((1, 8, 9)));
        assert_eq!(version("iptables v1.6.0"), Some((1, 6, 0)));
        assert_eq!(version("iptables vintage"), None);
    }
}
