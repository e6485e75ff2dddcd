//! Commands of agents that are pods, held back before they begin: on each node by a process of this program in the node's container
//! ([`held`](crate::held)), which lives as long as its standard input is open. An agent's next container is another one, and is not held.

use std::time::Duration;

use async_trait::async_trait;
use chainbreak_engine::cluster::{Delay, Holding, SignalError};
use chainbreak_model::{case::AgentSource, names::AgentName};
use futures::future::{join_all, try_join_all};
use kube::Client;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
    sync::Mutex,
    time::timeout,
};

use crate::{
    error::KindError,
    held::{Order, Said, VERB},
    shared::{
        logs::DaemonPod,
        nodes::{Node, Nodes},
        program, signal,
    },
};

/// What it may take to hold, or to let go.
const WITHIN: Duration = Duration::from_secs(20);

/// What holds them in a cluster.
pub(crate) struct Holds {
    client: Client,
    nodes: Nodes,
    /// Who plays Felix.
    felix: Option<AgentSource>,
    /// In the order in which that began.
    held: Mutex<Vec<Hold>>,
}

#[derive(Debug)]
struct Hold {
    delay: Delay,
    /// One for each node.
    holders: Vec<Holder>,
}

#[derive(Debug)]
struct Holder {
    node: Node,
    /// In which the agent was.
    container: String,
    process: Child,
}

impl Holds {
    /// Nothing is held yet.
    pub(crate) fn new(client: &Client, nodes: &Nodes, felix: Option<AgentSource>) -> Self {
        Self {
            client: client.clone(),
            nodes: nodes.clone(),
            felix,
            held: Mutex::default(),
        }
    }

    /// One process for each node. Each holds when this returns.
    async fn begin(&self, delay: &Delay) -> Result<Vec<Holder>, KindError> {
        let agent = delay.agent;
        if agent == AgentName::Felix && self.felix == Some(AgentSource::Model) {
            let why =
                "felix is a model here, which is in no container: its commands cannot be held back";
            return Err(KindError::Unable(why.to_owned()));
        }
        let pod = DaemonPod::of(&self.client, agent).await?;
        let begun = self.nodes.0.iter().map(async |node| {
            let container = signal::container(&self.client, node, pod).await?;
            let order = Order {
                container: container.clone(),
                program: delay.program.clone(),
                by_us: u64::try_from(delay.by.as_micros()).unwrap_or(u64::MAX),
            };
            let begun = timeout(WITHIN, begin(node, &order)).await;
            let begun = begun.unwrap_or_else(|_late| Err(format!("not in {WITHIN:?}")));
            let begun = begun.map_err(|why| KindError::Unable(format!("on {}: {why}", node.name)));
            Ok(Holder {
                node: node.clone(),
                container,
                process: begun?,
            })
        });
        try_join_all(begun).await
    }
}

#[async_trait]
impl Holding for Holds {
    async fn hold_back(&self, delay: &Delay) -> Result<(), SignalError> {
        let begun = self.begin(delay).await;
        let holders = begun.map_err(|error| SignalError(error.to_string()))?;
        let delay = delay.clone();
        self.held.lock().await.push(Hold { delay, holders });
        Ok(())
    }

    async fn let_go(&self, delay: &Delay) -> Result<(), SignalError> {
        let hold = {
            let mut all = self.held.lock().await;
            let found = all.iter().position(|it| it.delay == *delay);
            found.map(|at| all.remove(at))
        };
        let Some(hold) = hold else {
            return Ok(());
        };
        let ended = hold.holders.into_iter().map(|holder| async move {
            let node = holder.node.name.clone();
            let ended = self.end(delay.agent, holder).await;
            ended.map_err(|why| SignalError(format!("on {node}: {why}")))
        });
        join_all(ended).await.into_iter().collect()
    }
}

impl Holds {
    /// Has what it holds go on. An error is why it did not hold all of the time.
    async fn end(&self, agent: AgentName, mut holder: Holder) -> Result<(), String> {
        let sooner = holder.process.try_wait();
        drop(holder.process.stdin.take());
        let ended = timeout(WITHIN, holder.process.wait()).await;
        let ended = ended.map_err(|_late| "it does not end".to_owned())?;
        let status = ended.map_err(|error| error.to_string())?;
        if let Ok(Some(status)) = sooner {
            return Err(format!("nothing was held back any more: {status}"));
        }
        if !status.success() {
            return Err(format!("not all that had to be was held back: {status}"));
        }
        let pod = DaemonPod::of(&self.client, agent).await;
        let pod = pod.map_err(|error| error.to_string())?;
        match signal::container(&self.client, &holder.node, pod).await {
            Ok(container) if container == holder.container => Ok(()),
            _ => Err(format!(
                "{agent} has begun in another container, whose commands were not held back"
            )),
        }
    }
}

