//! A real agent: the program that was given, and where it is on a node.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use chainbreak_engine::{
    log::EventLog,
    supervisor::{Death, Kind},
};
use chainbreak_model::{
    agent::DIRECTORIES,
    case::{ApiWay, CalicoSpec, ClusterSpec, KubeProxySpec},
    event::EventKind,
    names::AgentName,
};
use serde_json::json;

use super::{
    absent,
    identity::{Identity, identify_here},
    lives::Life,
    process::{self, Start},
    program::Program,
    settings::{self, NodeContext},
};
use crate::{
    api,
    error::LabError,
    recorder::Recorder,
    shims::{self, Shims},
    worker::{PATH, filesystem::image},
    world::{Node, World},
};

/// On each node's own `/run`.
const KUBE_PROXY_CONFIG: &str = "/run/chainbreak/kube-proxy.json";

/// The program that plays an agent on every node.
#[derive(Debug, Clone)]
pub(super) struct Real {
    agent: AgentName,
    /// In `root`, if there is one.
    program: PathBuf,
    root: Option<PathBuf>,
    identity: Identity,
}

impl Real {
    /// Finds out who it is.
    pub(super) async fn identify(agent: AgentName, path: &Path) -> Result<Self, LabError> {
        let identity = identify_here(path, agent).await?;
        let found = Program::find(agent, path);
        let found = found.map_err(|why| LabError::Agent {
            agent,
            path: path.to_owned(),
            why,
        })?;
        Ok(Self {
            agent,
            program: found.path,
            root: found.root,
            identity,
        })
    }

    /// Says who it is.
    pub(super) fn say(&self, log: &EventLog) {
        say(self.agent, &self.identity, log);
    }

    /// Whether it has a root file system of its own, which a thread enters once and for all.
    pub(super) fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// Prepares a node: its commands are recorded from now on, for as long as the shims are kept.
    pub(super) async fn prepare(
        &self,
        world: &World,
        node: &Node,
        way: ApiWay,
        log: &EventLog,
    ) -> Result<(NodeContext, Shims), LabError> {
        let (api, kubeconfig) = tell_way(self.agent, world, node, way).await?;
        let recorder = Recorder::new(self.agent.as_str(), node.name.clone(), log.clone());
        let recorder = recorder.behind(world.gate.clone());
        let root = self.root.as_deref().unwrap_or(Path::new("/"));
        let path = match self.root {
            Some(_) => DIRECTORIES.join(":"),
            None => PATH.to_owned(),
        };
        let shims = shims::install(&node.place, recorder, root, &path).await?;
        let context = NodeContext {
            node: node.name.clone(),
            address: world.families.first(node.address),
            api,
            pods: world.families.nets(world.pools.main()),
            path: format!("{}:{path}", shims.path_prefix().display()),
            kubeconfig,
            pod_owner: world.pod_owner,
            has_pools: world.pools.are_declared,
        };
        Ok((context, shims))
    }

    /// The agent on that node, in that version.
    pub(super) fn start(
        &self,
        cluster: &ClusterSpec,
        version: &str,
        context: &NodeContext,
    ) -> Result<Start, LabError> {
        match self.agent {
            AgentName::KubeProxy => {
                let spec = cluster.kube_proxy.as_ref();
                let spec = spec.ok_or_else(|| absent(self.agent))?;
                Ok(self.kube_proxy(&spec.at(version), context))
            }
            AgentName::Felix => {
                let spec = cluster.calico.as_ref().ok_or_else(|| absent(self.agent))?;
                Ok(self.felix(spec, context))
            }
        }
    }

    fn kube_proxy(&self, spec: &KubeProxySpec, context: &NodeContext) -> Start {
        let (flags, file) = if spec.config.is_empty() {
            (settings::kube_proxy(spec, context), None)
        } else {
            let flags = settings::flags_beside_a_file(KUBE_PROXY_CONFIG, context);
            let content = settings::kube_proxy_config(spec, context);
            (flags, Some((KUBE_PROXY_CONFIG, content)))
        };
        Start {
            argv: self.argv(flags),
            env: settings::environment(context),
            format: self.agent.kind().log_format,
            file,
        }
    }

