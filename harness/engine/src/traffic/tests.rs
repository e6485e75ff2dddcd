//! Probes that do not keep their time.

use std::process::Stdio;

use async_trait::async_trait;
use chainbreak_model::{case, names::AgentName};
use chainbreak_probe::wire::{Connections, Outcome, Sample};
use futures::StreamExt;

use super::*;
use crate::{
    cluster::{ExecError, Leftovers},
    logbook::AgentLog,
};

/// A cluster of a host where a shell's script stands in for the probe.
struct Host {
    script: String,
}

#[async_trait]
impl Cluster for Host {
    fn api(&self) -> Client {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        Client::try_from(config).expect("a client that nobody asks")
    }

    fn places(&self) -> Vec<(Place, IpAddr)> {
        vec![(Place::Host("db".to_owned()), [10, 0, 0, 1].into())]
    }

    async fn exec(&self, at: &Place, _: &Command) -> Result<Process, ExecError> {
        let child = tokio::process::Command::new("sh")
            .args(["-c", &self.script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|source| ExecError {
            place: at.to_string(),
            command: self.script.clone(),
            source,
        })?;
        Ok(Process {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child,
        })
    }

    fn sees_within(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn agent_logs(&self, _: AgentName, _: &NodeName) -> AgentLog {
        futures::stream::pending().boxed()
    }

    fn account(&self, _: &NodeName) -> String {
        String::new()
    }

    async fn destroy(&self) -> Result<(), Leftovers> {
        Ok(())
    }
}

async fn start(script: String) -> Result<Flow, Trouble> {
    let traffic = Traffic {
        from: case::Origin::Host("db".to_owned()),
        to: Destination::Host("db".to_owned()),
        protocol: Protocol::Tcp,
        port: 80,
        family: None,
        every: Duration::from_millis(10),
        connections: Connections::New,
        timeout: Duration::from_secs(1),
    };
    let (log, _events) = EventLog::new();
    Flow::start(&Host { script }, &"web".into(), &traffic, &log).await
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_says_nothing_is_trouble_in_time() {
    let trouble = start("exec sleep 60".to_owned()).await.unwrap_err();
    assert_eq!(
        trouble.to_string(),
        "could not start web: its probe had no answer and no failure in 11s"
    );
}

#[tokio::test]
async fn a_probe_that_does_not_end_is_trouble_in_time() {
    let sample = Sample {
        at_us: 0,
        took_us: 1,
        outcome: Outcome::Refused,
    };
    let reports = [Report::Started { monotonic_us: 0 }, Report::Sample(sample)];
    let lines = reports.map(|report| serde_json::to_string(&report).unwrap());
    let say = lines.map(|line| format!("echo '{line}'; ")).concat();
    let flow = start(format!("{say} exec sleep 60")).await.unwrap();
    tokio::time::pause();
    let trouble = flow.stop().await.unwrap_err();
    assert_eq!(
        trouble.to_string(),
        "could not end web: its probe did not end in 11s"
    );
}
