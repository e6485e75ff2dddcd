//! A core under a stepped clock, and where its commands go.

use std::{cell::RefCell, rc::Rc, time::Duration};

use chainbreak_agents::{
    felix::{self, Config, Event, Pool, Workload},
    step::{Command, LogLine, Output, Reply, Stepper, Wanted},
};
use serde_json::{Value, json};

/// Runs a command.
pub(crate) type Exec = Rc<RefCell<dyn FnMut(&Command) -> Output>>;

/// A core, Felix unless said otherwise, whose clock moves only when told. Commands take no time on it.
pub(crate) struct Node<E = Event> {
    stepper: Stepper<E>,
    exec: Exec,
    now: Duration,
    wake_at: Option<Duration>,
    /// Everything logged.
    pub(crate) logs: Vec<LogLine>,
    /// Every command, with the time it ran.
    pub(crate) commands: Vec<(Duration, Command, Output)>,
    /// Why it exited.
    pub(crate) exited: Option<String>,
}

pub(crate) fn config(version: &str) -> Config {
    Config {
        version: version.parse().unwrap(),
        node_name: "n1".to_owned(),
        env: felix::manifest_environment(),
        ipv6: false,
        programs: false,
        seed: 1,
    }
}

pub(crate) fn workload(interface: &str) -> Workload {
    Workload {
        namespace: "default".to_owned(),
        name: interface.to_owned(),
        interface: interface.to_owned(),
        profiles: vec!["kns.default".to_owned(), "ksa.default.default".to_owned()],
        addresses: vec![],
    }
}

pub(crate) fn pool() -> Pool {
    Pool {
        cidr: "10.20.0.0/16".parse().unwrap(),
        nat_outgoing: true,
        vxlan: false,
    }
}

impl Node {
    /// A Felix that was told nothing yet.
    pub(crate) fn new(config: Config, exec: Exec) -> Self {
        Self::of(Stepper::new(move |io| felix::run(io, config)), exec)
    }

    /// A Felix of v3.28.1 that has read its configuration and is in sync.
    pub(crate) fn started(spec: Value, exec: Exec) -> Self {
        Self::started_as(config("v3.28.1"), spec, exec)
    }

    pub(crate) fn started_as(config: Config, spec: Value, exec: Exec) -> Self {
        let mut node = Self::new(config, exec);
        node.configure(spec);
        node.tell(Event::InSync);
        node
    }

    pub(crate) fn configure(&mut self, spec: Value) {
        let Value::Object(spec) = spec else {
            panic!("a spec is an object")
        };
        self.tell(Event::Config(spec));
    }
}

impl<E> Node<E> {
    /// A core that was told nothing yet.
    pub(crate) fn of(stepper: Stepper<E>, exec: Exec) -> Self {
        let mut node = Self {
            stepper,
            exec,
            now: Duration::ZERO,
            wake_at: None,
            logs: Vec::new(),
            commands: Vec::new(),
            exited: None,
        };
        node.step(Reply::Tick);
        node
    }

    /// When it wants to be woken, counted from now.
    pub(crate) fn wakes_in(&self) -> Option<Duration> {
        self.wake_at.map(|at| at.saturating_sub(self.now))
    }

    /// Tells it something and lets it do what it does at once, with the pauses of its throttle.
    pub(crate) fn tell(&mut self, event: E) {
        self.step(Reply::Event(event));
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self
            .wake_at
            .filter(|at| *at <= end && self.exited.is_none())
        {
            self.now = self.now.max(at);
            self.step(Reply::Tick);
        }
        self.now = end;
    }

    fn step(&mut self, reply: Reply<E>) {
        let mut replies = vec![reply];
        while let Some(reply) = replies.pop() {
            let Wanted {
                run,
                points: _,
                logs,
                wake_at,
                exited,
            } = self.stepper.step(self.now, reply);
            self.logs.extend(logs);
            self.wake_at = wake_at;
            self.exited = self.exited.take().or(exited);
            for (id, command) in run {
                let output = (self.exec.borrow_mut())(&command);
                self.commands.push((self.now, command, output.clone()));
                replies.push(Reply::Ran(id, output));
            }
        }
    }

    /// How many writes there were.
    pub(crate) fn restores(&self) -> usize {
        self.runs("-restore", "").len()
    }

    /// The times at which a table was read or written.
    pub(crate) fn runs(&self, verb: &str, table: &str) -> Vec<Duration> {
        let is_it = |command: &Command| {
            let section = format!("*{table}");
            command.argv[0].contains("tables")
                && command.argv[0].ends_with(verb)
                && (table.is_empty()
                    || command.argv.contains(&table.to_owned())
                    || command.input.starts_with(&section))
        };
        let runs = self
            .commands
            .iter()
            .filter(|(_, command, _)| is_it(command));
        runs.map(|(at, ..)| *at).collect()
    }

    /// The logged lines that contain the text.
    pub(crate) fn logged(&self, text: &str) -> Vec<&str> {
        let lines = self.logs.iter().map(|line| line.text.as_str());
        lines.filter(|line| line.contains(text)).collect()
    }

    /// Every write succeeded, at the first try.
    pub(crate) fn assert_no_failures(&self) {
        let failed = self.commands.iter().filter(|(_, command, output)| {
            command.argv[0].ends_with("restore") && output.exit != 0
        });
        let failed: Vec<_> = failed.collect();
        assert!(failed.is_empty(), "{failed:#?}");
        assert_eq!(self.exited, None);
    }
}

/// The configuration of a BPF-mode Felix that cleans up after kube-proxy.
pub(crate) fn bpf() -> Value {
    json!({"bpfEnabled": true})
}
