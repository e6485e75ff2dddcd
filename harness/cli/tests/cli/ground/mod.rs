//! What every test stands on: a folder with a short scenario, the program in it, and looks at what it left.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// A folder that holds `short.yaml`, and `out` once something ran.
pub(crate) struct Ground {
    folder: TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("short.yaml"), include_str!("short.yaml")).unwrap();
        fs::write(folder.path().join("web.yaml"), include_str!("web.yaml")).unwrap();
        Self { folder }
    }

    /// The same, with a pod of that name in the place of `client`: no world of other tests has it.
    pub(crate) fn with_client(name: &str) -> Self {
        let ground = Self::new();
        for file in ["short.yaml", "web.yaml"] {
            let text = fs::read_to_string(ground.path().join(file)).unwrap();
            ground.write(file, text.replace("client", name));
        }
        ground
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), bytes).unwrap();
    }

    /// `others.yaml`, with these variants: what somebody else does between a client and its service.
    pub(crate) fn write_others(&self, variants: &str) {
        self.write(
            "others.yaml",
            [include_str!("others.yaml"), variants].concat(),
        );
    }

    /// The program in this folder, with pipes on every side.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chainbreak"));
        command
            .current_dir(self.path())
            .env_remove("CHAINBREAK_LOG")
            .env_remove("GITHUB_ACTIONS")
            .env_remove("GITHUB_STEP_SUMMARY")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn chainbreak(&self, args: &[&str]) -> Output {
        output(&mut self.command(args))
    }

    /// Runs a variant of the short scenario to its end.
    pub(crate) fn run(&self, variant: &str, more: &[&str]) -> Output {
        self.chainbreak(&[&run_args(variant), more].concat())
    }

    /// Begins a variant and waits until its time is judged.
    pub(crate) fn judging(&self, variant: &str, more: &[&str]) -> Running {
        let mut running = Running::start(&self.command(&[&run_args(variant), more].concat()));
        running.reads("judging");
        running
    }

    /// A file of the newest run.
    pub(crate) fn newest(&self, file: &str) -> PathBuf {
        self.path().join("out/latest").join(file)
    }

    /// What happened in the cases of the newest run, a line an event.
    pub(crate) fn history(&self) -> String {
        let run = fs::read_to_string(self.newest("run.jsonl")).unwrap();
        let lines = run
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let paths = lines.filter_map(|line| Some(line["history"]["path"].as_str()?.to_owned()));
        paths
            .map(|path| fs::read_to_string(self.newest(&path)).unwrap())
            .collect()
    }
}

/// The same program with pipes, which takes signals however these tests were started: in the background of a script SIGINT is ignored,
/// and below `nohup` SIGHUP.
fn with_default_signals(program: &Command) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP,INT,TERM")
        .arg(program.get_program())
        .args(program.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folder) = program.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Held by those who clean; by one alone who wants to see what `clean` finds.
static CLEANS: RwLock<()> = RwLock::new(());

/// Runs the program to its end. `clean` ends what a killed run of any test has left, and so does the start of `run`: both wait for
/// [those who want to see that](nobody_cleans).
pub(crate) fn output(program: &mut Command) -> Output {
    let verb = program.get_args().next();
    let cleans = ["clean", "run"].map(OsStr::new).map(Some).contains(&verb);
    let _along = cleans.then(cleaning);
    program.output().unwrap()
}

fn cleaning() -> RwLockReadGuard<'static, ()> {
    CLEANS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Until it is dropped no other test cleans.
pub(crate) fn nobody_cleans() -> RwLockWriteGuard<'static, ()> {
    CLEANS.write().unwrap_or_else(PoisonError::into_inner)
}

fn run_args(variant: &str) -> [&str; 7] {
    [
        "run",
        "short.yaml",
        "--variant",
        variant,
        "--out",
        "out",
        "-v",
    ]
}