    fn felix(&self, spec: &CalicoSpec, context: &NodeContext) -> Start {
        Start {
            argv: self.argv(settings::felix_arguments(&self.program)),
            env: settings::felix(spec, context),
            format: self.agent.kind().log_format,
            file: None,
        }
    }

    fn argv(&self, arguments: Vec<String>) -> Vec<String> {
        let program = self.program.to_string_lossy().into_owned();
        [vec![program], arguments].concat()
    }

    /// What makes the thread that calls it one of the agent's lives: in the image's root, if it has one,
    /// which all its lives share.
    pub(super) fn life(
        &self,
        start: Start,
    ) -> impl FnOnce() -> Result<Life, LabError> + Send + use<> {
        let (agent, root) = (self.agent, self.root.clone());
        move || {
            if let Some((path, content)) = &start.file {
                fs::write(path, content).map_err(|error| LabError::Unable {
                    what: format!("write {path}: {error}"),
                })?;
            }
            if let Some(root) = root {
                image::enter(&root, agent.as_str())?;
            }
            Ok(Life::new(move |writer, control| {
                let start = start.clone();
                Box::pin(async move {
                    let ended = process::live(&start, control, |entry| writer.write(entry)).await;
                    death(agent, ended)
                })
            }))
        }
    }
}

fn say(agent: AgentName, identity: &Identity, log: &EventLog) {
    let fact = |name: String, value: String| log.append(EventKind::Fact { name, value });
    let (version, path) = (&identity.version, identity.path.display());
    let sha256 = &identity.sha256;
    fact(
        agent.to_string(),
        format!("{version} (real: {path}, sha256 {sha256})"),
    );
    if let Some(iptables) = &identity.iptables {
        fact(format!("{agent}.iptables"), iptables.clone());
    }
}

/// Writes where the API is for an agent of that node, which reads it as it starts; returns that, and the file. The variables
/// `KUBERNETES_SERVICE_HOST` and `_PORT` stay those of the agent's first pod: Felix v3.28.1 and v3.32.1 only log them where there is a kubeconfig.
pub(super) async fn tell_way(
    agent: AgentName,
    world: &World,
    node: &Node,
    way: ApiWay,
) -> Result<(SocketAddr, String), LabError> {
    let api = api::address(world, way);
    let kubeconfig = format!("/run/chainbreak/{agent}.kubeconfig");
    let file = kubeconfig.clone();
    let written = node.place.run(move || write_kubeconfig(&file, api)).await;
    written.map_err(|source| LabError::Place {
        place: node.place.name().to_owned(),
        what: "write a kubeconfig",
        source,
    })?;
    Ok((api, kubeconfig))
}

/// The API takes everybody, over plain HTTP.
fn write_kubeconfig(file: &str, api: SocketAddr) -> io::Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "lab", "cluster": { "server": format!("http://{api}") } }],
        "users": [{ "name": "agent", "user": {} }],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "agent" } }],
        "current-context": "lab",
    });
    if let Some(folder) = Path::new(file).parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, config.to_string())
}

/// `None` where it was told to end.
fn death(agent: AgentName, ended: io::Result<Option<std::process::ExitStatus>>) -> Option<Death> {
    let planned = agent.kind().restart_status;
    let death = match ended {
        Ok(None) => return None,
        Ok(Some(status)) => Death {
            reason: process::how(status),
            kind: if planned.is_some() && planned == status.code() {
                Kind::Planned
            } else {
                Kind::Own
            },
        },
        Err(error) => Death {
            reason: format!("it could not be started: {error}"),
            kind: Kind::NotStarted,
        },
    };
    Some(death)
}
