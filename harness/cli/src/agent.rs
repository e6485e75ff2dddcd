//! `chainbreak agent`: Felix's model on a node of a real cluster, in the node's own namespaces. What it is told and what it
//! tells are JSON lines ([`chainbreak_kind::agent`]); it ends with its standard input.

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
    rc::Rc,
    time::Instant,
};

use anyhow::Context;
use chainbreak_agents::{
    driver::{self, Exec, header},
    felix,
    step::{Command, LogLine, Output},
};
use chainbreak_kind::agent::{Order, Ran, Said, input_ended};
use futures::{FutureExt, future::LocalBoxFuture};
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// One life of the agent.
pub(crate) fn main() -> anyhow::Result<ExitCode> {
    let mut order = String::new();
    io::stdin().lock().read_line(&mut order)?;
    let order: Order = serde_json::from_str(&order).context("could not read the order")?;
    let pid = std::process::id();
    say(&Said::Started { pid })?;
    std::thread::spawn(end_with_the_input);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let reason = runtime.block_on(live(&order))?;
    say(&Said::Exits { reason })?;
    Ok(ExitCode::SUCCESS)
}

fn end_with_the_input() {
    input_ended();
    #[expect(clippy::exit, reason = "whoever wanted the agent is gone")]
    std::process::exit(0)
}

async fn live(order: &Order) -> anyhow::Result<String> {
    let version = order.version.parse();
    let version = version.map_err(|error| anyhow::anyhow!("felix {}: {error}", order.version))?;
    let kubeconfig = Kubeconfig::from_yaml(&order.kubeconfig)?;
    let options = KubeConfigOptions::default();
    let api = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let client = kube::Client::try_from(api)?;
    let config = felix::Config {
        version,
        node_name: order.node.clone(),
        env: felix::manifest_environment(),
        ipv6: order.ipv6,
        programs: false,
        seed: order.seed,
    };
    let mut sink = |line: LogLine| {
        let text = header::felix(&line, Timestamp::now(), order.life);
        tell(&Said::Log { text });
    };
    Ok(driver::felix(client, config, None, Rc::new(Node), &mut sink).await)
}

/// Runs commands on the node that this process is in, and tells of them.
#[derive(Debug)]
struct Node;

impl Exec for Node {
    fn run(&self, command: Command) -> LocalBoxFuture<'static, Output> {
        async move {
            let begin = Instant::now();
            let child = driver::command::spawn(&command.argv);
            let output = driver::command::follow(child, &command, begin).await;
            tell(&Said::Command(Ran {
                monotonic_us: chainbreak_probe::clock::monotonic_us(),
                argv: command.argv,
                input: command.input,
                exit: output.exit,
                stderr: output.stderr.clone(),
                took_us: u64::try_from(output.took.as_micros()).unwrap_or(u64::MAX),
            }));
            output
        }
        .boxed_local()
    }
}

fn say(said: &Said) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}

/// Nobody listens: the end of the input, which comes with it, ends this process.
fn tell(said: &Said) {
    if let Err(error) = say(said) {
        tracing::debug!(%error, "nobody listens");
    }
}
