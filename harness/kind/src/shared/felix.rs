//! Felix's model on real nodes: a process of this program in each node's container, which lives as long as its standard
//! input is open. Its netfilter commands become events, as in the lab.

use std::{collections::BTreeMap, process::Stdio, time::Duration};

use chainbreak_engine::{
    cluster::Signal,
    first_sync::FirstSync,
    log::EventLog,
    logbook::{AgentLog, Logbook, Writer},
};
use chainbreak_model::{
    event::{Command, EventKind},
    names::{AgentName, NodeName},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    agent::{Order, Said, VERB},
    error::KindError,
    shared::nodes::Node,
};

/// What stands between two lives, as with runsv in calico-node.
const RESTART: Duration = Duration::from_secs(1);
/// What a signal may take.
const WITHIN: Duration = Duration::from_secs(20);

/// What Felix on a node is to be, and what it is.
#[derive(Debug, Clone)]
struct AgentHandle {
    wanted: watch::Sender<Signal>,
    is: watch::Sender<Signal>,
    /// Of its next life.
    version: watch::Sender<String>,
}

/// The models of all nodes. They end with the set of tasks that they were started in.
#[derive(Debug, Default)]
pub(crate) struct Models {
    handles: BTreeMap<NodeName, AgentHandle>,
}

impl Models {
    /// Starts a model on a node; `order` is that of its first life.
    pub(crate) fn start(
        &mut self,
        node: &Node,
        order: Order,
        logbook: &Logbook,
        log: &EventLog,
        tasks: &mut JoinSet<()>,
    ) {
        let handle = AgentHandle {
            wanted: watch::Sender::new(Signal::Run),
            is: watch::Sender::new(Signal::Stop),
            version: watch::Sender::new(order.version.clone()),
        };
        let model = Model {
            node: node.clone(),
            order,
            writer: logbook.writer(AgentName::Felix, &node.name),
            log: log.clone(),
            handle: handle.clone(),
        };
        self.handles.insert(node.name.clone(), handle);
        tasks.spawn(model.live());
    }

    /// Ends the model of a node and starts it again, from then on in that version. Its new life has begun its work when this returns, by what
    /// its log has after the old one's end.
    pub(crate) async fn restart_with(
        &self,
        node: &NodeName,
        version: Option<&str>,
        log: AgentLog,
    ) -> Result<(), KindError> {
        self.signal(node, Signal::Stop).await?;
        if let (Some(handle), Some(version)) = (self.handles.get(node), version) {
            handle.version.send_replace(version.to_owned());
        }
        let first_sync = FirstSync::skip_existing(AgentName::Felix, log);
        self.signal(node, Signal::Run).await?;
        let seen = first_sync.seen().await;
        seen.map_err(|error| KindError::Unable(error.to_string()))
    }

    /// Tells the model of a node what to be, and returns when it is so.
    pub(crate) async fn signal(&self, node: &NodeName, signal: Signal) -> Result<(), KindError> {
        let absent = || KindError::Unable(format!("there is no felix on {node}"));
        let handle = self.handles.get(node).ok_or_else(absent)?;
        handle.wanted.send_replace(signal);
        let mut is = handle.is.subscribe();
        let obeyed = timeout(WITHIN, is.wait_for(|is| *is == signal)).await;
        let late = || format!("felix on {node} does not obey {signal:?} within {WITHIN:?}");
        obeyed
            .map(drop)
            .map_err(|_elapsed| KindError::Unable(late()))
    }
}

/// The model of one node.
struct Model {
    node: Node,
    order: Order,
    writer: Writer,
    log: EventLog,
    handle: AgentHandle,
}

/// One life's process.
struct Life {
    child: Child,
    /// Its end is the process's.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    pid: Option<u32>,
    reason: String,
}

impl Model {
    async fn live(mut self) {
        let mut wanted = self.handle.wanted.subscribe();
        loop {
            if wanted
                .wait_for(|wanted| *wanted == Signal::Run)
                .await
                .is_err()
            {
                return;
            }
            self.order.version.clone_from(&self.handle.version.borrow());
            let ended = match self.begin().await {
                Ok(life) => self.follow(life, &mut wanted).await,
                Err(error) => error.to_string(),
            };
            self.handle.is.send_replace(Signal::Stop);
            self.order.life += 1;
            if *wanted.borrow() != Signal::Stop {
                let text = format!(
                    "felix on {} exited and is started again: {ended}",
                    self.node.name
                );
                self.log.append(EventKind::Step { text });
                sleep_until(Instant::now() + RESTART).await;
            }
        }
    }

