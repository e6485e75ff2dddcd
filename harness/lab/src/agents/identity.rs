//! Who a given program is: its version as it says itself, its hash, and an image's own iptables.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use chainbreak_model::names::AgentName;
use serde::{Deserialize, Serialize};
use tokio::{process::Command, sync::oneshot, task::spawn_blocking, time::timeout};

use super::{program::Program, settings::version_flag};
use crate::{
    error::LabError,
    worker::{self, PATH, WorldOptions, filesystem::image},
};

/// `--version` takes a tenth of a second of an idle machine.
const DEADLINE: Duration = Duration::from_secs(20);
/// How many lines of a program's words are evidence enough.
const LINES: usize = 10;
/// The order that makes a worker identify an agent instead of running a case; a question follows.
pub(crate) const ORDER: &str = "identify ";

/// Who plays an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The path that was given.
    pub path: PathBuf,
    /// As the program says it: `v1.20.2`, `v3.28.1`.
    pub version: String,
    /// Of the program itself, in hexadecimal.
    pub sha256: String,
    /// What a root file system's own iptables says of itself; `None` for a binary, which has the node's.
    pub iptables: Option<String>,
}

/// Identifies the program given for an agent, in a throwaway world made by a worker of the running
/// program. An error tells what is wrong with it on its first line, with the evidence below.
pub async fn identify(path: &Path, agent: AgentName) -> Result<Identity, LabError> {
    let program = Program::find(agent, path).map_err(refused(agent, path))?;
    let said = said_in_a_world(path, agent).await;
    let said = said.map_err(refused(agent, path))?;
    complete(path, agent, program, said).await
}

/// As [`identify`], in this world, which has to show the path.
pub(super) async fn identify_here(path: &Path, agent: AgentName) -> Result<Identity, LabError> {
    let program = Program::find(agent, path).map_err(refused(agent, path))?;
    let (tell, told) = oneshot::channel();
    let here = path.to_owned();
    // A thread of its own: it may change its root.
    let asking = thread::Builder::new().spawn(move || {
        // Who no longer waits wants no answer.
        drop(tell.send(ask(&here, agent)));
    });
    let said = match asking {
        Ok(_ends_by_itself) => told.await.unwrap_or_else(|gone| Err(gone.to_string())),
        Err(error) => Err(error.to_string()),
    };
    complete(path, agent, program, said.map_err(refused(agent, path))?).await
}

async fn complete(
    path: &Path,
    agent: AgentName,
    program: Program,
    said: Said,
) -> Result<Identity, LabError> {
    let hashed = spawn_blocking(|| program.sha256()).await;
    let sha256 = hashed
        .unwrap_or_else(|panic| Err(panic.into()))
        .map_err(|error| refused(agent, path)(format!("could not read it: {error}")))?;
    Ok(Identity {
        path: path.to_owned(),
        version: said.version,
        sha256,
        iptables: said.iptables,
    })
}

fn refused(agent: AgentName, path: &Path) -> impl FnOnce(String) -> LabError {
    let path = path.to_owned();
    move |why| LabError::Agent { agent, path, why }
}

/// What is to be found out; `path` is one that the world shows.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    agent: AgentName,
    path: PathBuf,
}

/// What the programs said.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    version: String,
    iptables: Option<String>,
}

async fn said_in_a_world(path: &Path, agent: AgentName) -> Result<Said, String> {
    let question = Question {
        agent,
        path: path.to_owned(),
    };
    let question = serde_json::to_string(&question).map_err(|error| error.to_string())?;
    let order = format!("{ORDER}{question}");
    let options = WorldOptions {
        show: vec![path.to_owned()],
        ebpf: false,
    };
    match timeout(2 * DEADLINE, worker::ask(&options, &order)).await {
        Ok(answer) => serde_json::from_str::<Result<Said, String>>(&answer?)
            .map_err(|error| error.to_string())?,
        Err(_elapsed) => Err("the world to try it in did not answer".to_owned()),
    }
}

/// Answers the question of an [`ORDER`]. To be called in the worker.
pub(crate) fn answer(question: &str) -> Result<Said, String> {
    let question: Question = serde_json::from_str(question).map_err(|error| error.to_string())?;
    ask(&question.path, question.agent)
}

/// Lets the programs speak in the calling thread's namespaces, an image's in its root, which is the
/// thread's from then on.
fn ask(path: &Path, agent: AgentName) -> Result<Said, String> {
    let program = Program::find(agent, path)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    if let Some(root) = &program.root {
        image::enter(root, &format!("identify-{agent}")).map_err(|error| error.to_string())?;
    }
    runtime.block_on(async {
        let argv = [
            program.path.as_os_str(),
            version_flag(agent, &program.path).as_ref(),
        ];
        let said = first_words(&argv).await?;
        let version = version_in(agent, &said);
        // What else it says, a licence most often, tells nothing.
        let first = said.lines().next().unwrap_or_default();
        let version =
            version.ok_or_else(|| format!("it says {first:?}, and not which {agent} it is"))?;
        let iptables = match &program.root {
            Some(_) => Some(first_words(&["iptables".as_ref(), "--version".as_ref()]).await?),
            None => None,
        };
        Ok(Said {
            version: version.to_owned(),
            iptables: iptables.map(|said| said.lines().next().unwrap_or_default().to_owned()),
        })
    })
}

/// What a program that ends in time and well says on standard output.
async fn first_words(argv: &[&OsStr]) -> Result<String, String> {
    let line = argv.join(OsStr::new(" "));
    let line = line.to_string_lossy();
    let running = Command::new(argv[0])
        .args(&argv[1..])
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match timeout(DEADLINE, running).await {
        Ok(output) => output.map_err(|error| format!("could not run `{line}`: {error}"))?,
        Err(_elapsed) => {
            let seconds = DEADLINE.as_secs();
            return Err(format!("`{line}` did not end within {seconds} s"));
        }
    };
    let (said, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if output.status.success() {
        return Ok(said.into_owned());
    }
    let what = format!("`{line}` ended with {}", output.status);
    Err(with(&what, &format!("{said}{complaint}")))
}

/// A line, and the last lines of what was said below it.
fn with(what: &str, said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let last = lines.len().saturating_sub(LINES);
    let said = lines[last..].iter().map(|line| format!("\n{line}"));
    format!("{what}{}", said.collect::<String>())
}

/// `v1.20.2` of kube-proxy's `Kubernetes v1.20.2`. `None` for another program's words.
fn version_in(agent: AgentName, said: &str) -> Option<&str> {
    let version = (agent.kind().version_in)(said.trim_start())?;
    let version = version.split_whitespace().next()?;
    let mut parts = version.trim_start_matches('v').split('.');
    let mut number = || parts.next().is_some_and(|part| part.parse::<u32>().is_ok());
    (number() && number()).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_programs_words_name_its_version_and_anothers_do_not() {
        let kube_proxy = |said| version_in(AgentName::KubeProxy, said);
        assert_eq!(kube_proxy("Kubernetes v1.20.2\n"), Some("v1.20.2"));
        assert_eq!(
            kube_proxy("Kubernetes v1.36.0-beta.1\n"),
            Some("v1.36.0-beta.1")
        );
        assert_eq!(kube_proxy("true (GNU coreutils) 9.1\n"), None);
        let felix = |said| version_in(AgentName::Felix, said);
        assert_eq!(felix("v3.28.1\n"), Some("v3.28.1"));
        let lines = "Version:            v3.28.1\nFull git commit ID: 601856\n";
        assert_eq!(felix(lines), Some("v3.28.1"));
        assert_eq!(felix("Kubernetes v1.20.2\n"), None);
    }
}
