//! Commands that are run on nodes and hosts, ended where they run: whoever starts one there holds only what speaks to it (`docker exec`), whose
//! end it does not notice. Each bears a name in its environment, and so does what it starts, unless with an environment of another's making.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use chainbreak_engine::cluster::Killing;

use crate::{tool::Tool, wait};

/// The variable that names a command.
const VARIABLE: &str = "CHAINBREAK_COMMAND";
/// Kills all processes that bear a name, and prints whether there were any. Those that they start meanwhile bear it, too, and are looked for
/// again. What grep could not read is nobody's: its exit status says nothing.
const KILL: &str = "\
    for look in $(seq 50); do \
      found=$(grep -lszx \"$1\" /proc/[0-9]*/environ); \
      [ \"$found\" ] || exit 0; \
      [ $look != 1 ] || echo found; \
      for it in $found; do it=${it#/proc/}; kill -KILL ${it%/environ} 2>/dev/null; done; \
      sleep 0.1; \
    done; \
    echo it does not end >&2; exit 1";
/// What that may take.
const WITHIN: Duration = Duration::from_secs(20);

/// So many of them were named by this process, for whichever cluster.
static NAMED: AtomicU64 = AtomicU64::new(0);

/// Commands that were started, by the local process that speaks to each.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    started: Mutex<BTreeMap<u32, Started>>,
}

/// How a command is found.
#[derive(Debug, Clone)]
struct Started {
    /// What puts another one there.
    entry: Vec<String>,
    /// `VARIABLE=VALUE`.
    name: String,
}

/// A command that is about to be started.
pub(crate) struct Named(Started);

impl Commands {
    /// A name for a command in what is entered by that.
    pub(crate) fn named(entry: &[String]) -> Named {
        let number = NAMED.fetch_add(1, Ordering::Relaxed);
        Named(Started {
            entry: entry.to_vec(),
            // Two runs may have commands on a node.
            name: format!("{VARIABLE}={}-{number}", process::id()),
        })
    }

    /// It was started.
    pub(crate) fn started(&self, process: Option<u32>, named: Named) {
        if let Some(process) = process {
            let mut all = self.started.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(process, named.0);
        }
    }
}

impl Named {
    /// What a command is begun with so that it has the name.
    pub(crate) fn words(&self) -> [String; 2] {
        ["env".to_owned(), self.0.name.clone()]
    }
}

#[async_trait]
impl Killing for Commands {
    async fn kill(&self, process: u32) -> io::Result<()> {
        let started = {
            let all = self.started.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(&process).cloned()
        };
        let Some(Started { entry, name }) = started else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let kill = ["sh", "-c", KILL, "sh", &name].map(str::to_owned);
        let kill = Tool::new(WITHIN, entry.into_iter().chain(kill));
        // It may be about to begin there, as long as its speaker lives.
        let speaker = Path::new("/proc").join(process.to_string());
        let look = || async {
            let lives = speaker.exists();
            match kill.clone().output().await {
                Ok(found) if found.is_empty() && lives => Err("it has not begun".to_owned()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        };
        let killed = wait::until("the command has ended", WITHIN, look, wait::nothing);
        killed.await.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_is_killed_with_what_it_has_started_and_no_other() {
        let commands = Commands::default();
        let entry = ["env".to_owned()];
        let start = |script: &str| {
            let named = Commands::named(&entry);
            let words = named.words();
            let mut command = tokio::process::Command::new(&words[0]);
            // The first is left by what has started it, the second is another one's.
            command.arg(&words[1]).args(["sh", "-c", script]);
            let child = command.kill_on_drop(true).spawn().unwrap();
            commands.started(child.id(), named);
            child
        };
        let folder = tempfile::tempdir().unwrap();
        let written = folder.path().join("of-a-session-of-its-own");
        let script = format!(
            "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 3600' & exec sleep 3600",
            written.display()
        );
        let (mut first, mut second) = (start(&script), start("exec sleep 3600"));
        let look = || async { written.exists().then_some(()).ok_or_else(String::new) };
        let began = wait::until("it has begun", WITHIN, look, wait::nothing);
        began.await.unwrap();
        commands.kill(first.id().unwrap()).await.unwrap();
        assert!(!first.wait().await.unwrap().success());
        let left = std::fs::read_to_string(&written).unwrap();
        let environ = std::fs::read(format!("/proc/{}/environ", left.trim()));
        // One that nobody has waited for yet has none any more.
        assert!(environ.is_err() || environ.unwrap().is_empty());
        assert!(second.try_wait().unwrap().is_none(), "it is another one's");
        second.kill().await.unwrap();
        let unknown = commands.kill(u32::MAX).await.unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_command_that_is_about_to_begin_is_killed_when_it_has_begun() {
        let folder = tempfile::tempdir().unwrap();
        let may_begin = folder.path().join("may-begin");
        let commands = Commands::default();
        let named = Commands::named(&["env".to_owned()]);
        let script = "until [ -e \"$0\" ]; do sleep 0.01; done; exec \"$@\"";
        let mut speaker = tokio::process::Command::new("sh");
        speaker
            .args(["-c", script])
            .arg(&may_begin)
            .args(named.words());
        speaker.args(["sleep", "3600"]).kill_on_drop(true);
        let mut speaker = speaker.spawn().unwrap();
        let id = speaker.id().unwrap();
        commands.started(Some(id), named);
        let mut killing = Box::pin(commands.kill(id));
        let early = tokio::time::timeout(Duration::from_secs(1), &mut killing).await;
        assert!(early.is_err(), "{early:?}: it has not begun");
        std::fs::write(&may_begin, "").unwrap();
        killing.await.unwrap();
        assert!(!speaker.wait().await.unwrap().success());
    }
}