    async fn begin(&self) -> std::io::Result<Life> {
        let argv = self.node.argv([&self.node.program, VERB]);
        let mut child = tokio::process::Command::new(&argv[0])
            .args(&argv[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let stdout = child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let mut order = serde_json::to_string(&self.order)?;
        order.push('\n');
        stdin.write_all(order.as_bytes()).await?;
        Ok(Life {
            child,
            stdin: Some(stdin),
            lines: BufReader::new(stdout).lines(),
            pid: None,
            reason: "it said nothing".to_owned(),
        })
    }

    /// Follows a life to its end and returns the reason.
    async fn follow(&self, mut life: Life, wanted: &mut watch::Receiver<Signal>) -> String {
        wanted.mark_unchanged();
        loop {
            tokio::select! {
                line = life.lines.next_line() => match line {
                    Ok(Some(line)) => self.hear(&line, &mut life),
                    Ok(None) => break,
                    Err(error) => return error.to_string(),
                },
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return "nobody wants it".to_owned();
                    }
                    let signal = *wanted.borrow_and_update();
                    if let Err(error) = self.obey(signal, &mut life).await {
                        tracing::warn!(%error, node = %self.node.name, "felix does not obey");
                    }
                }
            }
        }
        match life.child.wait().await {
            Ok(status) if !status.success() => format!("{status}: {}", life.reason),
            _ => life.reason,
        }
    }

    fn hear(&self, line: &str, life: &mut Life) {
        match serde_json::from_str(line) {
            Ok(Said::Started { pid }) => {
                life.pid = Some(pid);
                self.handle.is.send_replace(Signal::Run);
            }
            Ok(Said::Log { text }) => self.writer.write(text),
            Ok(Said::Command(ran)) => {
                let command = EventKind::Command(Command {
                    who: AgentName::Felix.to_string(),
                    node: self.node.name.clone(),
                    argv: ran.argv,
                    input: ran.input,
                    exit: ran.exit,
                    stderr: ran.stderr,
                    took_us: ran.took_us,
                });
                self.log
                    .append_at(self.log.at_monotonic(ran.monotonic_us), command);
            }
            Ok(Said::Exits { reason }) => life.reason = reason,
            Err(_) => line.clone_into(&mut life.reason),
        }
    }

    async fn obey(&self, signal: Signal, life: &mut Life) -> Result<(), KindError> {
        let pid = life.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let kill = async |how| self.node.run(&["kill", how, &pid]).await;
        match signal {
            Signal::Stop => {
                life.stdin = None;
                kill("-KILL").await?;
            }
            Signal::Pause => {
                kill("-STOP").await?;
                self.handle.is.send_replace(Signal::Pause);
            }
            Signal::Run => {
                kill("-CONT").await?;
                self.handle.is.send_replace(Signal::Run);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node on which the first life says at its end, and not before, that it has begun; the next ones say so when there is the file that
    /// stands for the program. Signals are ignored: a life ends with its input.
    const NODE: &str = r#"
        [ "$2" = agent ] || exit 0
        read -r order
        echo '{"started":{"pid":1}}'
        case $order in
        *'"life":1,'*) cat > /dev/null ;;
        *) until [ -e "$1" ]; do sleep 0.01; done ;;
        esac
        echo '{"log":{"text":"Completed first update to dataplane. secs=1.1"}}'
        cat > /dev/null"#;

    #[tokio::test]
    async fn a_restart_waits_for_the_new_life_to_begin_whatever_the_old_one_says_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let may_begin = folder.path().join("may-begin");
        let name = NodeName::from("n1");
        let node = Node {
            name: name.clone(),
            registered: "n1".to_owned(),
            address: [127, 0, 0, 1].into(),
            entry: ["sh", "-c", NODE, "sh"].map(str::to_owned).to_vec(),
            program: may_begin.display().to_string(),
        };
        let order = Order {
            version: "v3.28.1".to_owned(),
            node: "n1".to_owned(),
            seed: 0,
            life: 1,
            ipv6: false,
            kubeconfig: String::new(),
        };
        let logbook = Logbook::default();
        let (log, _events) = EventLog::new();
        let (mut models, mut tasks) = (Models::default(), JoinSet::new());
        models.start(&node, order, &logbook, &log, &mut tasks);
        models.signal(&name, Signal::Run).await.unwrap();
        let said = logbook.read(AgentName::Felix, &name);
        let mut restarting = Box::pin(models.restart_with(&name, None, said));
        let early = timeout(Duration::from_secs(1), &mut restarting).await;
        assert!(early.is_err(), "{early:?}: the new life has said nothing");
        std::fs::write(&may_begin, "").unwrap();
        restarting.await.unwrap();
    }
}
