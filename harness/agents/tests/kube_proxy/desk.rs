//! A desk on which a core is stepped: it hands commands to a kernel, real or invented, keeps what
//! was run and said, and lets time pass from one deadline to the next.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    rc::Rc,
    time::Duration,
};

use chainbreak_agents::{
    kube_proxy::{Config, Event, Health, run},
    step::{Command, LogLine, Output, Reply, Stepper, Wanted},
};
use chainbreak_netfilter::{Refusal, Rule, Ruleset, apply, join};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// What runs commands.
pub(crate) trait Kernel {
    fn run(&mut self, command: &Command) -> Output;
}

pub(crate) struct Desk<K> {
    stepper: Stepper<Event>,
    wake_at: Option<Duration>,
    pub(crate) now: Duration,
    pub(crate) kernel: K,
    /// Every command with its time.
    pub(crate) ran: Vec<(Duration, Command)>,
    pub(crate) logs: Vec<LogLine>,
    /// What is told while the core stands at the next point that it reaches.
    pub(crate) meanwhile: Vec<Event>,
    /// The points that it reached.
    pub(crate) reached: Vec<&'static str>,
    pub(crate) exited: Option<String>,
    /// Everything that was published for the health servers.
    pub(crate) health: Rc<RefCell<Vec<Health>>>,
}

impl<K: Kernel> Desk<K> {
    /// Starts a kube-proxy that has heard nothing of the API yet.
    pub(crate) fn new(config: Config, kernel: K) -> Self {
        let health = Rc::<RefCell<Vec<Health>>>::default();
        let published = Rc::clone(&health);
        let publish = move |health: &Health| published.borrow_mut().push(health.clone());
        let mut desk = Self {
            stepper: Stepper::new(|io| run(io, config, publish)),
            wake_at: None,
            now: Duration::ZERO,
            kernel,
            ran: Vec::new(),
            logs: Vec::new(),
            meanwhile: Vec::new(),
            reached: Vec::new(),
            exited: None,
            health,
        };
        desk.step(Reply::Tick);
        desk
    }

    /// Starts one that has read the API and synced.
    pub(crate) fn synced(
        config: Config,
        kernel: K,
        events: impl IntoIterator<Item = Event>,
    ) -> Self {
        let mut desk = Self::new(config, kernel);
        for event in events {
            desk.tell(event);
        }
        desk.tell(Event::ServicesSynced);
        desk.tell(Event::SlicesSynced);
        desk
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.step(Reply::Event(event));
    }

    /// Tells something when the limiter is at rest, so that the sync comes at once.
    pub(crate) fn tell_later(&mut self, event: Event) {
        self.pass(5 * SECOND);
        self.tell(event);
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.wake_at.filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.step(Reply::Tick);
        }
        self.now = until;
    }

    fn step(&mut self, reply: Reply<Event>) {
        let mut replies = vec![reply];
        while let Some(reply) = replies.pop() {
            let Wanted {
                run,
                points,
                logs,
                wake_at,
                exited,
            } = self.stepper.step(self.now, reply);
            self.wake_at = wake_at;
            self.logs.extend(logs);
            self.exited = self.exited.take().or(exited);
            for (id, command) in run {
                let output = self.kernel.run(&command);
                self.ran.push((self.now, command));
                replies.push(Reply::Ran(id, output));
            }
            for (id, name) in points {
                self.reached.push(name);
                replies.push(Reply::Ran(id, Output::default()));
                replies.extend(self.meanwhile.drain(..).rev().map(Reply::Event));
            }
        }
    }

    /// Forgets what was run and said so far.
    pub(crate) fn forget(&mut self) {
        self.ran.clear();
        self.logs.clear();
    }

    /// The inputs of all restores.
    pub(crate) fn restores(&self) -> Vec<&str> {
        let restores = self
            .ran
            .iter()
            .filter(|(_, it)| program(it) == "iptables-restore");
        restores.map(|(_, it)| it.input.as_str()).collect()
    }

    /// When restores ran.
    pub(crate) fn restore_times(&self) -> Vec<Duration> {
        let restores = self
            .ran
            .iter()
            .filter(|(_, it)| program(it) == "iptables-restore");
        restores.map(|(at, _)| *at).collect()
    }

    pub(crate) fn last_restore(&self) -> &str {
        self.restores().last().expect("something was restored")
    }

    /// Commands as one would type them, of one program.
    pub(crate) fn typed(&self, name: &str) -> Vec<String> {
        let those = self.ran.iter().filter(|(_, it)| program(it) == name);
        those.map(|(_, it)| it.argv.join(" ")).collect()
    }

    /// How many jumps and chains were looked after since the desk forgot: a full sync does so.
    pub(crate) fn ensured(&self) -> usize {
        let checks = self
            .ran
            .iter()
            .filter(|(_, it)| it.argv.contains(&"-C".to_owned()));
        checks.count()
    }

    /// Everything said, an entry a line break apart, with severity and site.
    pub(crate) fn said(&self) -> String {
        let mut text = String::new();
        for line in &self.logs {
            writeln!(text, "{:?} {}] {}", line.severity, line.site, line.text).unwrap();
        }
        text
    }
}

