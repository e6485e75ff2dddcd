//! A cluster of one node and a host for tests, where only agents, their logs and the gate answer, and commands as told; and cases for it.

use std::{
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use chainbreak_model::{
    case::{ApiWay, Capabilities, Case, Dataplane, Step},
    event::Event,
    names::{AgentName, NodeName},
    plan::{Choice, Planned},
    verdict::PromiseVerdict,
};
use futures::future::BoxFuture;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    cluster::{
        AgentControl, Cluster, Command, Debt, Debts, ExecError, FelixProgram, Holding, Killing,
        LateLogs, Leftovers, NodeUpgrades, Place, Process, Reboots, Recording, Say, Signal,
        SignalError,
    },
    gate::Gate,
    logbook::{AgentLog, Logbook},
};

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) gate: Gate,
    /// What was done to agents.
    pub(crate) signals: Mutex<Vec<String>>,
    /// Which signal fails.
    pub(crate) refuses: Option<String>,
    /// Which signal is answered late.
    pub(crate) late: Option<(String, Duration)>,
    /// Signals are never answered.
    pub(crate) deaf: bool,
    pub(crate) logbook: Logbook,
    pub(crate) commands: Commands,
    /// Which commands were to run.
    pub(crate) asked: Mutex<Vec<String>>,
    /// It outlives the run: what was noted, and what was paid, stands among the commands.
    pub(crate) outlives: bool,
    /// Its nodes can be upgraded, by these versions; which were is among the signals.
    pub(crate) way: Option<Vec<String>>,
    /// Its Felix is a program.
    pub(crate) has_programs: bool,
}

/// What becomes of commands.
#[derive(Default)]
pub(crate) enum Commands {
    /// There are no programs.
    #[default]
    Missing,
    /// They never begin.
    Hang,
    /// That script is run in their place, so much later.
    Shell(String, Duration),
}

/// Has a case's Felix go over to eBPF mode, and do nothing else.
pub(crate) fn switch_to_ebpf(case: &mut Case) {
    let on = serde_json::Map::from_iter([(Dataplane::FIELD.to_owned(), true.into())]);
    case.timeline = vec![Step::Felix(on)].into();
}

/// The case of one node whose only promise is this one.
pub(crate) fn case(promise: &str) -> Case {
    let text = format!(
        "
name: faked
about: what a test observes
cluster: {{ nodes: 1, kube-proxy: {{ version: '1.32' }} }}
timeline: [settle: 1s]
promises: {{ it: {promise} }}
variants: {{ only: {{ expect: healthy }} }}
"
    );
    of(&text, "")
}

/// The only case of a scenario with these manifests, whose file is `pods.yaml`.
pub(crate) fn of(text: &str, manifests: &str) -> Case {
    let open = |_: &Path| Ok(manifests.as_bytes().to_vec());
    let scenario = chainbreak_model::read(Path::new("faked.yaml"), text.as_bytes(), &open)
        .unwrap_or_else(|error| panic!("{}", error.plain()));
    let choice = Choice {
        backend: "lab".to_owned(),
        ..Choice::default()
    };
    let here = [
        "lab",
        "iptables-legacy",
        "conntrack",
        "ipset",
        "nft",
        "nginx",
    ];
    let here = here.map(|name| (name.to_owned(), Ok(())));
    match chainbreak_model::plan(&scenario, &choice, &Capabilities(here.into())).swap_remove(0) {
        Planned::Run(case) => *case,
        skipped @ Planned::Skip(_) => panic!("{skipped:?}"),
    }
}

/// What a history comes to for the only promise of a case.
pub(crate) fn judged(case: &Case, events: &mut UnboundedReceiver<Event>) -> PromiseVerdict {
    let events: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    let verdict = chainbreak_model::judge(case, &events);
    let (_, judged) = verdict.promises.into_iter().next().expect("it has one");
    judged.verdict
}

impl Fake {
    pub(crate) fn cluster(self) -> (Arc<Self>, Arc<dyn Cluster>) {
        let fake = Arc::new(self);
        let cluster = Arc::clone(&fake);
        (fake, cluster)
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no test panicked").clone()
    }

    pub(crate) fn signals(&self) -> Vec<String> {
        self.signals.lock().expect("no test panicked").clone()
    }
}

#[async_trait]
impl Debts for Fake {
    async fn owe(&self, debt: &Debt) -> Result<u64, String> {
        let mut asked = self.asked.lock().expect("no test panicked");
        asked.push(format!("owe: {}", debt.text));
        Ok(asked.len() as u64)
    }

    async fn paid(&self, number: u64) -> Result<(), String> {
        let mut asked = self.asked.lock().expect("no test panicked");
        asked.push(format!("paid: {number}"));
        Ok(())
    }
}

#[async_trait]
impl Reboots for Fake {
    async fn forget_programs(&self, node: &NodeName) -> Result<(), SignalError> {
        let mut signals = self.signals.lock().expect("no test panicked");
        signals.push(format!("forget programs on {node}"));
        Ok(())
    }

    async fn begin(&self, node: &NodeName) -> Result<(), SignalError> {
        let mut signals = self.signals.lock().expect("no test panicked");
        signals.push(format!("{node} begins"));
        Ok(())
    }
}

