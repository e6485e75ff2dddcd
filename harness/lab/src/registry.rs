//! Looking into a world that runs or is kept.
//!
//! A world lists its places in files of its own, `/run/chainbreak/places/node/n1` and so on, each with
//! the id of the place's thread. They are read from outside through the worker's entry in `/proc`, so
//! that nothing of a world lies on the machine's disk and nothing is left when it dies.

mod cluster;
mod command;
mod enter;

use std::{
    ffi::OsStr,
    fmt::Write,
    fs, io,
    net::SocketAddr,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
};

use chainbreak_engine::cluster::Place;
use chainbreak_model::{input, is_hidden};

use self::enter::enter;
use crate::{
    error::LabError,
    process::{Origin, Process},
    worker::TOKEN,
};

pub use self::{cluster::tools, command::command};

/// Where a world lists its places, as the worker sees it.
const PLACES: &str = "/run/chainbreak/places";
/// Whose presence says that a world is kept, as the worker sees it.
const KEPT: &str = "/run/chainbreak/kept";
/// Where a world's API answers, as the worker sees it.
const API: &str = "/run/chainbreak/api";
/// So many bytes has the number of a place's thread, or an address, at most.
const SHORT: u64 = 64;
/// Said where no world is.
const NONE: &str = "no world is there: `chainbreak run --keep` keeps one";
/// The worker's number in its world: the first process only reaps.
const WORKER: &str = "2";

/// Writes down a place, so that it can be entered from outside.
pub(crate) fn register(place: &Place, tid: i32) -> io::Result<()> {
    let file = Path::new(PLACES).join(place.to_string());
    fs::create_dir_all(file.parent().unwrap_or(&file))?;
    fs::write(file, tid.to_string())
}

/// Writes down where the API answers, for [`shell`].
pub(crate) fn note_api(api: SocketAddr) -> Result<(), LabError> {
    fs::write(API, api.to_string()).map_err(failed("write", API))
}

/// Takes a place out again.
pub(crate) fn unregister(place: &Place) -> io::Result<()> {
    fs::remove_file(Path::new(PLACES).join(place.to_string()))
}

/// Marks this process's world as kept after its run, for [`left`] to find.
pub fn mark() -> Result<(), LabError> {
    fs::write(KEPT, "").map_err(failed("mark", KEPT))
}

/// A world that nobody runs anything in any more.
#[derive(Debug)]
pub struct Left {
    /// Its worker.
    pub worker: i32,
    /// Its first process outside, whose death ends it.
    pub stage_one: Process,
    /// The run that keeps it; `None` when that is gone.
    pub run: Option<Process>,
}

/// Worlds of this user (all, for root) that are kept, or whose run is gone. A world ends with its run, so
/// the latter are those whose end is on its way, or stuck. What only looks like a world is none: anybody can make a
/// namespace that has such files, and become the child of whatever takes up orphans.
pub fn left() -> Vec<Left> {
    let left = worlds().into_iter().filter_map(|world| {
        let worker = world.worker()?;
        let (stage_one, origin) = stage_one(worker)?;
        let run = run_of(&stage_one, &origin);
        (world.kept || run.is_none()).then_some(Left {
            worker,
            stage_one,
            run,
        })
    });
    left.collect()
}

/// What has started a worker, if that lives: its parent, unless that has only taken up an orphan. Somebody else's it never is.
fn run_of(stage_one: &Process, origin: &Origin) -> Option<Process> {
    let run = Process::hold(parent(stage_one.id())?).ok()?;
    let found = run.origin()?;
    let token = origin
        .variable(TOKEN)
        .and_then(|it| str::from_utf8(it).ok())?;
    let started = token.split('-').next() == Some(&run.id().to_string());
    // Where its numbers are others, the program has to do.
    let ours = found.user == origin.user && (started || found.program == origin.program);
    ours.then_some(run)
}

/// The first process outside of a worker's world, and what it is. Both are forks of the one program that was started as this
/// worker: the token in its environment nobody else has.
fn stage_one(worker: i32) -> Option<(Process, Origin)> {
    let stage_one = Process::hold(parent(parent(worker)?)?).ok()?;
    let origin = stage_one.origin()?;
    origin.variable(TOKEN)?;
    let workers = Process::hold(worker).ok()?.origin()?;
    (origin == workers).then_some((stage_one, origin))
}