fn program(command: &Command) -> &str {
    &command.argv[0]
}

pub(crate) fn failed(exit: i32, stderr: &str) -> Output {
    Output {
        exit,
        stderr: stderr.to_owned(),
        ..Output::default()
    }
}

fn printed(stdout: impl Into<String>) -> Output {
    Output {
        stdout: stdout.into(),
        ..Output::default()
    }
}

/// A netfilter that knows chains and jumps but no packets, and fails when told to.
#[derive(Debug, Default)]
pub(crate) struct Invented {
    pub(crate) rules: Ruleset,
    /// What is listed of conntrack's table.
    pub(crate) flows: String,
    /// The counters of `nfnetlink_acct`, in a kernel that has it.
    pub(crate) counters: Option<BTreeSet<String>>,
    /// A part of a command line, and what it gives instead of success.
    pub(crate) outputs: BTreeMap<&'static str, Output>,
}

impl Invented {
    /// One that has `nfnetlink_acct`.
    pub(crate) fn counting() -> Self {
        Self {
            counters: Some(BTreeSet::new()),
            ..Self::default()
        }
    }

    /// Somebody else restores something.
    pub(crate) fn plant(&mut self, input: &str) {
        apply(&mut self.rules, &["iptables-restore", "--noflush"], input).unwrap();
    }

    /// Loses a chain, as if somebody else had removed it.
    pub(crate) fn lose(&mut self, table: &str, chain: &str) {
        self.rules.tables[table].chains.shift_remove(chain);
    }

    fn change(&mut self, command: &Command) -> Output {
        match apply(&mut self.rules, &command.argv, &command.input) {
            Ok(()) => Output::default(),
            Err(refusal @ Refusal::MissingTarget { .. }) => failed(2, &format!("{refusal}\n")),
            Err(refusal) => failed(1, &format!("{refusal}\n")),
        }
    }

    fn save(&self, table: &str) -> Output {
        let mut saved = Ruleset::default();
        if let Some(rules) = self.rules.tables.get(table) {
            saved.tables.insert(table.to_owned(), rules.clone());
        }
        printed(saved.to_string())
    }

    fn counter(&mut self, what: &str, name: &str) -> Output {
        match (&mut self.counters, what) {
            (None, _) => failed(22, "invalid argument"),
            (Some(counters), "get") if counters.contains(name) => Output::default(),
            (Some(_), "get") => failed(2, "no such file or directory"),
            (Some(counters), _) => failed(i32::from(!counters.insert(name.to_owned())), "twice"),
        }
    }

    fn has(&self, table: &str, chain: &str, rule: &[&str]) -> bool {
        let rule = Rule::new(join(rule.iter().copied()));
        let chain = self.rules.chain(table, chain);
        chain.is_some_and(|chain| chain.rules.iter().any(|it| it.same(&rule)))
    }
}

impl Kernel for Invented {
    fn run(&mut self, command: &Command) -> Output {
        let typed = command.argv.join(" ");
        let told = self.outputs.iter().find(|(part, _)| typed.contains(**part));
        if let Some((_, output)) = told {
            return output.clone();
        }
        let words: Vec<&str> = command.argv.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["iptables", "--version"] => printed("iptables v1.8.9 (legacy)\n"),
            ["iptables-save", "-t", table] => self.save(table),
            ["iptables-restore", ..] => self.change(command),
            ["nft", "--version"] => failed(1, ""),
            ["conntrack", "-D", ..] => Output::default(),
            ["netlink", "conntrack", "list", "ipv4"] => printed(self.flows.clone()),
            ["netlink", "conntrack", "delete", "ipv4"] => printed(command.input.clone()),
            ["netlink", "nfacct", what, name] => self.counter(what, name),
            ["iptables", "-w", "5", "-W", "100000", rest @ ..]
            | ["iptables", "-w", "5", rest @ ..] => match rest {
                ["-S", chain, "-t", table] => {
                    let there = self.rules.chain(table, chain).is_some();
                    failed(i32::from(!there), "")
                }
                ["-C", chain, "-t", table, rule @ ..] => {
                    failed(i32::from(!self.has(table, chain, rule)), "")
                }
                ["-N" | "-I", ..] => self.change(command),
                _ => panic!("kube-proxy does not run {typed:?}"),
            },
            _ => panic!("kube-proxy does not run {typed:?}"),
        }
    }
}
