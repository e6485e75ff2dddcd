//! The programs that the lab's own tests start. With `worker`: after the case, each line of standard
//! input is a request, answered by a line on standard output. With `parent CASE REQUEST…`: the parent of
//! such a worker, which makes each request when the one before is answered, until it ends. With `probe`: says in which
//! cgroup it is when its standard input ends. With `survey`: says what the machine can run. With `identify AGENT PATH`: says who that is. With `shell PLACE
//! COMMAND…`: looks into a world.

use std::{fs, io, path::Path, process::ExitCode};

use chainbreak_engine::{
    backend::Backend,
    cluster::{Cluster, Command, Place},
    log::EventLog,
    run::READY_WITHIN,
};
use chainbreak_lab::{
    Lab,
    registry::shell,
    worker::{Lifeline, VERB, WorldOptions, enter, spawn_worker},
};
use chainbreak_model::{
    case::Case,
    event::Event,
    names::{AgentName, NodeName},
};
use futures::StreamExt;
use kube::{
    Client,
    api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    discovery::ApiResource,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, sync::mpsc};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [VERB, ..] => work(&words[1..]),
        ["parent", case, ..] => in_runtime(parent(case, &words[2..])),
        ["probe"] => probe(),
        ["survey"] => in_runtime(survey()),
        ["identify", agent, path] => in_runtime(identify(agent, path)),
        ["shell", place, ..] => shell(Some(place), &arguments[2..]).unwrap_or(ExitCode::FAILURE),
        _ => ExitCode::FAILURE,
    }
}

fn probe() -> ExitCode {
    let ended = io::copy(&mut io::stdin(), &mut io::sink());
    match ended.and_then(|_bytes| fs::read_to_string("/proc/self/cgroup")) {
        Ok(groups) => say(&json!(groups)),
        Err(error) => say(&json!(error.to_string())),
    }
    ExitCode::SUCCESS
}

fn in_runtime(what: impl Future<Output = Result<(), String>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime
        .map_err(text)
        .and_then(|runtime| runtime.block_on(what))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&json!({ "error": error }));
            ExitCode::FAILURE
        }
    }
}

/// Holds a worker's lifeline, makes requests and passes its words on.
async fn parent(case: &str, requests: &[&str]) -> Result<(), String> {
    let program = std::env::current_exe().map_err(text)?;
    let mut worker = spawn_worker(&program, &WorldOptions::default()).map_err(text)?;
    worker.order(case).await.map_err(text)?;
    let mut requests = requests.iter();
    while let Some(line) = worker.lines.next_line().await.map_err(text)? {
        say(&Value::String(line));
        if let Some(request) = requests.next() {
            worker.order(request).await.map_err(text)?;
        }
    }
    let status = worker.wait().await.map_err(text)?;
    if status.success() {
        Ok(())
    } else {
        Err(status.to_string())
    }
}

async fn survey() -> Result<(), String> {
    say(&json!(Lab::default().survey().await));
    Ok(())
}

async fn identify(agent: &str, path: &str) -> Result<(), String> {
    let agent = serde_json::from_value(json!(agent)).map_err(text)?;
    let who = chainbreak_lab::identify(Path::new(path), agent).await;
    let who = who.map_err(text)?;
    say(&json!({ "version": who.version, "sha256": who.sha256, "iptables": who.iptables }));
    Ok(())
}

