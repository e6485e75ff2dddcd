//! The run loop against a scripted backend: whatever happens, the history says so and the cluster is
//! destroyed.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_engine::{
    backend::{Backend, BackendError, RaiseError},
    cluster::{AgentDied, Cluster, Command, ExecError, Leftovers, Place, Process, Recording},
    log::EventLog,
    logbook::{AgentLog, LogItem},
    run::{After, READY_WITHIN, run},
};
use chainbreak_model::{
    case::{
        AgentSource, Capabilities, Case, ClusterSpec, Expect, IptablesVariant, KubeProxySpec,
        ProxyMode,
    },
    event::{Event, EventKind, Phase},
    names::{AgentName, NodeName},
};
use futures::StreamExt;
use tokio::sync::{mpsc, watch};

/// What the scripted backend does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    CannotRaise,
    /// The API never answers: the run waits.
    Silent,
    /// As silent, and something cannot be taken down.
    LeavesThings,
    /// Raising never ends.
    RaisesForEver,
    /// As silent, and the agent of its node is dead.
    AgentDies,
}

struct Fake {
    script: Script,
    destroyed: Arc<AtomicUsize>,
}

struct FakeCluster {
    script: Script,
    destroyed: Arc<AtomicUsize>,
}

#[async_trait]
impl Backend for Fake {
    async fn survey(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn raise(
        &self,
        _: &Case,
        _: &EventLog,
        _: Duration,
    ) -> Result<Box<dyn Cluster>, RaiseError> {
        if self.script == Script::CannotRaise {
            let what = "make a namespace".to_owned();
            return Err(RaiseError {
                what,
                source: "no more room".into(),
            });
        }
        if self.script == Script::RaisesForEver {
            std::future::pending::<()>().await;
        }
        Ok(Box::new(FakeCluster {
            script: self.script,
            destroyed: Arc::clone(&self.destroyed),
        }))
    }

    async fn finish(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

#[async_trait]
impl Cluster for FakeCluster {
    fn api(&self) -> kube::Client {
        // Nothing listens on this port of the loopback.
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        kube::Client::try_from(config).expect("a client")
    }

    fn places(&self) -> Vec<(Place, IpAddr)> {
        match self.script {
            Script::AgentDies => vec![(Place::Node("n1".into()), [10, 0, 1, 1].into())],
            _ => Vec::new(),
        }
    }

    /// Nothing can be run, and nobody is told so while the run waits.
    async fn exec(&self, at: &Place, command: &Command) -> Result<Process, ExecError> {
        let counted = "-c".to_owned();
        match command {
            Command::Argv(argv) if argv.contains(&counted) => Err(ExecError {
                place: at.to_string(),
                command: argv.join(" "),
                source: std::io::ErrorKind::NotFound.into(),
            }),
            _ => std::future::pending().await,
        }
    }

    fn sees_within(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn agent_logs(&self, _: AgentName, _: &NodeName) -> AgentLog {
        let died = || Err(AgentDied("exit status 1; it said last:\nno use".to_owned()));
        match self.script {
            Script::AgentDies => {
                futures::stream::iter([Ok(LogItem::Entry("no use".to_owned())), died()]).boxed()
            }
            _ => futures::stream::pending().boxed(),
        }
    }

    fn account(&self, _: &NodeName) -> String {
        String::new()
    }

    fn recording(&self) -> Option<&dyn Recording> {
        Some(self)
    }

    async fn destroy(&self) -> Result<(), Leftovers> {
        self.destroyed.fetch_add(1, Ordering::SeqCst);
        match self.script {
            Script::LeavesThings => Err(Leftovers(vec!["veth1".into(), "veth2".into()])),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Recording for FakeCluster {
    async fn exec_as(&self, _: &str, at: &Place, command: &Command) -> Result<Process, ExecError> {
        self.exec(at, command).await
    }
}

fn case() -> Case {
    Case {
        scenario: "scenario".into(),
        variant: "variant".into(),
        cell: Default::default(),
        about: Default::default(),
        incident: Default::default(),
        file: Arc::new("scenario.yaml".into()),
        line: None,
        cluster: ClusterSpec::new(1, IptablesVariant::Legacy),
        manifests: Arc::default(),
        traffic: Default::default(),
        timeline: Default::default(),
        promises: Default::default(),
        expect: Expect::Healthy,
        by: None,
        seed: 1,
        repetition: None,
    }
}

/// Runs the case, stopped at once, and returns the history and how often the cluster was destroyed.
async fn stopped_run(script: Script) -> (Vec<Event>, usize) {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let fake = Fake {
        script,
        destroyed: Arc::clone(&destroyed),
    };
    let (log, mut events) = EventLog::new();
    let (stop, stopped) = watch::channel(false);
    // Not before the run has begun: it must notice, wherever it is.
    tokio::spawn(async move {
        tokio::task::yield_now().await;
        stop.send_replace(true);
        std::future::pending::<()>().await;
    });
    run(&fake, &case(), &log, READY_WITHIN, stopped, After::Destroy).await;
    drop(log);
    (drain(&mut events), destroyed.load(Ordering::SeqCst))
}

fn drain(events: &mut mpsc::UnboundedReceiver<Event>) -> Vec<Event> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

fn troubles(events: &[Event]) -> Vec<&str> {
    let mut troubles = Vec::new();
    for event in events {
        if let EventKind::Trouble { text } = &event.what {
            troubles.push(text.as_str());
        }
    }
    troubles
}

#[tokio::test]
async fn a_cluster_that_cannot_be_raised_is_trouble_and_the_history_still_ends() {
    let (events, destroyed) = stopped_run(Script::CannotRaise).await;
    assert_eq!(
        troubles(&events),
        ["could not make a namespace: no more room"]
    );
    assert_eq!(
        events.last().map(|event| &event.what),
        Some(&EventKind::Phase(Phase::Destroyed))
    );
    assert_eq!(destroyed, 0, "nothing was raised");
}

#[tokio::test]
async fn an_interrupted_run_says_so_and_destroys_its_cluster() {
    let (events, destroyed) = stopped_run(Script::Silent).await;
    assert_eq!(
        troubles(&events),
        ["could not finish: the run was interrupted"]
    );
    assert_eq!(
        events.last().map(|event| &event.what),
        Some(&EventKind::Phase(Phase::Destroyed))
    );
    assert_eq!(destroyed, 1);
}

#[tokio::test]
async fn a_run_can_be_interrupted_while_its_cluster_is_raised() {
    let (events, _) = stopped_run(Script::RaisesForEver).await;
    assert_eq!(
        troubles(&events),
        ["could not finish: the run was interrupted"]
    );
}

#[tokio::test]
async fn everything_left_behind_is_named() {
    let (events, _) = stopped_run(Script::LeavesThings).await;
    assert!(
        troubles(&events).contains(&"left behind: veth1; veth2"),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_cluster_that_is_not_ready_in_the_time_that_it_has_is_trouble_that_says_the_time() {
    let fake = Fake {
        script: Script::RaisesForEver,
        destroyed: Arc::default(),
    };
    let (log, mut events) = EventLog::new();
    let (_stop, stopped) = watch::channel(false);
    let within = Duration::from_millis(20);
    run(&fake, &case(), &log, within, stopped, After::Destroy).await;
    drop(log);
    assert_eq!(
        troubles(&drain(&mut events)),
        ["could not raise the cluster: it took more than 20ms"]
    );
}

#[tokio::test]
async fn an_agent_that_is_dead_for_good_ends_the_run_with_its_last_words() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let fake = Fake {
        script: Script::AgentDies,
        destroyed: Arc::clone(&destroyed),
    };
    let mut case = case();
    case.cluster.kube_proxy = Some(KubeProxySpec {
        mode: ProxyMode::Iptables,
        iptables: IptablesVariant::Legacy,
        version: "1.32".to_owned(),
        source: AgentSource::Path("/opt/kube-proxy".into()),
        min_sync_period: Duration::from_secs(1),
        sync_period: Duration::from_secs(5),
        full_sync_period: Duration::from_secs(3600),
        config: serde_json::Map::new(),
    });
    let (log, mut events) = EventLog::new();
    let (_stop, stopped) = watch::channel(false);
    run(&fake, &case, &log, READY_WITHIN, stopped, After::Destroy).await;
    drop(log);
    let events = drain(&mut events);
    let died = "could not keep kube-proxy on n1 running: exit status 1; it said last:\nno use";
    assert_eq!(troubles(&events), [died]);
    let said =
        |event: &Event| matches!(&event.what, EventKind::Log(entry) if entry.text == "no use");
    assert!(events.iter().any(said), "{events:?}");
    assert_eq!(destroyed.load(Ordering::SeqCst), 1);
}
