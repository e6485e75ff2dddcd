//! The program that the tests of shims start: a worker with one node's place. Each line of standard input
//! is a request, answered by a line on standard output.

use std::{
    collections::VecDeque,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use chainbreak_engine::{
    gate::{Gate, Held, Matching},
    log::EventLog,
};
use chainbreak_lab::{
    place::{Own, PlaceThread},
    recorder::Recorder,
    shims::{Shims, install},
    worker::{Lifeline, VERB, WorldOptions, enter},
};
use chainbreak_model::event::{Event, EventKind};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, sync::mpsc, task::JoinHandle};

/// What a test asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ask {
    /// Install shims for an agent whose root file system and `PATH` are these.
    Install(String, String),
    /// Run this to its end.
    Run(Run),
    /// Start this; what it answers is asked for later.
    Start(Run),
    /// What the first answers that was started and not yet asked for.
    Ended,
    /// Wait for so many commands that were not yet told of.
    Commands(usize),
    /// Hold the commands of this program.
    Hold(String),
    /// Wait for one that is held.
    Waiting,
    /// Let the held go.
    Release,
    /// Delay the commands of this program by so many milliseconds from now on.
    Delay(String, u64),
    /// Nobody records any more.
    Uninstall,
    /// End.
    Stop,
}

/// A command in the place.
#[derive(Debug, Deserialize)]
struct Run {
    argv: Vec<String>,
    path: String,
    input: String,
}

/// The place and what was asked for so far.
struct Bench {
    place: PlaceThread,
    gate: Gate,
    log: EventLog,
    events: mpsc::UnboundedReceiver<Event>,
    shims: Option<Shims>,
    held: Option<Held>,
    started: VecDeque<JoinHandle<Value>>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let worked = match &arguments[..] {
        [verb] if verb == VERB => enter(&WorldOptions::default())
            .map_err(text)
            .and_then(serve),
        _ => Err("it is started as a worker".to_owned()),
    };
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&json!({ "error": error }));
            ExitCode::FAILURE
        }
    }
}

fn serve(mut life: Lifeline) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.map_err(text)?.block_on(async {
        let (log, events) = EventLog::new();
        let mut bench = Bench {
            place: PlaceThread::start("node/n1", Own::NetworkAndFiles).map_err(text)?,
            gate: Gate::default(),
            log,
            events,
            shims: None,
            held: None,
            started: VecDeque::new(),
        };
        let mut line = Some(life.first.clone());
        while let Some(asked) = line {
            let ask = serde_json::from_str(&asked).map_err(text)?;
            if matches!(ask, Ask::Stop) {
                break;
            }
            let answered = bench.answer(ask).await;
            say(&answered.unwrap_or_else(|error| json!({ "error": error })));
            line = life.lines.recv().await;
        }
        Ok(())
    })
}

impl Bench {
    async fn answer(&mut self, ask: Ask) -> Result<Value, String> {
        match ask {
            Ask::Install(root, path) => return self.install(&root, &path).await,
            Ask::Run(run) => return self.start(run).await?.await.map_err(text),
            Ask::Start(run) => {
                let started = self.start(run).await?;
                self.started.push_back(started);
            }
            Ask::Ended => {
                let first = self.started.pop_front().ok_or("nothing was started")?;
                return first.await.map_err(text);
            }
            Ask::Commands(count) => return self.commands(count).await,
            Ask::Hold(program) => self.held = Some(self.gate.hold(matching(program))),
            Ask::Waiting => {
                let held = self.held.as_mut().ok_or("nothing is held")?;
                return Ok(json!(held.waiting().await.argv));
            }
            Ask::Release => self.held = None,
            Ask::Delay(program, by) => {
                let by = Duration::from_millis(by);
                self.gate.delay(matching(program), by);
            }
            Ask::Uninstall => self.shims = None,
            Ask::Stop => {}
        }
        Ok(Value::Null)
    }

    async fn install(&mut self, root: &str, path: &str) -> Result<Value, String> {
        let recorder = Recorder::new("kube-proxy", "n1".into(), self.log.clone());
        let recorder = recorder.behind(self.gate.clone());
        let shims = install(&self.place, recorder, Path::new(root), path).await;
        let shims = self.shims.insert(shims.map_err(text)?);
        Ok(json!({ "names": shims.names(), "folder": shims.path_prefix() }))
    }

    async fn start(&self, run: Run) -> Result<JoinHandle<Value>, String> {
        let path = run.path;
        let begin = Instant::now();
        let spawned = self.place.spawn(&run.argv, move |command| {
            command.env("PATH", path);
        });
        let mut child = spawned.await.map_err(text)?;
        let mut stdin = child.stdin.take().expect("standard input is piped");
        Ok(tokio::spawn(async move {
            let feed = async move { stdin.write_all(run.input.as_bytes()).await.is_ok() };
            let (fed, output) = tokio::join!(feed, child.wait_with_output());
            let output = output.expect("a child can be waited for");
            json!({
                "took_us": begin.elapsed().as_micros(),
                "fed": fed,
                "exit": output.status.code(),
                "signal": output.status.signal(),
                "stdout": String::from_utf8_lossy(&output.stdout),
                "stderr": String::from_utf8_lossy(&output.stderr),
            })
        }))
    }

    async fn commands(&mut self, count: usize) -> Result<Value, String> {
        let mut commands = Vec::new();
        while commands.len() < count {
            let event = self.events.recv().await.ok_or("the log is gone")?;
            if let EventKind::Command(command) = event.what {
                commands.push(json!({ "at_us": event.at_us, "command": command }));
            }
        }
        Ok(json!(commands))
    }
}

fn matching(program: String) -> Matching {
    Matching {
        program: Some(program),
        ..Matching::default()
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[expect(
    clippy::print_stdout,
    reason = "standard output is how a worker answers"
)]
fn say(answer: &Value) {
    println!("{answer}");
}
