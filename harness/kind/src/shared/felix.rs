//! Felix's model on real nodes: a process of this program in each node's container, which lives as long as its standard
//! input is open. Its netfilter commands become events, as in the lab.

use std::{collections::BTreeMap, io, time::Duration};

use chainbreak_engine::{
    cluster::{Signal, SignalError},
    log::EventLog,
    logbook::Logbook,
    supervisor::{Death, Kind, LifeControl, LogWriter, Supervised, Supervisor},
};
use chainbreak_model::{
    event::{Command, EventKind},
    names::{AgentName, NodeName},
};
use futures::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    sync::watch,
    task::JoinSet,
};

use crate::{
    agent::{Order, Said, VERB},
    error::KindError,
    shared::{nodes::Node, program},
};

/// What a signal may take.
const WITHIN: Duration = Duration::from_secs(20);

/// The models of all nodes. They end with the set of tasks that they were started in.
#[derive(Debug)]
pub(crate) struct Models {
    supervisor: Supervisor,
    /// Of each model's next life.
    versions: BTreeMap<NodeName, watch::Sender<String>>,
}

impl Models {
    /// None yet. Their logs will be there.
    pub(crate) fn new(logbook: Logbook) -> Self {
        Self {
            supervisor: Supervisor::new(logbook, Some(WITHIN)),
            versions: BTreeMap::new(),
        }
    }

    /// Starts a model on a node; `order` is that of its first life.
    pub(crate) fn start(
        &mut self,
        node: &Node,
        order: Order,
        log: &EventLog,
        tasks: &mut JoinSet<()>,
    ) {
        let (next, version) = watch::channel(order.version.clone());
        self.versions.insert(node.name.clone(), next);
        let model = Model {
            node: node.clone(),
            order,
            version,
            log: log.clone(),
        };
        let supervision = self.supervisor.add(AgentName::Felix, &node.name);
        tasks.spawn(supervision.live(model, log.clone()));
    }

    /// Ends the model of a node and starts it again, from then on in that version.
    pub(crate) async fn restart_with(
        &self,
        node: &NodeName,
        version: Option<&str>,
    ) -> Result<(), SignalError> {
        let upgraded = async {
            if let (Some(next), Some(version)) = (self.versions.get(node), version) {
                next.send_replace(version.to_owned());
            }
            Ok(())
        };
        let agent = AgentName::Felix;
        self.supervisor.restart(agent, node, upgraded).await
    }

    /// Tells the model of a node what to be, and returns when it is so.
    pub(crate) async fn signal(&self, node: &NodeName, signal: Signal) -> Result<(), SignalError> {
        let agent = AgentName::Felix;
        self.supervisor.signal(agent, node, signal).await
    }
}

/// The model of one node.
struct Model {
    node: Node,
    order: Order,
    version: watch::Receiver<String>,
    log: EventLog,
}

impl Supervised for Model {
    type Life = BoxFuture<'static, Option<Death>>;

    fn begin(&mut self, writer: LogWriter, control: LifeControl) -> Self::Life {
        self.order.life = writer.life();
        self.order.version.clone_from(&self.version.borrow());
        let (node, order, log) = (self.node.clone(), self.order.clone(), self.log.clone());
        async move {
            match Life::begin(node, &order, writer, log).await {
                Ok(life) => life.follow(control).await,
                Err(error) => Some(exited(error.to_string())),
            }
        }
        .boxed()
    }
}

/// A model is started again whatever becomes of it.
fn exited(reason: String) -> Death {
    Death {
        reason,
        kind: Kind::Planned,
    }
}

/// One life's process.
struct Life {
    node: Node,
    writer: LogWriter,
    log: EventLog,
    child: Child,
    /// Its end is the process's.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    pid: Option<u32>,
    reason: String,
}

impl Life {
    async fn begin(
        node: Node,
        order: &Order,
        writer: LogWriter,
        log: EventLog,
    ) -> io::Result<Self> {
        let mut child = program::start(&node, VERB, order).await?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            node,
            writer,
            log,
            child,
            stdin,
            lines: BufReader::new(stdout).lines(),
            pid: None,
            reason: "it said nothing".to_owned(),
        })
    }

    /// Follows it to its end, and does what is wanted of it meanwhile.
    async fn follow(mut self, mut control: LifeControl) -> Option<Death> {
        let mut stopped = false;
        loop {
            tokio::select! {
                line = self.lines.next_line() => match line {
                    Ok(Some(line)) => self.hear(&line, &control),
                    Ok(None) => break,
                    Err(error) => return Some(exited(error.to_string())),
                },
                wish = control.next(), if !stopped => {
                    stopped = wish == Signal::Stop;
                    match self.obey(wish).await {
                        Ok(()) if stopped => {}
                        Ok(()) => control.is_so(wish),
                        Err(error) => {
                            control.refuse();
                            tracing::warn!(%error, node = %self.node.name, "felix does not obey");
                        }
                    }
                }
            }
        }
        let ended = self.child.wait().await;
        if stopped {
            return None;
        }
        Some(exited(match ended {
            Ok(status) if !status.success() => format!("{status}: {}", self.reason),
            _ => self.reason,
        }))
    }

    fn hear(&mut self, line: &str, control: &LifeControl) {
        match serde_json::from_str(line) {
            Ok(Said::Started { pid }) => {
                self.pid = Some(pid);
                control.is_so(Signal::Run);
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
                    named: Vec::new(),
                });
                self.log
                    .append_at(self.log.at_monotonic(ran.monotonic_us), command);
            }
            Ok(Said::Exits { reason }) => self.reason = reason,
            Err(_) => line.clone_into(&mut self.reason),
        }
    }

    async fn obey(&mut self, wish: Signal) -> Result<(), KindError> {
        let how = match wish {
            Signal::Stop => "-KILL",
            Signal::Pause => "-STOP",
            Signal::Run => "-CONT",
        };
        if wish == Signal::Stop {
            self.stdin = None;
        }
        let pid = self.pid.map(|pid| pid.to_string()).unwrap_or_default();
        self.node.run(&["kill", how, &pid]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

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
            program: may_begin.display().to_string(),
            ..Node::entered_by(&["sh", "-c", NODE, "sh"])
        };
        let order = Order {
            version: "v3.28.1".to_owned(),
            node: "n1".to_owned(),
            seed: 0,
            life: 1,
            ipv6: false,
            kubeconfig: String::new(),
        };
        let (log, _events) = EventLog::new();
        let (mut models, mut tasks) = (Models::new(Logbook::default()), JoinSet::new());
        models.start(&node, order, &log, &mut tasks);
        models.signal(&name, Signal::Run).await.unwrap();
        let mut restarting = Box::pin(models.restart_with(&name, None));
        let early = timeout(Duration::from_secs(1), &mut restarting).await;
        assert!(early.is_err(), "{early:?}: the new life has said nothing");
        std::fs::write(&may_begin, "").unwrap();
        restarting.await.unwrap();
    }
}