fn work(options: &[&str]) -> ExitCode {
    match enter(&WorldOptions::from_arguments(options))
        .map_err(|error| error.to_string())
        .and_then(serve)
    {
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
    /// Run a command in a place (`node/n1`, `pod/default/web`, `host/outside`).
    Exec(String, Vec<String>),
    /// Run the program's probe there.
    Probe(String),
    /// Create an object.
    Create(Value),
    /// Merge a patch into an object of that kind and name.
    Patch(Value),
    /// Delete the object.
    Delete(Value),
    /// Wait until all pods, this many, are ready; answers with them.
    Ready(usize),
    /// Wait until so many pods are there at all.
    Pods(usize),
    /// The history since it was asked for last.
    Events,
    /// So many entries of an agent's log on a node from its beginning, or all before it died, and then
    /// `{ "died": … }`.
    Log(AgentName, NodeName, usize),
    /// What the agents of a node are at.
    Account(NodeName),
    /// Another endpoint behind the Service `kubernetes`.
    MoveApi,
    /// Destroy and end.
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
    let case: Case = serde_json::from_str(&life.first).map_err(text)?;
    let (log, mut events) = EventLog::new();
    let raised = Lab::default().raise(&case, &log, READY_WITHIN).await;
    let cluster = raised.map_err(text)?;
    say(&json!({ "raised": true }));
    while let Some(line) = life.lines.recv().await {
        let ask = serde_json::from_str(&line).map_err(text)?;
        if matches!(ask, Ask::Stop) {
            break;
        }
        let answered = ask_one(cluster.as_ref(), ask, &mut events).await;
        say(&answered.unwrap_or_else(|error| json!({ "error": error })));
    }
    cluster.destroy().await.map_err(text)
}

async fn ask_one(
    cluster: &dyn Cluster,
    ask: Ask,
    events: &mut mpsc::UnboundedReceiver<Event>,
) -> Result<Value, String> {
    let client = cluster.api();
    match ask {
        Ask::Exec(place, argv) => exec(cluster, &place, Command::Argv(argv)).await,
        Ask::Probe(place) => exec(cluster, &place, Command::Probe).await,
        Ask::Create(object) => {
            let (api, object) = typed(client, object)?;
            let created = api
                .create(&PostParams::default(), &object)
                .await
                .map_err(text)?;
            Ok(json!(created))
        }
        Ask::Patch(object) => {
            let (api, object) = typed(client, object)?;
            let name = object.metadata.name.clone().unwrap_or_default();
            let patched = api
                .patch(&name, &PatchParams::default(), &Patch::Merge(&object))
                .await;
            Ok(json!(patched.map_err(text)?))
        }
        Ask::Delete(object) => {
            let (api, object) = typed(client, object)?;
            let name = object.metadata.name.unwrap_or_default();
            api.delete(&name, &kube::api::DeleteParams::default())
                .await
                .map_err(text)?;
            Ok(json!({}))
        }
        Ask::Ready(count) => {
            until(client, |pods| pods.len() == count && pods.iter().all(ready)).await
        }
        Ask::Pods(count) => until(client, |pods| pods.len() == count).await,
        Ask::Events => {
            let mut seen = Vec::new();
            while let Ok(event) = events.try_recv() {
                seen.push(event);
            }
            Ok(json!(seen))
        }
        Ask::Log(agent, node, count) => {
            let said = cluster
                .agent_logs(agent, &node)
                .filter_map(async |item| match item {
                    Ok(item) => item.entry().map(Value::String),
                    Err(died) => Some(json!({ "died": died.to_string() })),
                });
            Ok(json!(said.take(count).collect::<Vec<Value>>().await))
        }
        Ask::Account(node) => Ok(json!(cluster.account(&node))),
        Ask::MoveApi => {
            let endpoints = cluster.api_endpoints().ok_or("the backend cannot")?;
            endpoints.move_on().await.map_err(text)?;
            Ok(json!({}))
        }
        Ask::Stop => Ok(Value::Null),
    }
}

fn typed(client: Client, object: Value) -> Result<(Api<DynamicObject>, DynamicObject), String> {
    let object: DynamicObject = serde_json::from_value(object).map_err(text)?;
    let types = object.types.clone().ok_or("an object without a kind")?;
    let kind = kube::core::GroupVersionKind::try_from(&types).map_err(text)?;
    let resource = ApiResource::from_gvk(&kind);
    let api = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    Ok((api, object))
}

/// Lists pods again and again: the tests' bound is the time of the answer.
async fn until(client: Client, holds: impl Fn(&[Value]) -> bool) -> Result<Value, String> {
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::all(client);
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    loop {
        looks.tick().await;
        let list = api.list(&ListParams::default()).await.map_err(text)?;
        let pods: Vec<Value> = list.items.iter().map(|pod| json!(pod)).collect();
        if holds(&pods) {
            return Ok(json!(pods));
        }
    }
}

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .clone()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn place_of(text: &str) -> Place {
    match text.split('/').collect::<Vec<_>>()[..] {
        ["pod", namespace, name] => Place::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        ["host", name] => Place::Host(name.to_owned()),
        _ => Place::Node(text.trim_start_matches("node/").into()),
    }
}

async fn exec(cluster: &dyn Cluster, place: &str, command: Command) -> Result<Value, String> {
    let started = cluster.exec(&place_of(place), &command).await;
    let mut process = started.map_err(text)?;
    drop(process.stdin.take());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let mut out = process.stdout.take().expect("standard output is piped");
    let mut err = process.stderr.take().expect("standard error is piped");
    let read = tokio::try_join!(
        out.read_to_string(&mut stdout),
        err.read_to_string(&mut stderr)
    );
    read.map_err(text)?;
    let exit = process.wait().await.map_err(text)?.code();
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
