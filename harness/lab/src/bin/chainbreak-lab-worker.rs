//! The worker that the lab's own tests start. After the first line, each line of standard input is a
//! request, answered by a line on standard output.

use std::{process::ExitCode, sync::Arc};

use chainbreak_lab::{
    worker::{Lifeline, enter},
    world::World,
};
use chainbreak_model::case::ClusterSpec;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

fn main() -> ExitCode {
    match enter().map_err(|error| error.to_string()).and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&json!({ "error": error }));
            ExitCode::FAILURE
        }
    }
}

/// What a test asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ask {
    /// Run a command in a place, by the place's name.
    Exec(String, Vec<String>),
    /// End.
    Stop,
}

fn serve(life: Lifeline) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.map_err(text)?.block_on(answer(life))
}

async fn answer(mut life: Lifeline) -> Result<(), String> {
    let spec: ClusterSpec = serde_json::from_str(&life.first).map_err(text)?;
    let world = Arc::new(World::raise(&spec).await.map_err(text)?);
    say(&json!({ "raised": true }));
    while let Some(line) = life.lines.recv().await {
        match serde_json::from_str(&line).map_err(text)? {
            Ask::Stop => break,
            Ask::Exec(place, argv) => {
                let thread = world
                    .threads()
                    .into_iter()
                    .find(|(at, _)| at.to_string() == place);
                let (place, _) = thread.ok_or_else(|| format!("no place {place}"))?;
                say(&exec(&world, &place, argv).await.map_err(text)?);
            }
        }
    }
    Ok(())
}

async fn exec(
    world: &World,
    place: &chainbreak_engine::cluster::Place,
    argv: Vec<String>,
) -> std::io::Result<Value> {
    let place = world.find(place).ok_or(std::io::ErrorKind::NotFound)?;
    let mut child = place.spawn(&argv, |_| ()).await?;
    drop(child.stdin.take());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let mut out = child.stdout.take().expect("standard output is piped");
    let mut err = child.stderr.take().expect("standard error is piped");
    tokio::try_join!(
        out.read_to_string(&mut stdout),
        err.read_to_string(&mut stderr)
    )?;
    let exit = child.wait().await?.code();
    Ok(json!({ "exit": exit, "stdout": stdout, "stderr": stderr }))
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
