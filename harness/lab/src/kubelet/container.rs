//! One container: a process in its pod's place, started again as the pod's restart policy says.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use chainbreak_apiserver::ContainerId;
use chainbreak_engine::nginx;
use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod};
use kube::ResourceExt;
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::{
    process::Child,
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    containers::{self, Containers},
    image::{Awaited, Program},
    pod::Ending,
    ports::{accepts, is_bound},
    status::State,
    words::Words,
};
use crate::{error::tolerate, place::PlaceThread, worker::PATH};

/// First pause before a container is started again; doubles up to the longest.
const FIRST_RESTART: Duration = Duration::from_millis(200);
const LONGEST_RESTART: Duration = Duration::from_secs(10);

/// What a container needs to know of its pod.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub(super) place: Arc<PlaceThread>,
    pub(super) address: IpAddr,
    /// Whether it has IPv6 beside its IPv4.
    pub(super) has_v6: bool,
    pub(super) pod: Arc<Pod>,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) node_address: IpAddr,
    /// What comes first in the `PATH` of a pod on the host's network.
    pub(super) shims: Option<PathBuf>,
    /// What is known of its world's containers.
    pub(super) containers: Arc<Containers>,
}

/// When a container that ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub(super) fn of(pod: &Pod) -> Self {
        let policy = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.as_deref());
        match policy {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    fn again(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// Runs a container until it ends for good or `end` says so; `say` hears of every change.
pub(super) async fn supervise(
    home: &Home,
    container: &Container,
    restart: Restart,
    mut end: watch::Receiver<Ending>,
    say: impl Fn(State, Option<String>),
) {
    let program = Program::of(container);
    let ports = program.awaited(container);
    let mut pause = FIRST_RESTART;
    while *end.borrow() == Ending::Not {
        let known = known(home, container);
        let code = match start(home, &known, &program).await {
            Err(error) => {
                say(
                    State::Exited(127),
                    Some(format!("could not start {program:?}: {error}")),
                );
                127
            }
            Ok(None) => {
                say(State::Ready, None);
                drop(end.wait_for(|end| *end != Ending::Not).await);
                return;
            }
            Ok(Some(mut child)) => {
                say(State::Started, None);
                let Some((code, words)) = run(
                    home,
                    (container, &known),
                    &ports,
                    &mut child,
                    &mut end,
                    &say,
                )
                .await
                else {
                    return;
                };
                known.ends();
                let failed = (code != 0).then(|| words.trim().to_owned());
                say(State::Exited(code), failed);
                code
            }
        };
        if !restart.again(code) {
            return;
        }
        say(State::Waiting("CrashLoopBackOff"), None);
        let until = Instant::now() + pause;
        pause = (pause * 2).min(LONGEST_RESTART);
        drop(timeout_at(until, end.wait_for(|end| *end != Ending::Not)).await);
    }
}

/// Follows a started process. `None` when it was told to end, else its code and last words.
async fn run(
    home: &Home,
    (container, known): (&Container, &Arc<containers::Container>),
    ports: &[Awaited],
    child: &mut Child,
    end: &mut watch::Receiver<Ending>,
    say: &impl Fn(State, Option<String>),
) -> Option<(i32, String)> {
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .map(Pid::from_raw);
    let streams = (child.stdout.take(), child.stderr.take());
    let words = Words::of(streams, Arc::clone(known));
    let ready = async {
        for &port in ports {
            match port {
                Awaited::Accepts(port) => {
                    accepts(&home.place, SocketAddr::new(home.address, port)).await;
                }
                Awaited::IsBound(port) => is_bound(&home.place, port).await,
            }
        }
        say(State::Ready, None);
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        status = child.wait() => Some(status.map_or(1, code)),
        () = ready => None,
        _ = end.wait_for(|end| *end != Ending::Not) => None,
    };
    if ended.is_none() {
        terminate(home, container, child, end).await;
    }
    // Whatever it left in the background ends with it.
    if let Some(group) = group {
        tolerate("end what a container left", killpg(group, Signal::SIGKILL));
    }
    let code = ended?;
    Some((code, words.last(end).await))
}

/// preStop, SIGTERM, and SIGKILL when the grace period is over or nobody waits any more.
async fn terminate(
    home: &Home,
    container: &Container,
    child: &mut Child,
    end: &mut watch::Receiver<Ending>,
) {
    let grace = grace(&home.pod);
    let gently = async {
        if let Some(hook) = &container.lifecycle {
            pre_stop(home, hook).await;
        }
        if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
            tolerate(
                "ask a container to end",
                kill(Pid::from_raw(pid), Signal::SIGTERM),
            );
        }
        tolerate("wait for a container", child.wait().await);
    };
    tokio::select! {
        _ = timeout_at(Instant::now() + grace, gently) => {}
        _ = end.wait_for(|end| *end == Ending::Gone) => {}
    }
    tolerate("kill a container", child.start_kill());
    tolerate("wait for a container", child.wait().await);
}

fn grace(pod: &Pod) -> Duration {
    let asked = pod.metadata.deletion_grace_period_seconds;
    let spec = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    length(asked.or(spec).unwrap_or(30))
}

/// Longer than any case. Kubernetes takes numbers that are past the end of every clock.
const LONGEST: u64 = 366 * 24 * 60 * 60;

fn length(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(LONGEST))
}