/// What holds, as soon as it does; else why not.
async fn begin(node: &Node, order: &Order) -> Result<Child, String> {
    let started = program::start(node, VERB, order).await;
    let mut holder = started.map_err(|error| error.to_string())?;
    let stdout = holder.stdout.take().ok_or("nobody hears it")?;
    let mut said = String::new();
    let read = BufReader::new(stdout).read_line(&mut said).await;
    read.map_err(|error| error.to_string())?;
    match serde_json::from_str(&said) {
        Ok(Said::Holds) => Ok(holder),
        Ok(Said::Cannot(why)) => Err(why),
        Err(_) => Err(format!("it said {said:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use k8s_openapi::api::core::v1::Pod;
    use kube::{
        Api,
        api::{Patch, PatchParams, PostParams},
    };
    use serde_json::json;

    use super::*;
    use crate::served;

    /// A node on which what is told is written down, and what holds says what `says` has, and its end.
    const NODE: &str = r#"cd "$0"
        read -r order
        echo "$2 $order" >> log
        cat says
        [ ! -e dies ] || exit 3
        cat > /dev/null
        echo ended >> log
        [ ! -e missed ]"#;

    fn node(folder: &Path) -> Node {
        let folder = folder.to_string_lossy();
        Node {
            program: "chainbreak".to_owned(),
            ..Node::entered_by(&["sh", "-c", NODE, &folder])
        }
    }

    /// A cluster with kube-proxy on n1.
    async fn cluster() -> Client {
        let client = served::api();
        let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
        let pod = json!({
            "metadata": { "name": "kube-proxy-x", "namespace": "kube-system", "labels": { "k8s-app": "kube-proxy" } },
            "spec": { "nodeName": "n1", "containers": [{ "name": "kube-proxy", "image": "kube-proxy" }] },
        });
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        run_in(&client, "4711").await;
        client
    }

    /// Its container is that one.
    async fn run_in(client: &Client, container: &str) {
        let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
        let status = json!({ "status": { "containerStatuses": [{
            "name": "kube-proxy", "containerID": format!("containerd://{container}"), "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
        }] } });
        let told = Patch::Merge(status);
        pods.patch_status("kube-proxy-x", &PatchParams::default(), &told)
            .await
            .unwrap();
    }

    const BY: Duration = Duration::from_secs(5);

    fn delay(agent: AgentName, program: &str, by: Duration) -> Delay {
        Delay {
            agent,
            program: program.to_owned(),
            by,
        }
    }

    /// Of kube-proxy's iptables.
    fn iptables() -> Delay {
        delay(AgentName::KubeProxy, "iptables", BY)
    }

    const ORDER: &str = r#"held {"container":"4711","program":"iptables","by-us":5000000}"#;

    /// Nodes whose one says that, of which the folder has a log.
    fn nodes(folder: &Path, says: &Said) -> Nodes {
        let says = serde_json::to_string(says).unwrap() + "\n";
        std::fs::write(folder.join("says"), says).unwrap();
        Nodes(vec![node(folder)])
    }

    #[tokio::test]
    async fn commands_are_held_in_the_agents_container_until_they_are_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        let nodes = nodes(folder.path(), &Said::Holds);
        let holds = Holds::new(&cluster().await, &nodes, None);
        holds.hold_back(&iptables()).await.unwrap();
        assert_eq!(log(), format!("{ORDER}\n"));
        for other in [
            delay(AgentName::KubeProxy, "nft", BY),
            delay(AgentName::Felix, "iptables", BY),
            delay(AgentName::KubeProxy, "iptables", BY / 2),
        ] {
            holds.let_go(&other).await.unwrap();
            assert_eq!(log(), format!("{ORDER}\n"), "that is not held");
        }
        holds.let_go(&iptables()).await.unwrap();
        assert_eq!(log(), format!("{ORDER}\nended\n"));
        holds.let_go(&iptables()).await.unwrap();
    }

    #[tokio::test]
    async fn a_hold_that_was_over_before_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = nodes(folder.path(), &Said::Holds);
        let client = cluster().await;
        let holds = Holds::new(&client, &nodes, None);
        holds.hold_back(&iptables()).await.unwrap();
        run_in(&client, "4712").await;
        let why = holds.let_go(&iptables()).await.unwrap_err().0;
        assert!(
            why.contains("on n1: kube-proxy has begun in another container"),
            "{why}"
        );
        // What holds could not tell a command from others.
        std::fs::write(folder.path().join("missed"), "").unwrap();
        holds.hold_back(&iptables()).await.unwrap();
        let why = holds.let_go(&iptables()).await.unwrap_err().0;
        assert!(why.contains("not all that had to be"), "{why}");
        // What is to hold dies.
        std::fs::write(folder.path().join("dies"), "").unwrap();
        holds.hold_back(&iptables()).await.unwrap();
        let ended = async || loop {
            let mut held = holds.held.lock().await;
            if held[0].holders[0].process.try_wait().unwrap().is_some() {
                break;
            }
            drop(held);
            tokio::task::yield_now().await;
        };
        timeout(WITHIN, ended()).await.unwrap();
        let why = holds.let_go(&iptables()).await.unwrap_err().0;
        assert!(
            why.contains("nothing was held back any more: exit status: 3"),
            "{why}"
        );
    }

    #[tokio::test]
    async fn what_cannot_be_held_is_told_with_its_node() {
        let folder = tempfile::tempdir().unwrap();
        let cannot = Said::Cannot("its container has no nft".to_owned());
        let nodes = nodes(folder.path(), &cannot);
        let holds = Holds::new(&cluster().await, &nodes, Some(AgentSource::Model));
        let why = holds
            .hold_back(&delay(AgentName::KubeProxy, "nft", BY))
            .await
            .unwrap_err();
        assert_eq!(why.0, "on n1: its container has no nft");
        let why = holds
            .hold_back(&delay(AgentName::Felix, "iptables", BY))
            .await;
        let why = why.unwrap_err().0;
        assert!(why.contains("felix is a model here"), "{why}");
    }
}