/// A path of the worker's world, seen from outside.
fn inside(worker: &Path, path: &str) -> PathBuf {
    worker.join("root").join(path.trim_start_matches('/'))
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// Runs a command, or else a shell, in a place (`n1`, `pod/test/web`, `host/outside`): of worlds that have it a kept one goes
/// before one whose run goes on, then the youngest. Without a place, on such a world's first node. Clients of Kubernetes find
/// the cluster there.
pub fn shell(place: Option<&str>, command: &[String]) -> Result<ExitCode, LabError> {
    let worlds = worlds();
    let (world, path, tid) = find(&worlds, place)?;
    let shown = path.strip_prefix("node/").unwrap_or(&path);
    let mut words = String::new();
    if !world.kept {
        let name = world.name();
        words = format!(
            "chainbreak: {shown} of the {name}, whose run goes on: no world that is kept has it\n"
        );
    }
    if place.is_none() && command.is_empty() {
        words.extend([
            shown,
            " of the ",
            &world.name(),
            ": kubectl and calicoctl find the cluster, curl its services, and its API at $KUBERNETES_MASTER; `chainbreak shell --list` says \
             what else can be entered\n",
        ]);
    }
    drop(io::Write::write_all(&mut io::stderr(), words.as_bytes()));
    let mut nsenter = enter(world.maker(), tid, shown, command);
    nsenter.env("PATH", cluster::path());
    if let Some(api) = world.api() {
        nsenter.envs(cluster::environment(api));
    }
    let status = nsenter.status().map_err(failed("start", "nsenter"))?;
    Ok(exit_code(status))
}

/// Of these worlds the one that is meant, with the path and the thread of the place in it: see [`shell`].
fn find<'a>(
    worlds: &'a [World],
    place: Option<&str>,
) -> Result<(&'a World, String, i32), LabError> {
    let mut found = worlds.iter().rev().filter_map(|world| {
        let path = place.map_or_else(|| world.first_node(), |place| Some(path_of(place)))?;
        let tid = world.thread(&path)?;
        Some((world, path, tid))
    });
    let none = || {
        place.map_or_else(
            || NONE.to_owned(),
            |place| format!("no world has the place {place}: `chainbreak shell --list` lists all"),
        )
    };
    found
        .next()
        .ok_or_else(|| LabError::NotThere { what: none() })
}

/// Which places there are in which worlds, for a person.
pub fn listed() -> String {
    let text = list(&worlds());
    if text.is_empty() {
        return format!("{NONE}\n");
    }
    text
}

/// What clients of Kubernetes need in any place of the world that [`shell`] means without one.
pub fn kubeconfig() -> Result<String, LabError> {
    let api = worlds().iter().rev().find_map(World::api);
    api.map(cluster::kubeconfig)
        .ok_or_else(|| LabError::NotThere {
            what: NONE.to_owned(),
        })
}

/// A running world, seen from outside.
#[derive(Debug)]
struct World {
    worker: PathBuf,
    /// See [`mark`].
    kept: bool,
    started: u64,
}

impl World {
    fn places(&self) -> PathBuf {
        inside(&self.worker, PLACES)
    }

    /// What people call it by.
    fn name(&self) -> String {
        let worker = self.worker.file_name().and_then(OsStr::to_str);
        format!("world of process {}", worker.unwrap_or_default())
    }

    /// Its worker's number.
    fn worker(&self) -> Option<i32> {
        self.worker.file_name()?.to_str()?.parse().ok()
    }

    /// Its first process outside, in the user namespace that has made it.
    fn maker(&self) -> Option<i32> {
        parent(parent(self.worker()?)?)
    }

    /// A short file of the world. Its own programs may put anything there.
    fn read(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix("/").ok()?;
        let mut text = String::new();
        let root = self.worker.join("root");
        let mut file = input::open_below(&root, below, SHORT).ok()?;
        io::Read::read_to_string(&mut file, &mut text).ok()?;
        Some(text)
    }

    /// Where its API answers.
    fn api(&self) -> Option<SocketAddr> {
        self.read(Path::new(API))?.trim().parse().ok()
    }