#[async_trait]
impl NodeUpgrades for Fake {
    async fn way(&self, _: &[NodeName], _: &str) -> Result<Vec<String>, String> {
        self.way.clone().ok_or_else(|| "none".to_owned())
    }

    async fn upgrade(&self, node: &NodeName, to: &str, say: Say<'_>) -> Result<bool, String> {
        let mut signals = self.signals.lock().expect("no test panicked");
        signals.push(format!("{node} to {to}"));
        say(format!("{node} is drained"));
        Ok(true)
    }
}

#[async_trait]
impl Cluster for Fake {
    fn api(&self) -> kube::Client {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        kube::Client::try_from(config).expect("a client that nobody asks")
    }

    fn places(&self) -> Vec<(Place, IpAddr)> {
        vec![
            (Place::Node("n1".into()), [10, 0, 1, 1].into()),
            (Place::Host("db".to_owned()), [10, 0, 0, 1].into()),
        ]
    }

    async fn exec(&self, at: &Place, command: &Command) -> Result<Process, ExecError> {
        let words = match command {
            Command::Argv(argv) => argv.join(" "),
            Command::Probe => "probe".to_owned(),
        };
        self.asked.lock().expect("no test panicked").push(words);
        let failed = |source| ExecError {
            place: at.to_string(),
            command: "anything".to_owned(),
            source,
        };
        let (script, late) = match &self.commands {
            Commands::Missing => return Err(failed(std::io::ErrorKind::NotFound.into())),
            Commands::Hang => std::future::pending().await,
            Commands::Shell(script, late) => (script, *late),
        };
        tokio::time::sleep_until(tokio::time::Instant::now() + late).await;
        let mut shell = tokio::process::Command::new("sh");
        Process::spawn(shell.args(["-c", script])).map_err(failed)
    }

    fn felix_program(&self) -> Option<FelixProgram> {
        let felix = || FelixProgram::at("/calico-node".as_ref());
        self.has_programs.then(felix)
    }

    fn reboots(&self) -> Option<&dyn Reboots> {
        Some(self)
    }

    fn node_upgrades(&self) -> Option<&dyn NodeUpgrades> {
        self.way.as_ref().map(|_| self as &dyn NodeUpgrades)
    }

    fn debts(&self) -> Option<&dyn Debts> {
        self.outlives.then_some(self)
    }

    fn sees_within(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn agent_logs(&self, agent: AgentName, node: &NodeName) -> AgentLog {
        self.logbook.read(agent, node)
    }

    fn account(&self, _: &NodeName) -> String {
        String::new()
    }

    fn recording(&self) -> Option<&dyn Recording> {
        Some(self)
    }

    fn agent_control(&self) -> Option<&dyn AgentControl> {
        Some(self)
    }

    fn holding(&self) -> Option<&dyn Holding> {
        Some(&self.gate)
    }

    fn killing(&self) -> Option<&dyn Killing> {
        Some(self)
    }

    fn late_logs(&self) -> Option<&dyn LateLogs> {
        Some(self)
    }

    async fn destroy(&self) -> Result<(), Leftovers> {
        Ok(())
    }
}

#[async_trait]
impl Recording for Fake {
    async fn exec_as(&self, _: &str, at: &Place, command: &Command) -> Result<Process, ExecError> {
        self.exec(at, command).await
    }
}

#[async_trait]
impl AgentControl for Fake {
    async fn signal(
        &self,
        agent: AgentName,
        _: &NodeName,
        signal: Signal,
    ) -> Result<(), SignalError> {
        let said = format!("{signal:?} {agent}");
        let refused = self.refuses.as_ref() == Some(&said);
        let late = self.late.as_ref().filter(|(signal, _)| *signal == said);
        if let Some((_, by)) = late {
            tokio::time::sleep_until(tokio::time::Instant::now() + *by).await;
        }
        self.signals.lock().expect("no test panicked").push(said);
        if self.deaf {
            std::future::pending::<()>().await;
        }
        if refused {
            return Err(SignalError("it is dead".to_owned()));
        }
        Ok(())
    }

    async fn restart_with(
        &self,
        agent: AgentName,
        node: &NodeName,
        version: Option<&str>,
    ) -> Result<(), SignalError> {
        self.signal(agent, node, Signal::Stop).await?;
        let version = version.map(|version| format!("{agent} is {version}"));
        self.signals
            .lock()
            .expect("no test panicked")
            .extend(version);
        self.signal(agent, node, Signal::Run).await
    }

    async fn replace_pod(
        &self,
        agent: AgentName,
        _: &NodeName,
        api: Option<ApiWay>,
    ) -> Result<(), SignalError> {
        let mut signals = self.signals.lock().expect("no test panicked");
        signals.push(format!("{agent} has another pod, {api:?}"));
        Ok(())
    }
}

#[async_trait]
impl Killing for Fake {
    async fn kill(&self, _: u32) -> std::io::Result<()> {
        let mut signals = self.signals.lock().expect("no test panicked");
        signals.push("kill".to_owned());
        Ok(())
    }
}

impl LateLogs for Fake {
    fn log_read(
        &self,
        agent: AgentName,
        node: &NodeName,
        until: Instant,
    ) -> BoxFuture<'static, ()> {
        self.logbook.read_past(agent, node, until)
    }
}
