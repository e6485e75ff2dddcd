//! A cluster of one node for tests, where only agents and the gate answer.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_model::names::{AgentName, NodeName};
use futures::{StreamExt, stream::BoxStream};

use crate::{
    cluster::{
        AgentDied, Cluster, Command, ExecError, Leftovers, Place, Process, Signal, SignalError,
    },
    gate::Gate,
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
}

impl Fake {
    pub(crate) fn cluster(self) -> (Arc<Self>, Arc<dyn Cluster>) {
        let fake = Arc::new(self);
        let cluster = Arc::clone(&fake);
        (fake, cluster)
    }

    pub(crate) fn signals(&self) -> Vec<String> {
        self.signals.lock().expect("no test panicked").clone()
    }
}

#[async_trait]
impl Cluster for Fake {
    fn api(&self) -> kube::Client {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        kube::Client::try_from(config).expect("a client that nobody asks")
    }

    fn places(&self) -> Vec<(Place, IpAddr)> {
        vec![(Place::Node("n1".into()), [10, 0, 1, 1].into())]
    }

    async fn exec(&self, at: &Place, _: &Command) -> Result<Process, ExecError> {
        Err(ExecError {
            place: at.to_string(),
            command: "anything".to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

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

    async fn renew(
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

    fn agent_logs(
        &self,
        _: AgentName,
        _: &NodeName,
    ) -> BoxStream<'static, Result<String, AgentDied>> {
        futures::stream::pending().boxed()
    }

    fn account(&self, _: &NodeName) -> String {
        String::new()
    }

    fn gate(&self) -> Option<Gate> {
        Some(self.gate.clone())
    }

    async fn raze(&self) -> Result<(), Leftovers> {
        Ok(())
    }
}