    /// Its first node, as a place's path: `n2` is before `n10`.
    fn first_node(&self) -> Option<String> {
        let mut nodes = Vec::new();
        walk(&self.places().join("node"), "", &mut nodes);
        let first = nodes
            .into_iter()
            .min_by_key(|node| (node.len(), node.clone()));
        first.map(|node| format!("node/{node}"))
    }

    /// The machine's id of a place's thread.
    fn thread(&self, place: &str) -> Option<i32> {
        let inner = self.read(&Path::new(PLACES).join(place))?;
        let tasks = fs::read_dir(self.worker.join("task")).ok()?;
        let is_it = |task: &fs::DirEntry| inner_id(&task.path()).as_deref() == Some(inner.trim());
        let task = tasks.flatten().find(is_it)?;
        task.file_name().to_str()?.parse().ok()
    }
}

/// Those whom a person means rather come later.
fn sort(worlds: &mut [World]) {
    worlds.sort_by_key(|world| (world.kept, world.started));
}

/// Worlds of this user (all, for root) on this machine, [sorted](sort).
fn worlds() -> Vec<World> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut worlds: Vec<World> = processes
        .map(|process| process.path())
        .filter(|process| inner_id(process).as_deref() == Some(WORKER))
        .map(|worker| World {
            kept: inside(&worker, KEPT).exists(),
            started: started(&worker),
            worker,
        })
        .filter(|world| world.places().is_dir())
        .collect();
    sort(&mut worlds);
    worlds
}

/// A task's number in its own PID namespace, if that is not ours.
fn inner_id(task: &Path) -> Option<String> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut ids = line.split_whitespace();
    ids.next()?;
    ids.next_back().map(str::to_owned)
}

/// When a process was started, in the kernel's ticks.
fn started(process: &Path) -> u64 {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    // The command's name may hold blanks and brackets; 20 fields on from its end is the start time.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    rest.split_whitespace()
        .nth(19)
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(0)
}

fn path_of(place: &str) -> String {
    match place.split('/').collect::<Vec<_>>()[..] {
        [node] => format!("node/{node}"),
        ["pod", pod] => format!("pod/default/{pod}"),
        _ => place.to_owned(),
    }
}

fn list(worlds: &[World]) -> String {
    let mut text = String::new();
    for world in worlds {
        let mut places = Vec::new();
        walk(&world.places(), "", &mut places);
        places.sort();
        let kept = if world.kept { ", kept" } else { "" };
        writeln!(text, "{}{kept}:", world.name()).expect("a String takes everything");
        for place in places {
            writeln!(text, "  {place}").expect("a String takes everything");
        }
    }
    text
}

fn walk(folder: &Path, prefix: &str, places: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let shown = name.to_string_lossy().replace(is_hidden, "");
        let name = format!("{prefix}{shown}");
        if entry.path().is_dir() {
            walk(&entry.path(), &format!("{name}/"), places);
        } else {
            places.push(name);
        }
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn failed(what: &'static str, path: &str) -> impl FnOnce(io::Error) -> LabError {
    let path = PathBuf::from(path);
    move |source| LabError::Keep { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_a_node_and_a_pod_without_namespace_is_in_default() {
        assert_eq!(path_of("n1"), "node/n1");
        assert_eq!(path_of("pod/client"), "pod/default/client");
        assert_eq!(path_of("pod/test/web"), "pod/test/web");
        assert_eq!(path_of("host/outside"), "host/outside");
    }

    #[test]
    fn a_kept_world_is_meant_before_a_younger_one_that_runs() {
        let world = |kept, started| World {
            worker: PathBuf::new(),
            kept,
            started,
        };
        let mut worlds = [world(true, 1), world(false, 3), world(true, 2)];
        sort(&mut worlds);
        let order = worlds.map(|world| (world.kept, world.started));
        assert_eq!(order, [(false, 3), (true, 1), (true, 2)]);
    }

    #[test]
    fn a_process_of_our_own_namespace_is_no_worker() {
        assert_eq!(inner_id(Path::new("/proc/self")), None);
        assert!(started(Path::new("/proc/self")) > 0);
    }
}
