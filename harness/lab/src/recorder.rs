//! Every netfilter command of every agent becomes an event: who, where, what, and how it ended; what a model asks of
//! the kernel without a program, too, as a command of [`netlink`](driver::netlink). Before it runs, it passes the cluster's gate; the time for which it waits there is not part of the event's
//! `took_us`, but of the [`Output::took`] that a model sees.

use std::{
    io,
    time::{Duration, Instant},
};

use chainbreak_agents::{
    driver::{self, Exec},
    step::{Command, Output},
};
use chainbreak_engine::{
    gate::{Gate, base_name},
    log::EventLog,
};
use chainbreak_model::{
    event::{self, EventKind, Named},
    names::NodeName,
};
use futures::{FutureExt, future::LocalBoxFuture};
use tokio::process::Child;

use crate::place::PlaceThread;

/// So many bytes are kept of the connections that a `conntrack -R -` is given: a table that a step fills has 60,000 of them, 12 MB.
const CONNECTIONS_KEPT: usize = 16 * 1024;

/// Records the commands of one agent on one node: of a model, which runs them through this in the place
/// of its thread, or of a process, whose [shims](crate::shims) tell of them.
#[derive(Debug, Clone)]
pub struct Recorder {
    who: String,
    node: NodeName,
    log: EventLog,
    gate: Gate,
}

/// A command that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) argv: Vec<String>,
    pub(crate) input: String,
    /// See [`event::Command::named`].
    pub(crate) named: Vec<Named>,
    pub(crate) exit: i32,
    pub(crate) stderr: String,
    /// From its start.
    pub(crate) took: Duration,
    pub(crate) end: Instant,
}

impl Recorder {
    /// A recorder for one agent on one node, with a gate that nobody closes.
    pub fn new(who: impl Into<String>, node: NodeName, log: EventLog) -> Self {
        Self {
            who: who.into(),
            node,
            log,
            gate: Gate::default(),
        }
    }

    /// The same, but its commands pass this gate.
    #[must_use]
    pub fn behind(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    pub(crate) fn who(&self) -> &str {
        &self.who
    }

    /// Returns when a command may run.
    pub(crate) async fn pass(&self, argv: &[String]) {
        self.gate.pass(&self.who, &self.node, argv).await;
    }

    pub(crate) fn record(&self, ended: Ended) {
        let event = EventKind::Command(event::Command {
            who: self.who.clone(),
            node: self.node.clone(),
            input: kept(&ended.argv, ended.input),
            argv: ended.argv,
            exit: ended.exit,
            stderr: ended.stderr,
            took_us: u64::try_from(ended.took.as_micros()).unwrap_or(u64::MAX),
            named: ended.named,
        });
        self.log.append_at(self.log.at(ended.end), event);
    }
}

/// What is kept of an input: rules whole, of connections the first.
fn kept(argv: &[String], input: String) -> String {
    let connections = argv.first().is_some_and(|it| base_name(it) == "conntrack");
    if !connections || input.len() <= CONNECTIONS_KEPT {
        return input;
    }
    let mut end = 0;
    for line in input.split_inclusive('\n') {
        if end + line.len() > CONNECTIONS_KEPT {
            break;
        }
        end += line.len();
    }
    let (first, rest) = input.split_at(end);
    let (lines, bytes) = (rest.lines().count(), rest.len());
    format!("{first}# {lines} more lines, {bytes} bytes, are left out\n")
}

impl Exec for Recorder {
    fn run(&self, command: Command) -> LocalBoxFuture<'static, Output> {
        let recorder = self.clone();
        async move {
            let asked = Instant::now();
            recorder.pass(&command.argv).await;
            let begin = Instant::now();
            let output = if let Some(output) = driver::netlink::answer(&command) {
                recorder.keep(command, output, begin)
            } else {
                let child = driver::command::spawn(&command.argv);
                recorder.follow(child, command, begin).await
            };
            Output {
                took: output.took + (begin - asked),
                ..output
            }
        }
        .boxed_local()
    }