/// A kept world, and its number by which no other world is meant.
pub(crate) fn kept(ground: &Ground) -> (Running, i32) {
    let mut run = ground.judging("calm", &["--keep"]);
    run.reads("the world is kept");
    let named = text(&ground.chainbreak(&["clean"]).stdout);
    let ours = format!("is kept by the run of process {}: ", run.pid());
    let line = named.lines().find(|line| line.contains(&ours)).unwrap();
    let world = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    (run, world)
}

/// A run that goes on. What a test leaves of it when it fails ends with it.
pub(crate) struct Running {
    child: Option<Child>,
    progress: BufReader<ChildStderr>,
    read: String,
    family: BTreeSet<i32>,
}

impl Running {
    pub(crate) fn start(command: &Command) -> Self {
        let cleaning = cleaning();
        let mut child = with_default_signals(command).spawn().unwrap();
        let mut progress = BufReader::new(child.stderr.take().unwrap());
        // What says something has begun to run.
        progress.fill_buf().unwrap();
        drop(cleaning);
        Self {
            child: Some(child),
            progress,
            read: String::new(),
            family: BTreeSet::new(),
        }
    }

    /// Reads progress up to a line that contains `word`.
    pub(crate) fn reads(&mut self, word: &str) {
        loop {
            let mut line = String::new();
            let read = self.progress.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "no line says {word}: {}", self.read);
            self.read.push_str(&line);
            if line.contains(word) {
                break;
            }
        }
        self.family = descendants(self.pid());
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    /// The processes below it: of each worker the first comes before those that it started.
    pub(crate) fn family(&self) -> &BTreeSet<i32> {
        &self.family
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits for the end and returns exit status, standard output and progress.
    ///
    /// # Panics
    /// When a process of its family outlives it.
    pub(crate) fn ends(mut self) -> (ExitStatus, String, String) {
        assert!(!self.family.is_empty(), "a run has workers");
        std::io::Read::read_to_string(&mut self.progress, &mut self.read).unwrap();
        let child = self.child.take().unwrap();
        let output = child.wait_with_output().unwrap();
        // An orderly end waits for its workers; a worker that was killed is gone as soon as the kernel
        // has taken its namespace apart.
        let gone = || self.family.iter().all(|pid| !is_alive(*pid));
        until("every process is gone", gone);
        let stdout = String::from_utf8(output.stdout).unwrap();
        (output.status, stdout, std::mem::take(&mut self.read))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A world ends with its run.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// All processes below one, as the kernel knows them.
pub(crate) fn descendants(of: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut next = vec![of];
    while let Some(parent) = next.pop() {
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let pid = process.file_name().to_str().and_then(|n| n.parse().ok());
            let is_child = pid.is_some() && stat(&process.path(), 1) == Some(parent.to_string());
            if let Some(pid) = pid.filter(|pid| is_child && found.insert(*pid)) {
                next.push(pid);
            }
        }
    }
    found
}

/// A field of `/proc/PID/stat` after the command's name: 0 is the state, 1 the parent.
fn stat(process: &Path, field: usize) -> Option<String> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let rest = stat.rsplit(')').next()?;
    rest.split_whitespace().nth(field).map(str::to_owned)
}

pub(crate) fn is_alive(pid: i32) -> bool {
    let state = stat(Path::new(&format!("/proc/{pid}")), 0);
    state.is_some_and(|state| state != "Z" && state != "X")
}

/// Distance of two looks at what nobody tells.
const LOOK: Duration = Duration::from_millis(5);

/// Looks again and again, for as long as a busy machine may take.
pub(crate) fn until(what: &str, look: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !look() {
        assert!(Instant::now() < deadline, "{what}: not in 20 s");
        thread::park_timeout(LOOK);
    }
}

/// The exit code, with what was said when it is another.
#[track_caller]
pub(crate) fn exits(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Whether `JUnit`'s strictest reader takes a file.
#[track_caller]
pub(crate) fn validates(junit: &Path) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reports/schemas/junit-10.xsd");
    let checked = Command::new("xmllint")
        .args(["--noout", "--nonet", "--schema"].map(OsStr::new))
        .args([schema.as_os_str(), junit.as_os_str()])
        .output()
        .expect("xmllint, of the package libxml2-utils");
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}
