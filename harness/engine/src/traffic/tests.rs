//! Probes that do not keep their time.

use chainbreak_model::case;
use chainbreak_probe::wire::{Connections, Outcome, Sample};

use super::*;
use crate::fake::{Commands, Fake};

fn traffic() -> Traffic {
    Traffic {
        from: case::Origin::Host("db".to_owned()),
        to: Destination::Host("db".to_owned()),
        protocol: Protocol::Tcp,
        port: 80,
        family: None,
        every: Duration::from_millis(10),
        connections: Connections::New,
        timeout: Duration::from_secs(1),
    }
}

/// Prints what a probe says of its first request.
fn say() -> String {
    let sample = Sample {
        at_us: 0,
        took_us: 1,
        late_us: None,
        outcome: Outcome::Refused,
    };
    let reports = [
        Report::Started {
            monotonic_us: 0,
            from: None,
        },
        Report::Sample(sample),
    ];
    let lines = reports.map(|report| serde_json::to_string(&report).unwrap());
    lines.map(|line| format!("echo '{line}'; ")).concat()
}

async fn start(script: String) -> Result<Flow, InfraError> {
    let (log, _events) = EventLog::new();
    // A shell's script stands in for the probe.
    let host = Fake {
        commands: Commands::Shell(script, Duration::ZERO),
        ..Fake::default()
    };
    Flow::start(&host, 0, &"web".into(), &traffic(), &log).await
}

/// Each of two says nothing until the other is there.
#[tokio::test]
async fn no_traffic_waits_for_the_first_answer_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().display();
    let wait = format!("until [ $(ls {there} | wc -l) = 2 ]; do sleep 0.01; done");
    let script = format!("mkdir {there}/$$; {wait}; {}exec sleep 60", say());
    let host = Fake {
        commands: Commands::Shell(script, Duration::ZERO),
        ..Fake::default()
    };
    let (log, _events) = EventLog::new();
    let both = ["shop", "web"].map(|name| (name.into(), traffic()));
    let flows = begin(&host, &both.into(), &log).await.unwrap();
    let names = flows.iter().map(|flow| flow.name().to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["shop", "web"]);
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
    let flow = start(format!("{} exec sleep 60", say())).await.unwrap();
    tokio::time::pause();
    let trouble = flow.stop().await.unwrap_err();
    assert_eq!(
        trouble.to_string(),
        "could not end web: its probe did not end in 11s"
    );
}