    /// A point passes the gate under its name, as a command does, and is no event.
    fn point(&self, name: &'static str) -> LocalBoxFuture<'static, ()> {
        let recorder = self.clone();
        async move { recorder.pass(&[name.to_owned()]).await }.boxed_local()
    }
}

impl Recorder {
    /// Runs a command in the given place, whatever the calling thread's is.
    pub(crate) async fn run_in(&self, place: &PlaceThread, command: Command) -> Output {
        self.pass(&command.argv).await;
        let begin = Instant::now();
        let child = place.spawn(&command.argv, |_| ()).await;
        self.follow(child, command, begin).await
    }

    async fn follow(&self, child: io::Result<Child>, command: Command, begin: Instant) -> Output {
        let output = driver::command::follow(child, &command, begin).await;
        self.keep(command, output, begin)
    }

    fn keep(&self, command: Command, output: Output, begin: Instant) -> Output {
        let end = begin + output.took;
        self.record(Ended {
            argv: command.argv,
            input: command.input,
            // It was given all of it when it began, and took no longer than it takes.
            named: Vec::new(),
            exit: output.exit,
            stderr: output.stderr.clone(),
            took: output.took,
            end,
        });
        output
    }
}

#[cfg(test)]
mod tests {
    use chainbreak_engine::gate::Matching;

    use super::*;

    fn command(argv: &[&str], input: &str) -> Command {
        Command {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            input: input.to_owned(),
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn each_command_is_recorded_with_input_exit_and_words() {
        let (log, mut events) = EventLog::new();
        let recorder = Recorder::new("felix", NodeName::from("n1"), log);
        let output = recorder
            .run(command(&["sh", "-c", "cat; echo no >&2; exit 4"], "in"))
            .await;
        assert_eq!((output.exit, output.stdout.as_str()), (4, "in"));
        let EventKind::Command(event) = events.recv().await.unwrap().what else {
            panic!("not a command");
        };
        assert_eq!((event.who.as_str(), event.input.as_str()), ("felix", "in"));
        assert_eq!((event.exit, event.stderr.as_str()), (4, "no\n"));
        assert!(u128::from(event.took_us) <= output.took.as_micros());
    }

    #[test]
    fn of_many_connections_the_first_are_kept_and_the_rest_is_counted() {
        let lines = "-A -p tcp -s 10.0.0.1 -d 10.0.0.2 --sport 1024 --dport 80\n".repeat(60_000);
        let argv = |words: &[&str]| command(words, "").argv;
        let short = kept(&argv(&["/usr/sbin/conntrack", "-R", "-"]), lines.clone());
        assert!(short.len() < CONNECTIONS_KEPT + 100, "{}", short.len());
        let whole = short.lines().filter(|line| line.ends_with("--dport 80"));
        let left = 60_000 - whole.count();
        let said = format!("\n# {left} more lines, {} bytes, are left out\n", left * 58);
        assert!(short.ends_with(&said), "{said}");
        let rules = kept(&argv(&["iptables-restore"]), lines.clone());
        assert_eq!(rules, lines);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_cannot_be_started_and_what_is_killed_have_a_shells_exit_codes() {
        let (log, _events) = EventLog::new();
        let recorder = Recorder::new("felix", NodeName::from("n1"), log);
        let output = recorder.run(command(&["no-such-program"], "")).await;
        assert_eq!(output.exit, 127);
        assert!(
            output.stderr.starts_with("no-such-program: "),
            "{}",
            output.stderr
        );
        let output = recorder.run(command(&["sh", "-c", "kill -9 $$"], "")).await;
        assert_eq!(output.exit, 128 + 9);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_a_command_waits_at_the_gate_is_the_agents_time_and_not_its_own() {
        let (log, mut events) = EventLog::new();
        let gate = Gate::default();
        let late = Duration::from_millis(300);
        gate.delay(Matching::default(), late);
        let recorder = Recorder::new("felix", NodeName::from("n1"), log).behind(gate);
        let output = recorder.run(command(&["true"], "")).await;
        assert!(output.took >= late, "{:?}", output.took);
        let EventKind::Command(event) = events.recv().await.unwrap().what else {
            panic!("not a command");
        };
        assert!(Duration::from_micros(event.took_us) < late, "{event:?}");
    }
}