async fn pre_stop(home: &Home, lifecycle: &Lifecycle) {
    let Some(hook) = &lifecycle.pre_stop else {
        return;
    };
    if let Some(rest) = &hook.sleep {
        sleep_until(Instant::now() + length(rest.seconds)).await;
    }
    let command = hook.exec.as_ref().and_then(|exec| exec.command.clone());
    if let Some(argv) = command
        && let Ok(mut child) = home.place.spawn(&argv, silent).await
    {
        tolerate("wait for a hook", child.wait().await);
    }
}

fn silent(command: &mut tokio::process::Command) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
}

/// Starts the container's process, if it has any.
async fn start(
    home: &Home,
    known: &containers::Container,
    program: &Program,
) -> io::Result<Option<Child>> {
    let argv = match program {
        Program::Idle => return Ok(None),
        Program::Command(argv) => argv.clone(),
        Program::Nginx(ports) => nginx(home, ports).await?,
    };
    let variables = known.variables.clone();
    let child = home.place.spawn(&argv, move |command| {
        silent(command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(variables);
    });
    child.await.map(Some)
}

/// Makes a container known to who asks the API about it.
fn known(home: &Home, container: &Container) -> Arc<containers::Container> {
    let id = ContainerId {
        namespace: home.pod.namespace().unwrap_or_default(),
        pod: home.name.clone(),
        container: container.name.clone(),
    };
    home.containers
        .begin(id, &home.place, environment(home, container))
}

/// Writes nginx's configuration where the pod's node keeps such things.
async fn nginx(home: &Home, ports: &[u16]) -> io::Result<Vec<String>> {
    let folder = format!("/run/chainbreak/pods/{}", home.uid);
    let config = nginx::config(&home.name, ports, home.has_v6, &folder);
    let file = format!("{folder}/nginx.conf");
    let argv = ["nginx", "-c", &file].map(str::to_owned).to_vec();
    let write = move || {
        std::fs::create_dir_all(folder)?;
        std::fs::write(file, config)
    };
    home.place.run(write).await?;
    Ok(argv)
}

fn environment(home: &Home, container: &Container) -> BTreeMap<String, String> {
    let variables = container.env.iter().flatten().map(|variable| {
        let field = variable
            .value_from
            .as_ref()
            .and_then(|from| from.field_ref.as_ref());
        let value = match field.map(|field| field.field_path.as_str()) {
            Some("metadata.name") => home.name.clone(),
            Some("metadata.namespace") => home.pod.metadata.namespace.clone().unwrap_or_default(),
            Some("metadata.uid") => home.uid.clone(),
            Some("spec.nodeName") => home.node.clone(),
            Some("status.hostIP") => home.node_address.to_string(),
            Some("status.podIP") => home.address.to_string(),
            _ => variable.value.clone().unwrap_or_default(),
        };
        (variable.name.clone(), value)
    });
    let mut variables: BTreeMap<String, String> = variables.collect();
    if let Some(shims) = &home.shims {
        let path = variables
            .entry("PATH".to_owned())
            .or_insert(PATH.to_owned());
        *path = format!("{}:{path}", shims.display());
    }
    variables
}

/// A shell's way to put an exit status into one number.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_grace_period_that_kubernetes_takes_is_a_time() {
        let end = Instant::now().checked_add(length(i64::MAX));
        assert!(end.is_some());
        assert_eq!(length(-1), Duration::ZERO);
    }
}
