//! Shims make the commands of a real agent events.
//!
//! An agent runs `iptables`, `ipset`, … by name. A folder of its own, first in its `PATH`, has a static
//! program under these names, which asks here before it runs the program behind it and tells how that
//! ended. Only names that the agent would have found get a shim: an image without `nft` still has none.

mod session;
#[cfg(test)]
mod tests;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the shim writes what this reads")
)]
#[path = "../shim/wire.rs"]
mod wire;

use std::{
    env,
    fs::{self, File},
    io,
    os::unix::{fs::PermissionsExt, net::UnixListener as StdListener},
    path::{Path, PathBuf},
    thread,
};

use nix::{
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sched::{CloneFlags, unshare},
    sys::stat::Mode,
};
use tokio::{
    net::UnixListener,
    task::{AbortHandle, JoinSet},
};

use crate::{error::LabError, place::PlaceThread, recorder::Recorder};

/// The program.
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim"));
/// On the node's own `/run`, a folder an agent.
const FOLDER: &str = "/run/chainbreak/shims";
/// A socket's path has room for 108 bytes (unix(7)).
const LONGEST_NAME: usize = 64;
/// The other names are made of these: `ip6tables-legacy-save`.
const FAMILIES: [&str; 2] = ["iptables", "ip6tables"];
const BACKENDS: [&str; 3] = ["", "-legacy", "-nft"];
const KINDS: [&str; 3] = ["", "-save", "-restore"];
const OTHERS: [&str; 3] = ["nft", "ipset", "conntrack"];

/// An agent's shims. Dropping them ends the recording: its commands fail from then on, with exit code
/// 127 and a line that says so; those that run come to their end.
#[derive(Debug)]
pub struct Shims {
    folder: PathBuf,
    names: Vec<String>,
    listener: AbortHandle,
}

impl Shims {
    /// The folder that has to be the first of the agent's `PATH`. An agent in a root file system of its
    /// own must see it at this same path.
    pub fn path_prefix(&self) -> &Path {
        &self.folder
    }

    /// The names that got a shim.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl Drop for Shims {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Installs shims for one agent in a node's place and records what they tell, in the calling runtime.
///
/// The agent's root file system is `root`, as the place sees it, and `path` is its `PATH` without the
/// shims: what can be found there gets a shim. Whatever an earlier call installed for the same agent
/// in this place is replaced.
pub async fn install(
    place: &PlaceThread,
    recorder: Recorder,
    root: &Path,
    path: &str,
) -> Result<Shims, LabError> {
    let folder = Path::new(FOLDER).join(folder_name(recorder.who()));
    let (root, path) = (root.to_owned(), path.to_owned());
    let made = place.run(move || make(&folder, &root, &path));
    let failed = |source| LabError::Place {
        place: place.name().to_owned(),
        what: "install shims",
        source,
    };
    let (folder, names, listener) = made.await.map_err(failed)?;
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    let task = tokio::spawn(listen(listener, recorder));
    Ok(Shims {
        folder,
        names,
        listener: task.abort_handle(),
    })
}

/// Sessions end with the listener.
async fn listen(listener: UnixListener, recorder: Recorder) {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(sessions.spawn(session::follow(stream, recorder.clone()))),
                Err(error) => {
                    tracing::error!(%error, who = recorder.who(), "nobody hears the shims any more");
                    return;
                }
            },
            Some(_) = sessions.join_next() => {}
        }
    }
}

/// Of a pod's name the end tells most.
fn folder_name(who: &str) -> String {
    let name: String = who
        .chars()
        .map(|c| if c == '/' { '.' } else { c })
        .collect();
    let mut from = name.len().saturating_sub(LONGEST_NAME);
    while !name.is_char_boundary(from) {
        from += 1;
    }
    name.get(from..).unwrap_or_default().to_owned()
}

type Made = (PathBuf, Vec<String>, StdListener);

fn make(folder: &Path, root: &Path, path: &str) -> io::Result<Made> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let bin = folder.join("bin");
    fs::create_dir_all(&bin)?;
    let program = folder.join("shim");
    write(&program)?;
    let root = File::from(open(root, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?);
    let searched: Vec<PathBuf> = env::split_paths(path).collect();
    let mut names: Vec<String> = names().collect();
    names.retain(|name| searched.iter().any(|dir| has(&root, &dir.join(name))));
    for name in &names {
        fs::hard_link(&program, bin.join(name))?;
    }
    let listener = StdListener::bind(folder.join("socket"))?;
    listener.set_nonblocking(true)?;
    Ok((bin, names, listener))
}

/// Writes the shim's program where no process started meanwhile can inherit the open file: nobody may
/// run a program that somebody has open for writing (`ETXTBSY`).
fn write(program: &Path) -> io::Result<()> {
    let program = program.to_owned();
    let writer = thread::spawn(move || {
        unshare(CloneFlags::CLONE_FILES)?;
        fs::write(&program, SHIM)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
    });
    writer.join().expect("writing a file does not panic")
}

fn names() -> impl Iterator<Item = String> {
    let iptables = FAMILIES.iter().flat_map(|family| {
        BACKENDS.iter().flat_map(move |backend| {
            KINDS
                .iter()
                .map(move |kind| format!("{family}{backend}{kind}"))
        })
    });
    iptables.chain(OTHERS.iter().map(|&name| name.to_owned()))
}

/// Whether there is a program, its links followed as below that root.
fn has(root: &File, file: &Path) -> bool {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let found = openat2(root, file, how).map(|found| File::from(found).metadata());
    let Ok(Ok(found)) = found else {
        return false;
    };
    found.is_file() && found.permissions().mode() & 0o111 != 0
}
